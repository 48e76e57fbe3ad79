"""Long tests of which each day plays its share: all of them in CI, which says so by a variable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import TypeVar

WHOLE = "BULLMQ_TESTS_WHOLE"
"""Where it is set, nothing is left for another day."""

Case = TypeVar("Case")


def todays(cases: Sequence[Case], days: int) -> list[Case]:
    """Those of the cases that are played today, where all of them take so many days; all of them in CI."""
    return list(cases) if WHOLE in os.environ else share_of(datetime.now(UTC).date(), cases, days)


def share_of(day: date, cases: Sequence[Case], days: int) -> list[Case]:
    """The share of a day: every case has one in so many days."""
    return list(cases[day.toordinal() % days :: days])
