"""Invariants of snapshots, traffic and histories that hold for every client. Pure."""
