"""How often Python looks for garbage: seldom, in programs that keep what they make and end within minutes.

With Python's own thresholds a sixth of the kit's processor time in a run goes into looking through what is still
needed: the ledger, the scenarios, the modules. What is not in a circle is freed at once all the same.
"""

import gc

THRESHOLDS = (10_000, 20, 50)
"""So many new objects before the youngest are looked through; so many times that, before the older ones are."""


def seldom_looked_for() -> None:
    """Look for garbage in this process as often as THRESHOLDS say."""
    gc.set_threshold(*THRESHOLDS)
