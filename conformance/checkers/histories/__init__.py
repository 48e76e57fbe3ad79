"""Invariants over a whole run with its faults: histories, and pure checks that read each line once."""
