"""Deduplication that lets duplicates through, or holds back what is none."""

from __future__ import annotations

from conformance.mutants.damage import Damage
from conformance.mutants.registry import mutant
from conformance.reference_impl.jobs import options
from conformance.reference_impl.queue import Queue

_OPTIONS = 'cmsgpack.unpack(ARGV[3])["de"]'
"""Lua: the option `deduplication` of the job that is added."""


@mutant("dedup.key-stays", kills=("dedup.key-removal",))
def key_stays(damage: Damage) -> None:
    """Freeing an id is only claimed."""

    async def pretend(_queue: Queue, _deduplication_id: str) -> int:
        return 1

    damage.replace(Queue, "removeDeduplicationKey", pretend)


@mutant("dedup.nameless", kills=("dedup.id-required",))
def nameless(damage: Damage) -> None:
    """The option deduplication without an id is taken, and has no effect."""
    damage.replace(options, "_validate_deduplication", lambda _options: None)


@mutant("late.owner-unknown", kills=("dedup.owner",))
def owner_unknown(damage: Damage) -> None:
    """Asking for the owner of a deduplication id returns nothing."""

    async def no_owner(_queue: Queue, _deduplication_id: str) -> None:
        return None

    damage.replace(Queue, "getDeduplicationJobId", no_owner)
