"""The faults, grouped by their target. Each is a context manager that heals and records its window."""
