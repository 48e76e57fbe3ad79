"""When delayed jobs are due: every script that puts a job off finds it a place among those due at the same time.

They all have a copy of the same few lines: which ms, which of its 4096 places, and what if the last of them is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from conformance.driver.ops import job as job_ops
from conformance.driver.ops import worker as worker_ops
from conformance.participants.expect import equal
from conformance.participants.handles import QueueHandle
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import HOUR_MS, START_MS, claim_with_successor

PLACES = 4096
"""Scores per ms."""
JOB = "late"


# Ways in which a job is put off until `due` (Unix ms). Each returns its id.

PutOff: TypeAlias = Callable[[Participant, QueueHandle, int], str]


def _add(client: Participant, queue: QueueHandle, due: int) -> str:
    # Without a frozen clock both sides get the same timestamp, or their scores would differ.
    now = client.clock.now_ms() if client.clock.frozen else due - HOUR_MS
    return queue.add(JOB, jobId=JOB, timestamp=now, delay=due - now)


def _change_delay(client: Participant, queue: QueueHandle, due: int) -> str:
    queue.add(JOB, jobId=JOB, delay=HOUR_MS)
    queue.call(job_ops.ChangeDelay(job=JOB, delay_ms=due - client.clock.now_ms()))
    return JOB


def _move_to_delayed(client: Participant, queue: QueueHandle, due: int) -> str:
    queue.add(JOB, jobId=JOB)
    worker = client.worker()
    worker.call(worker_ops.MoveToDelayed(job=worker.claim_one().id, token="token-1", timestamp=due))
    return JOB


def _schedule(_: Participant, queue: QueueHandle, due: int) -> str:
    queue.schedule("s", {"every": HOUR_MS, "startDate": due})
    return f"repeat:s:{due}"


def _schedule_again(client: Participant, queue: QueueHandle, due: int) -> str:
    queue.schedule("s", {"every": HOUR_MS, "startDate": due - HOUR_MS})
    claim_with_successor(queue, client.worker())
    return f"repeat:s:{due}"


WAYS: dict[str, PutOff] = {
    "added": _add,
    "delay-is-changed": _change_delay,
    "put-off-by-its-worker": _move_to_delayed,
    "scheduled": _schedule,
    "next-of-a-schedule": _schedule_again,
}
"""Each script that puts jobs off, once."""

CROWDS: dict[str, tuple[tuple[int, ...], int]] = {
    "nobody": ((), 0),
    "neighbours": ((-1, PLACES), 0),
    "one": ((0,), 1),
    "two": ((0, 6), 7),
    "all-but-the-last": ((PLACES - 2,), PLACES - 1),
    # The first and the last place are enough: the script reads the highest score of the ms.
    "all": ((0, PLACES - 1), PLACES - 1),
}
"""Taken places, counted from the first of the ms, and the place of one more job."""


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize("way", WAYS)
@scenario("order.delayed.same-ms", "order.delayed.score", tier="full")
@also_in_core(
    "added-all | delay-is-changed-all | delay-is-changed-all-but-the-last | next-of-a-schedule-all | "
    "put-off-by-its-worker-all | scheduled-all"
)
def test_a_job_comes_after_all_others_of_its_ms(client: Participant, way: str, crowd: str) -> None:
    """As long as there is a place; then it shares the last one. The ms before and after it are not its own."""
    queue = client.queue()
    taken, place = CROWDS[crowd]
    for number in taken:
        queue.add("other", jobId=f"other {number}", delay=HOUR_MS)
        queue.redis.set_score("delayed", f"other {number}", START_MS * PLACES + number)
    job = WAYS[way](client, queue, START_MS)
    # On a running clock, a changed delay counts from a time that the scenario does not know exactly.
    if way != "delay-is-changed" or client.clock.frozen:
        equal(queue.redis.score("delayed", job), START_MS * PLACES + place, "it comes after those that were there")


@pytest.mark.parametrize("way", [way for way in WAYS if way != "next-of-a-schedule"])
@scenario("order.delayed.score", tier="full")
def test_a_job_is_put_off_for_a_ms(client: Participant, way: str) -> None:
    """The shortest delay is one, too."""
    queue = client.queue()
    due = client.clock.now_ms() + 1 if client.clock.frozen else START_MS
    job = WAYS[way](client, queue, due)
    if client.clock.frozen:
        equal(queue.redis.score("delayed", job), due * PLACES, "it is due in a ms")
