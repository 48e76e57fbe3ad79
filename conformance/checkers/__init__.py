"""Invariants: what must hold in any single snapshot, whatever client wrote it. Pure."""
