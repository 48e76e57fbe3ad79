"""Jobs whose hash lacks fields start to wait: what is missing has its default, in every script that moves them.

Nearly every one of these scripts has a copy of the same lines: which priority, which delay, and what if there is none.
"""

from __future__ import annotations

import pytest

from conformance.participants.expect import equal
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.waiting import MOVING, WAYS, open_busy_queue

ON_PURPOSE = {
    "required-fields": "the scenario stores a job without them",
    "numbers": "the scenario stores a job without numbers",
    "times": "the scenario stores a job without times",
    "attempts": "the scenario stores a job without its starts",
    "oracle-health": "the scenario stores a job without options",
}
MADE_BY_THE_WAY = tuple(
    name for name in WAYS if name.startswith(("added", "scheduled", "child-is-done")) or "-child-is-done" in name
)
"""Ways in which the job comes only when it starts to wait: there is no hash before."""


@pytest.mark.parametrize("how", [name for name in WAYS if name not in MADE_BY_THE_WAY])
@scenario("lifecycle.one-state", "getters.job.missing-fields", tier="full", without=ON_PURPOSE)
@also_in_core("child-completes")
def test_a_bare_job_starts_to_wait(client: Participant, how: str) -> None:
    """It waits where a job without priority does, if its priority was only in its hash."""
    way = WAYS[how]
    prepared = open_busy_queue(client, at_work=way.at_work)
    way.prepare(prepared)
    prepared.queue.redis.delete(MOVING)
    prepared.queue.redis.set_field(MOVING, "name", MOVING, of_lost_job=True)
    prepared.queue.redis.set_field(MOVING, "data", "{}")
    way.act(prepared)
    equal(prepared.queue.redis.field(MOVING, "name"), MOVING, "nothing was written over it")
