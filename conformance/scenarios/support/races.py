"""Races between two calls: held, so that the scenario chooses which of them Redis runs first, or free and repeated."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest

from conformance.driver.errors import OTHER, OperationFailed, OperationUnsupported
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import Mismatch, value_text
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.participants.pending import Pending

# Held races: each interleaving is brought about once.

HeldPhase: TypeAlias = Literal["before-send", "after-execute"]

BEFORE_SEND: HeldPhase = "before-send"
AFTER_EXECUTE: HeldPhase = "after-execute"
HELD_PHASES: dict[str, HeldPhase] = {"late": BEFORE_SEND, "unheard": AFTER_EXECUTE}


@dataclass(frozen=True)
class Contender:
    """One of two calls that race, and the script in which it takes effect."""

    script: str
    call: Callable[[], Any]


@dataclass(frozen=True)
class RaceResult:
    """How a race went. `first`: who was first in Redis. `outcomes`: what each contender returned, or its error code."""

    first: str
    outcomes: dict[str, Any]


def interleavings(one: str, other: str) -> pytest.MarkDecorator:
    """Every way in which two contenders can meet, as the scenario's argument `interleaving`.

    `X-late`: X has been prepared, and the other call is over before Redis sees it. `X-unheard`: Redis has run X, and
    the other call is over before X is answered.
    """
    ways = [f"{contender}-{when}" for contender in (one, other) for when in HELD_PHASES]
    return pytest.mark.parametrize("interleaving", ways)


def interleave(client: Participant, interleaving: str, **contenders: Contender) -> RaceResult:
    """Let two contenders, by their names, meet in one of the `interleavings`. They must use different handles."""
    held, _, when = interleaving.rpartition("-")
    [other] = [name for name in contenders if name != held]
    # The rule is set before the call starts, or the call could pass before it.
    with client.tap.hold(contenders[held].script, phase=HELD_PHASES[when]) as barrier:
        # In its own thread, because a held call does not return until it is released.
        held_call = client.meanwhile(lambda: outcome_of(contenders[held].call))
        # Before the barrier is reached, Redis could run the other call first or second, at random.
        barrier.wait()
        other_outcome = outcome_of(contenders[other].call)
        # The held call only ends after this: waiting for its result before would never return.
        barrier.release()
        held_outcome = held_call.result()
    # `late`: Redis has not seen the held call, so the other one is first.
    return RaceResult(first=other if when == "late" else held, outcomes={held: held_outcome, other: other_outcome})


def outcome_of(call: Callable[[], Any]) -> Any:
    """The result of a call, or the code of its error. An unknown error is the operation's own: it is raised."""
    try:
        return call()
    except OperationFailed as failure:
        if failure.error.code == OTHER:
            raise
        return failure.error.code


def let_arrive(queue: QueueHandle, *started: Pending[Any]) -> None:
    """Wait until calls of other threads are on their way, and give them time to arrive: later calls are answered first.

    On a busy machine a thread may not even have sent its call when those of this one are answered. A driver that starts
    its calls in the order of their arrival has then started them.
    """
    for call in started:
        call.wait_until_sent()
    # Three, because the driver may still be busy with the call before.
    for _ in range(3):
        queue.is_paused()


LOOKS = 3
"""Answered looks of one kind without work between them: Node's second one already blocks."""
NEVER_WAITS_S = 5.0


def let_idle(client: Participant) -> None:
    """Wait until the worker waits for jobs: Redis blocks its command, or it has looked `LOOKS` times and found none.

    The scenario must do nothing else meanwhile. A client whose looks cannot be recognized gets `NEVER_WAITS_S`.
    """
    mark, started = client.sent_so_far(), time.monotonic()

    def is_idle() -> bool:
        client.tap.raise_ended()
        looks = Counter((sent.name, sent.digest) for sent in client.sent_since(mark) if sent.found_no_work)
        waits = client.is_blocked_since(0) or max(looks.values(), default=0) >= LOOKS
        return waits or time.monotonic() - started > NEVER_WAITS_S

    client.eventually(is_idle, bool, "the worker waits for jobs")


def wait_for_blocking(client: Participant) -> tuple[str, float]:
    """Name and timeout (s) of the command that waits for work. Unsupported for a client that waits without one."""
    try:
        command = client.tap.wait_for(lambda sent: sent.waits_for_work)
    except Mismatch:
        raise OperationUnsupported("worker.run", "this client waits for work without a blocking command") from None
    return command.name, float(command.args[1 if command.name.endswith("MPOP") else -1])


# Free races: the machine decides which call is first. The allowed outcomes are listed; any other fails, in any round.

# Enough that an order that happens in one round of fifty is still seen in most runs.
ROUNDS = 200
LONGEST_HEAD_START_S = 0.001
"""About the duration of a call, so that either client is first in many rounds."""


@dataclass(frozen=True)
class RacingClient:
    """One of the two clients, with a queue and a worker of its own that is driven step by step."""

    participant: Participant
    queue: QueueHandle
    worker: WorkerHandle

    @staticmethod
    def opened(participant: Participant) -> RacingClient:
        """Open its queue and its worker."""
        return RacingClient(participant, participant.queue(), participant.worker())


@dataclass(frozen=True)
class RaceRound:
    """Two calls that are due at the same time, and what is observed (and cleared away) afterwards."""

    first: Callable[[], Any]
    second: Callable[[], Any]
    observe: Callable[[], Any]


class RoundOutcome(NamedTuple):
    """The result (or error code) of each of the two calls, and the state observed afterwards."""

    first: Any
    second: Any
    observed: Any


PrepareRound: TypeAlias = Callable[[int, RacingClient, RacingClient], RaceRound]
"""Prepares a round, by its number, for the client that makes the first call and the one that makes the second."""


def race_repeatedly(
    client: Participant, oracle: Participant, prepare: PrepareRound, allowed: Collection[RoundOutcome]
) -> None:
    """Race `ROUNDS` times; the two clients take turns at the two calls.

    Raises Mismatch at an outcome that is not `allowed`, with its round and the seed.
    """
    racing = RacingClient.opened(client), RacingClient.opened(oracle)
    # The seed of the run, so that the same head starts can be repeated.
    random = Random(client.driver.seed)
    # Two hundred rounds would otherwise fill the transcript, and none of them can be compared call by call.
    with client.transcript.silent(), oracle.transcript.silent():
        for number in range(1, ROUNDS + 1):
            # They take turns, so that each client makes both calls in half of the rounds.
            one, other = racing if number % 2 else racing[::-1]
            outcome = _race(prepare(number, one, other), other.participant, random)
            if outcome not in allowed:
                where = f"round {number} of {ROUNDS}, first act by {one.participant.role}"
                raise Mismatch(
                    f"either side may be first, and nothing else happens ({where}, --seed {client.driver.seed})",
                    expected=f"one of {value_text(list(allowed))}",
                    actual=outcome,
                )


def _race(prepared: RaceRound, second: Participant, random: Random) -> RoundOutcome:
    # Without a random head start the same client would nearly always be first: half of the outcomes would not be tried.
    head_start_s = random.uniform(-LONGEST_HEAD_START_S, LONGEST_HEAD_START_S)
    second_call = second.meanwhile(lambda: _delayed(prepared.second, head_start_s))
    first_outcome = _delayed(prepared.first, -head_start_s)
    # Wait for the second call before observing: until then the state is neither before nor after the race.
    return RoundOutcome(first_outcome, second_call.result(), prepared.observe())


def _delayed(call: Callable[[], Any], seconds: float) -> Any:
    if seconds > 0:
        time.sleep(seconds)
    return outcome_of(call)


# Calls of contenders, and observations.


def claimed_id(worker: WorkerHandle, token: str = "token-1") -> str | None:
    """Claim a job; its id, or None."""
    job = worker.claim(token)
    return job.id if job else None


def drain(queue: QueueHandle) -> None:
    """Queue.drain."""
    queue.call(queue_ops.Drain())


def obliterate(queue: QueueHandle) -> None:
    """Queue.obliterate."""
    queue.call(queue_ops.Obliterate())


def waiting_events_of(queue: QueueHandle, job: str) -> int:
    """How many events say that the job came to `wait`."""
    return sum(entry["event"] == "waiting" and entry["jobId"] == job for entry in queue.redis.events())


def place_of(queue: QueueHandle, job: str) -> str:
    """The place of a job: its state, `gone`, or its remains."""
    states, exists = queue.redis.state(job), queue.redis.exists(job)
    if exists and len(states) == 1:
        return states[0]
    return "gone" if not exists and not states else f"in {value_text(states)}, {'with' if exists else 'without'} hash"
