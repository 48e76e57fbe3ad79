"""Errors of a cluster about keys in several slots, in words that help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from redis.exceptions import ClusterCrossSlotError

from conformance.reference_impl.errors import BullMQError

_SLOT_TEXTS: Final = (
    "must map to the same key slot",  # redis-py, before it sends a script
    "hash to the same slot",  # Redis, CROSSSLOT
    "non local key in a cluster node",  # Redis, for a key that a script makes up by itself
)


class CrossSlot(BullMQError):
    """The keys of a queue or flow are spread over a cluster; its scripts need them in one slot."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "CROSSSLOT: the keys of a queue must share one slot of the cluster; give it a prefix with a hash tag, "
            f'for example {{"prefix": "{{bull}}"}} (the error was: {reason})'
        )


def cross_slot(error: Exception) -> CrossSlot | None:
    """Return the error to raise instead of an error about slots, None for any other error."""
    is_about_slots = isinstance(error, ClusterCrossSlotError) or any(text in str(error) for text in _SLOT_TEXTS)
    return CrossSlot(str(error)) if is_about_slots else None


def with_slots_explained(replies: Sequence[Any]) -> list[Any]:
    """Return the replies; errors about slots become CrossSlot."""
    return [cross_slot(reply) or reply if isinstance(reply, Exception) else reply for reply in replies]
