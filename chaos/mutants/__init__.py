"""Clients that are broken in ways that only faults, or a whole history, bring to light."""
