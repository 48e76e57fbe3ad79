"""Clients with defects that only faults, or a whole history, reveal."""
