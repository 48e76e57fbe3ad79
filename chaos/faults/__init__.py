"""The faults, by what they hurt. Each is a context manager that heals and records its window."""
