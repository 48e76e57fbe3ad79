"""Invariants about where jobs are."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.checkers.base import Check, Found, View
from conformance.observe.layout import LISTS


def _one_state(view: View) -> Iterator[Found]:
    """Every job hash is in exactly one container.

    Parents that wait for children are in `waiting-children`; iterations of schedulers are ordinary jobs.
    """
    for (queue, job), _ in sorted(view.jobs.items()):
        states = view.states.get((queue, job), [])
        if not states:
            yield Found(where="membership.state", key=f"{queue}:{job}", message="the job is in no container")
        elif len(set(states)) > 1:
            yield Found(where="membership.state", key=f"{queue}:{job}", message=f"the job is in {', '.join(states)}")


def _no_ghosts(view: View) -> Iterator[Found]:
    """Every id in a container has a job hash. Ids that begin with `0:` are markers of old versions."""
    for (queue, job), states in sorted(view.states.items()):
        if (queue, job) not in view.jobs and not job.startswith("0:"):
            for state in states:
                yield Found(where=f"membership.{state}", key=f"{queue}:{job}", message="there is no hash for this job")


def _no_duplicates(view: View) -> Iterator[Found]:
    """No list holds an id twice."""
    for (queue, container), rows in sorted(view.containers.items()):
        jobs = [row.job for row in rows]
        for job in sorted({job for job in jobs if jobs.count(job) > 1} if container in LISTS else ()):
            message = f"the list holds the job {jobs.count(job)} times"
            yield Found(where=f"membership.{container}.order", key=f"{queue}:{job}", message=message)


def _paused_list(view: View) -> Iterator[Found]:
    """Jobs wait in `paused` while the queue is paused (`meta.paused` exists), and in `wait` otherwise."""
    for queue in view.snapshot.queues:
        paused = "paused" in view.snapshot.meta(queue)
        wrong = "wait" if paused else "paused"
        if view.members(queue, wrong):
            state = "paused" if paused else "not paused"
            message = f"the queue is {state} but jobs stand in `{wrong}`"
            yield Found(where=f"membership.{wrong}", key=f"{queue}:{wrong}", message=message)


def _finished(view: View) -> Iterator[Found]:
    """`finishedOn` is there exactly when the job is in `completed` or `failed`, with the result of that state."""
    results = {"completed": "returnvalue", "failed": "failedReason"}
    for (queue, job_id), job in sorted(view.jobs.items()):
        state, key = view.state_of(job), f"{queue}:{job_id}"
        if state is None:
            continue
        if (state in results) != ("finishedOn" in job.fields):
            problem = "has no finishedOn" if state in results else "has finishedOn"
            yield Found(where="job.finishedOn", key=key, message=f"the job is in `{state}` and {problem}")
        result = results.get(state)
        if result is not None and result not in job.fields:
            yield Found(where=f"job.{result}", key=key, message=f"the job is in `{state}` and has no {result}")


CHECKS: tuple[Check[View], ...] = (
    Check(name="one-state", severity="breaks-others", source="every script that moves a job", predicate=_one_state),
    Check(name="no-ghosts", severity="breaks-others", source="includes/removeJobKeys.lua", predicate=_no_ghosts),
    Check(name="no-duplicates", severity="breaks-others", source="moveToActive-11.lua", predicate=_no_duplicates),
    Check(name="paused-list", severity="breaks-others", source="pause-7.lua", predicate=_paused_list),
    Check(name="finished-fields", severity="breaks-others", source="moveToFinished-14.lua", predicate=_finished),
)
