"""`versions mixed`: whether two versions may share a queue while an upgrade goes from one to the other."""
