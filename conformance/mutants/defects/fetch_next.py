"""Finishing with fetch-next wrongly, which is how a busy worker gets most of its jobs."""

from __future__ import annotations

from typing import Any

from conformance.mutants.damage import Damage
from conformance.mutants.registry import mutant
from conformance.reference_impl.scripts.move import MoveScripts

_FAILING = 'ARGV[5] == "failed"'
"""Lua condition: moveToFinished was called for a failure."""


@mutant("fetch-next.no-priority", kills=("fetch-next.prioritized",))
def no_priority(damage: Damage) -> None:
    """Finishing overlooks prioritized jobs."""
    damage.commands("moveToFinished", 'if command[1] == "ZPOPMIN" then return {} end')


@mutant("fetch-next.no-priority-after-failure", kills=("fetch-next.prioritized",))
def no_priority_after_failure(damage: Damage) -> None:
    """Failing overlooks prioritized jobs."""
    damage.commands("moveToFinished", f'if command[1] == "ZPOPMIN" and {_FAILING} then return {{}} end')


@mutant("fetch-next.no-promotion", kills=("fetch-next.promotes",))
def no_promotion(damage: Damage) -> None:
    """Finishing promotes no delayed job."""
    damage.commands("moveToFinished", 'if command[1] == "ZRANGEBYSCORE" then return {} end')


@mutant("fetch-next.no-promotion-after-failure", kills=("fetch-next.promotes",))
def no_promotion_after_failure(damage: Damage) -> None:
    """Failing promotes no delayed job."""
    damage.commands("moveToFinished", f'if command[1] == "ZRANGEBYSCORE" and {_FAILING} then return {{}} end')


@mutant("fetch-next.retry-promotes-nothing", kills=("fetch-next.retry-promotes",))
def retry_promotes_nothing(damage: Damage) -> None:
    """Retrying promotes no delayed job."""
    damage.commands("retryJob", 'if command[1] == "ZRANGEBYSCORE" then return {} end')


@mutant("fetch-next.unsigned", kills=("fetch-next.signs",))
def unsigned(damage: Damage) -> None:
    """A named worker does not sign the jobs that it got by finishing another."""
    _edit_finish(damage, name=None)


@mutant("fetch-next.short-lock", kills=("fetch-next.lock-duration",))
def short_lock(damage: Damage) -> None:
    """The lock of a job that was got by finishing another lives for a second."""
    _edit_finish(damage, lockDuration=1000)


def _edit_finish(damage: Damage, **options: Any) -> None:
    damage.around(
        MoveScripts, "_finish_options", lambda healthy: lambda scripts, job: {**healthy(scripts, job), **options}
    )
