"""What the event stream holds, field by field."""

from __future__ import annotations

from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import equal, holds
from conformance.participants.participant import Participant
from conformance.proofs.proof import proof


def _entry(oracle: Participant, name: str) -> dict[str, str]:
    """The last entry of this name."""
    return [entry for entry in oracle.redis().events() if entry["event"] == name][-1]


def _shown(entry: dict[str, str]) -> str:
    return ", ".join(f"{field}={value}" for field, value in entry.items())


@proof("event.delayed")
def there_is_no_retry(oracle: Participant) -> str:
    """Let a job fail with a back-off of 5 s, and another one without."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("again", {}, jobId="again", attempts=2)
    worker.claim_one()
    worker.fail("again")
    at_once = {"event": "waiting", "jobId": "again", "prev": "active"}
    equal(_entry(oracle, "waiting"), at_once, "a retry at once leaves `waiting`")
    worker.complete(worker.claim_one().id)
    queue.add("shaky", {}, attempts=2, backoff=5000)
    shaky = worker.claim_one().id
    worker.fail(shaky)
    names = queue.redis.event_names()
    holds("retry" not in names, "there is no event retry", seen=names)
    due = str(oracle.clock.now_ms() + 5000)
    equal(_entry(oracle, "delayed"), {"event": "delayed", "jobId": shaky, "delay": due}, "the retry is delayed")
    return f"the retry leaves {_shown(_entry(oracle, 'delayed'))}"


@proof("event.active")
def the_pickup_tells(oracle: Participant) -> str:
    """Claim a prioritized job by a worker with a name."""
    oracle.queue().add("work", {}, priority=1)
    oracle.worker(name="worker-7").claim_one()
    entry = _entry(oracle, "active")
    equal(entry, {"event": "active", "jobId": "1", "prev": "waiting"}, "the worker is not named")
    return f"the pickup leaves {_shown(entry)}"


@proof("event.completed")
def a_completion_tells(oracle: Participant) -> str:
    """Complete a job."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one()
    worker.complete("1", 7)
    entry = _entry(oracle, "completed")
    equal(entry, {"event": "completed", "jobId": "1", "returnvalue": "7", "prev": "active"}, "four fields")
    return f"the completion leaves {_shown(entry)}"


def _fail_for_good(oracle: Participant) -> None:
    oracle.queue().add("doomed", {}, attempts=1)
    worker = oracle.worker()
    worker.claim_one()
    worker.fail("1", "boom")


@proof("event.failed")
def a_failure_tells_no_stack(oracle: Participant) -> str:
    """Let a job fail for good."""
    _fail_for_good(oracle)
    entry = _entry(oracle, "failed")
    equal(entry, {"event": "failed", "jobId": "1", "failedReason": "boom", "prev": "active"}, "no stack trace")
    return f"the failure leaves {_shown(entry)}"


@proof("event.retries-exhausted")
def the_end_of_all_attempts(oracle: Participant) -> str:
    """Let a job fail for good, and look at the entry after `failed`."""
    _fail_for_good(oracle)
    names = oracle.redis().event_names()
    equal(names[names.index("failed") + 1], "retries-exhausted", "it follows the failure")
    told = {"event": "retries-exhausted", "jobId": "1", "attemptsMade": "1"}
    equal(_entry(oracle, "retries-exhausted"), told, "it tells the number of attempts")
    return f"after `failed` comes {_shown(_entry(oracle, 'retries-exhausted'))}"


@proof("event.progress")
def progress_is_called_data(oracle: Participant) -> str:
    """Report progress."""
    queue = oracle.queue()
    queue.add("work")
    queue.progress("1", {"percent": 5})
    entry = _entry(oracle, "progress")
    equal(entry, {"event": "progress", "jobId": "1", "data": '{"percent":5}'}, "the field is `data`")
    return f"the stream holds {_shown(entry)}"


@proof("event.no-common-fields")
def no_time_and_no_attempts(oracle: Participant) -> str:
    """Take jobs through their lives, clean, drain and pause the queue, and look at all fields."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one()
    worker.complete("1", fetch_next=True)
    queue.call(queue_ops.Clean(grace_ms=0, limit=10))
    queue.pause()
    fields = {field for entry in queue.redis.events() for field in entry}
    equal(fields & {"timestamp", "attemptsMade", "data"}, set(), "no common fields")
    about_the_queue = [name for name in ("paused", "drained", "cleaned") if "jobId" not in _entry(oracle, name)]
    equal(about_the_queue, ["paused", "drained", "cleaned"], "an entry about the queue names no job")
    shown = ", ".join(sorted(fields))
    return f"all entries together have the fields {shown}; `paused`, `drained` and `cleaned` name no job"
