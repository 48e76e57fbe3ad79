"""Parts of tests that take turns by day, because all of them every day would take longer than CI has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

ALL_DAYS: Final = "BULLMQ_TESTS_OF_ALL_DAYS"
"""Environment variable: if it is set, every part is run."""

DAY: Final = "BULLMQ_TESTS_DAY"
"""Environment variable: the number of the day, for all processes of one run of pytest, also at midnight."""

Item = TypeVar("Item")


def fix_the_day() -> None:
    """Set the day for this process and those that it starts, unless it is set."""
    os.environ.setdefault(DAY, str(datetime.now(UTC).toordinal()))


def todays_share(items: Sequence[Item], *, days: int) -> list[Item]:
    """Return the items of the day: each item has its turn on one of `days` days."""
    if os.environ.get(ALL_DAYS):
        return list(items)
    return list(items[int(os.environ[DAY]) % days :: days])
