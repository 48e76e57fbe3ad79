"""Clients broken on purpose, each in one named way: they prove that the gate's checks can fail."""
