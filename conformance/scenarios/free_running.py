"""Races without anybody who holds them up: two clients act on one queue at the same time, again and again.

Which of them is first is left to the machine. What may come of it is a table; nothing else may happen, in any round.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from conformance.participants.expect import Mismatch, shown
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.scenarios.race_steps import outcome

ROUNDS = 200
LONGEST_HEAD_START_S = 0.001
"""About as long as a call takes: so either side is first in many rounds."""

Outcome: TypeAlias = tuple[Any, ...]
"""What the first act was answered, what the second was answered, and what was found afterwards."""


@dataclass(frozen=True)
class Side:
    """One of the two clients, with a queue and a worker of its own."""

    participant: Participant
    queue: QueueHandle
    worker: WorkerHandle

    @staticmethod
    def of(participant: Participant) -> Side:
        """Open a queue and a worker that is driven step by step."""
        return Side(participant, participant.queue(), participant.worker())


@dataclass(frozen=True)
class Round:
    """Two acts that are due at the same time, and what is looked at (and cleared away) afterwards."""

    first: Callable[[], Any]
    second: Callable[[], Any]
    after: Callable[[], Any]


Stage: TypeAlias = Callable[[int, Side, Side], Round]
"""Prepares a round, by its number, for the client that does the first act and the one that does the second."""


def race_often(
    client: Participant, oracle: Participant, stage: Stage, allowed: Collection[Outcome], *, rounds: int = ROUNDS
) -> Counter[Outcome]:
    """Race so many rounds, in which the two clients take turns at the two acts.

    Returns how often each outcome was seen. Raises Mismatch at one that is not `allowed`, with its round and the seed.
    """
    sides = Side.of(client), Side.of(oracle)
    random = Random(client.driver.seed)
    seen: Counter[Outcome] = Counter()
    with client.transcript.silent(), oracle.transcript.silent():
        for number in range(1, rounds + 1):
            one, other = sides if number % 2 else sides[::-1]
            found = _race(stage(number, one, other), other.participant, random)
            seen[found] += 1
            if found not in allowed:
                _refuse(found, allowed, f"round {number} of {rounds}, first act by {one.participant.role}", client)
    return seen


def _race(prepared: Round, second: Participant, random: Random) -> Outcome:
    head_start = random.uniform(-LONGEST_HEAD_START_S, LONGEST_HEAD_START_S)
    pending = second.meanwhile(lambda: _delayed(prepared.second, head_start))
    first = _delayed(prepared.first, -head_start)
    return first, pending.result(), prepared.after()


def _delayed(act: Callable[[], Any], seconds: float) -> Any:
    if seconds > 0:
        time.sleep(seconds)
    return outcome(act)


def _refuse(found: Outcome, allowed: Collection[Outcome], where: str, client: Participant) -> None:
    raise Mismatch(
        f"either side may be first, and nothing else happens ({where}, --seed {client.driver.seed})",
        expected=f"one of {shown(list(allowed))}",
        actual=found,
    )


def place_of(queue: QueueHandle, job: str) -> str:
    """Where a job is: its state, `gone`, or what is left of it."""
    states, exists = queue.redis.state(job), queue.redis.exists(job)
    if exists and len(states) == 1:
        return states[0]
    return "gone" if not exists and not states else f"in {shown(states)}, {'with' if exists else 'without'} hash"
