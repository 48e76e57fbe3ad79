"""The stalled check: jobs whose worker has gone, and with it the renewal of the lock.

One check marks all active jobs, the next takes back those that are still marked and have no lock. So two checks are
needed, and between two checks of the same queue some time must pass, whoever makes them.
"""

from __future__ import annotations

import json

from conformance.driver.ops import worker as ops
from conformance.driver.ops.base import Ids
from conformance.model.events import MAX_EVENTS_FIELD, emit, note_limit, trim
from conformance.model.order import put_waiting, remove_first
from conformance.model.stage import Stage, answers
from conformance.model.state import Queue, World

INTERVAL_MS, MOST_STALLS = 30_000, 1
"""A worker's stalledInterval and maxStalledCount where its options do not say."""
REASON = "job stalled more than allowable limit"


@answers(ops.CheckStalled)
def _check_stalled(stage: Stage, _: ops.CheckStalled) -> Ids:
    queue, world, worker = stage.queue, stage.world, stage.handle
    if queue.stalled_check is not None:
        return Ids(ids=[])
    queue.stalled_check = world.expiring(str(stage.now_ms), worker.option("stalledInterval", INTERVAL_MS))
    note_limit(queue)
    trim(world, queue, int(queue.meta[MAX_EVENTS_FIELD]))
    suspects = _in_order(world, queue)
    queue.stalled.clear()
    recovered = [job for job in suspects if _recover(world, queue, job, worker.option("maxStalledCount", MOST_STALLS))]
    queue.stalled.update(queue.active)
    return Ids(ids=recovered)


def _in_order(world: World, queue: Queue) -> list[str]:
    """Redis keeps sets of numbers in order; of others nobody knows the order, which matters if several are stalled."""
    if all(job.isdecimal() for job in queue.stalled):
        return sorted(queue.stalled, key=int)
    if sum(job not in queue.locks and job in queue.active for job in queue.stalled) > 1:
        world.determined = False
    return sorted(queue.stalled)


def _recover(world: World, queue: Queue, job: str, most_stalls: float) -> bool:
    """Take a job without lock back: next to be taken, whatever its priority. One that stalls too often is to fail."""
    if job in queue.locks or not remove_first(queue.active, job):
        return False
    fields = queue.hash(job)
    stalls = int(fields.get("stc", 0)) + 1
    fields["stc"] = str(stalls)
    if stalls > most_stalls and not json.loads(fields.get("opts", "{}")).get("repeat"):
        fields["defa"] = REASON
    put_waiting(queue, job, "right")
    emit(world, queue, "waiting", jobId=job, prev="active")
    emit(world, queue, "stalled", jobId=job)
    return True
