"""What is released beside the source: the wheel with the native parts, and the bill of materials of the image."""
