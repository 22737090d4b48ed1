"""Drive workers through the cells of a plan and write results."""
