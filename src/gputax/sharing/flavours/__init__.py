"""How each vendor's plugin names and offers shares of a GPU."""
