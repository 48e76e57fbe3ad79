"""What is left of chaos runs: a file of results, and reports that are computed from it alone."""
