"""Steps that the scenarios about unusual data share."""

from __future__ import annotations

from conformance.participants.participant import Participant
from conformance.participants.redis_view import RedisView


def all_completed(participant: Participant, count: int) -> RedisView:
    """Wait until so many jobs are completed."""
    view = participant.redis()
    participant.eventually(
        lambda: len(view.members("completed")),
        lambda done: done >= count,
        f"{count} jobs are completed",
        within_ms=15_000,
    )
    return view


def echoed(client: Participant) -> str:
    """The data of job 1, as it comes back from a processor that returns what it got."""
    client.worker("echo")
    view = all_completed(client, 1)
    return view.field("1", "returnvalue") or ""
