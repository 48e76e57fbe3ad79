"""Garbage collection thresholds for programs that keep most objects and end within minutes.

With Python's default thresholds a sixth of the kit's CPU time in a run goes into scanning objects that are still
needed: the ledger, the scenarios, the modules. Objects that are not in a reference cycle are freed at once anyway.
"""

import gc

THRESHOLDS = (10_000, 20, 50)
"""New objects before a scan of the youngest generation, then the number of such scans before each older one."""


def raise_thresholds() -> None:
    """Use THRESHOLDS in this process."""
    gc.set_threshold(*THRESHOLDS)
