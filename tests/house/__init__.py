"""Checks of the house: what a linter does not know about this tree."""
