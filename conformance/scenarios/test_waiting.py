"""A job starts to wait, in every way: a paused or full queue, or one without `meta`, treats all ways the same."""

from __future__ import annotations

import pytest

from conformance.participants.expect import equal, holds
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.waiting import WAYS, start_to_wait

LIMIT = "opts.maxLenEvents"

PRIORITY_IS_KEPT = {"retried-by-hand-prioritized": "<6.3.15"}
"""From 6.3.15 on a job that is retried by hand has its priority again, and waits where that puts it."""


@pytest.mark.parametrize("how", WAYS)
@scenario("lifecycle.one-state", "order.marker.base", tier="full", cases=PRIORITY_IS_KEPT)
@also_in_core(
    "child-is-cleaned | child-is-done-prioritized | child-is-drained | child-is-obliterated | child-is-removed | "
    "child-is-unlinked | children-are-removed | completed-and-retried | completed-and-retried-together | "
    "delayed-child-is-done | delayed-child-is-done-prioritized | due-at-a-claim-prioritized | "
    "due-at-a-retry-prioritized | given-back | given-back-prioritized | now-prioritized | "
    "prioritized-child-is-done | promoted | promoted-lifo | promoted-together | retried-by-hand-lifo | "
    "retried-prioritized | scheduled | scheduled-lifo | stalled | still-without-priority-lifo"
)
def test_a_queue_with_room_takes_a_job(client: Participant, how: str) -> None:
    """The job is only in the container of its options, and a marker is set if Node sets one."""
    prepared, job = start_to_wait(client, how, "with-room")
    equal(prepared.queue.redis.state(job), [WAYS[how].place], "the job waits where its options put it")


@pytest.mark.parametrize("how", WAYS)
@scenario("paused.everything-parks", "paused.prioritized-no-marker", tier="full", bullmq="<6")
@also_in_core(
    "child-fails-and-is-forgotten | child-fails-prioritized-parent | child-is-cleaned | child-is-done-prioritized | "
    "child-is-drained | child-is-obliterated | child-is-removed | child-is-unlinked | children-are-removed | "
    "delayed-child-is-done | delayed-child-is-done-prioritized | due-at-a-finish-prioritized | "
    "prioritized-child-is-done | retried-by-hand-prioritized | retried-lifo | stalled"
)
def test_a_paused_queue_parks_a_job(client: Participant, how: str) -> None:
    """A job without priority is parked, and no worker is woken."""
    prepared, job = start_to_wait(client, how, "paused")
    place = WAYS[how].place
    equal(prepared.queue.redis.state(job), ["paused" if place == "wait" else place], "the job is parked")
    markers = prepared.queue.redis.members("marker")
    holds("0" not in markers, "no marker wakes a worker", seen=markers, where="marker.base")


@pytest.mark.parametrize("how", WAYS)
@scenario("concurrency.no-marker", tier="full", cases=PRIORITY_IS_KEPT)
@also_in_core(
    "another-priority-lifo | child-completes-prioritized | child-fails-and-is-forgotten | child-is-cleaned | "
    "child-is-done | child-is-done-prioritized | child-is-drained | child-is-obliterated | child-is-removed | "
    "child-is-unlinked | children-are-removed | completed-and-retried | delayed-child-is-done | "
    "delayed-child-is-done-prioritized | due-at-a-finish | due-at-a-retry-prioritized | given-back | "
    "given-back-prioritized | no-priority-any-more | prioritized-child-is-done | "
    "prioritized-child-is-done-prioritized | promoted-lifo | promoted-prioritized | retried-by-hand-prioritized | "
    "scheduled-lifo | scheduled-prioritized | stalled | stalled-prioritized"
)
def test_a_full_queue_wakes_nobody_for_a_job(client: Participant, how: str) -> None:
    """The job waits where its options put it, and no worker could take it."""
    prepared, job = start_to_wait(client, how, "full")
    equal(prepared.queue.redis.state(job), [WAYS[how].place], "the job waits where its options put it")
    markers = prepared.queue.redis.members("marker")
    holds("0" not in markers, "no marker wakes a worker", seen=markers, where="marker.base")


@pytest.mark.parametrize("how", WAYS)
@scenario("eviction.meta", tier="full", cases=PRIORITY_IS_KEPT)
@also_in_core(
    "child-is-done-prioritized | due-at-a-finish | due-at-a-finish-prioritized | due-at-a-retry | given-back | "
    "given-back-prioritized | prioritized-child-is-done-prioritized | promoted-together | retried-by-hand | "
    "retried-by-hand-lifo | retried-lifo | retried-together | scheduled-lifo | scheduled-prioritized"
)
def test_a_queue_without_meta_takes_a_job(client: Participant, how: str) -> None:
    """A queue without `meta` has no limits, and new writes restore only what Node restores."""
    prepared, job = start_to_wait(client, how, "without-meta")
    equal(prepared.queue.redis.state(job), [WAYS[how].place], "the job waits where its options put it")


@pytest.mark.parametrize("how", WAYS)
@scenario("retention.events.last-queue-wins", tier="full", cases=PRIORITY_IS_KEPT)
@also_in_core("delayed-child-is-done-prioritized")
def test_a_stream_keeps_its_limit_when_a_job_waits(client: Participant, how: str) -> None:
    """Only a new Queue sets another limit of the stream."""
    prepared, _ = start_to_wait(client, how, lambda prepared: prepared.queue.redis.set_field("meta", LIMIT, "77"))
    equal(prepared.queue.redis.field("meta", LIMIT), "77", "the limit is the one that was set", where="meta.opts")
