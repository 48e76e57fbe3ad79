"""The arrangements of Redis servers that a run may use, on local processes."""
