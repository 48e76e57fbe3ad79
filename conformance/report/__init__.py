"""Reports: each is a pure function of a run file."""
