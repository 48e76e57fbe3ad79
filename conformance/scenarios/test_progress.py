"""Progress, logs and data: what can be changed on a job while it lives."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.driver.ops import job as job_ops
from conformance.participants.expect import equal, holds
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant


@pytest.mark.parametrize("value", [50, 0, 12.5, "halfway", {"percent": 50, "what": "é"}, [1, 2], True], ids=repr)
@scenario("progress.stored", "job.hash.progress", "event.progress")
def test_progress_is_json(client: Participant, value: Any) -> None:
    """Numbers, texts and objects are all progress."""
    queue, worker = client.queue(), client.worker()
    queue.add("work")
    worker.claim_one()
    queue.progress("1", value)
    equal(queue.redis.json("1", "progress"), value, "the progress is stored as JSON text")


@scenario("progress.missing-job")
def test_progress_needs_a_job(client: Participant) -> None:
    """No hash comes into being by progress."""
    queue = client.queue()
    queue.add("real")
    _refuse_on_missing(client, lambda: queue.progress("1", 50))
    equal(queue.redis.value("1"), None, "no hash was created")


def _refuse_on_missing(client: Participant, action: Any) -> None:
    """Remove job 1 between the moment that the client knows it and the action."""
    redis = client.redis()
    redis.delete("1")
    redis.delete("wait")
    redis.delete("marker")
    with client.refuses("missing-job", "an action on a job that does not exist is refused"):
        action()


@scenario("log.appended", tier="smoke")
def test_log_rows_are_appended(client: Participant) -> None:
    """Rows are in the order in which they were written."""
    queue = client.queue()
    queue.add("work")
    equal([queue.log("1", row) for row in ("one", "two é🎉", "")], [1, 2, 3], "the answer is the number of rows")
    equal(queue.redis.elements("1:logs"), ["one", "two é🎉", ""], "the rows are in a list")


@scenario("log.keep")
def test_keep_logs_keeps_the_newest(client: Participant) -> None:
    """A limit drops the oldest rows."""
    queue = client.queue()
    queue.add("work")
    counts = [queue.log("1", f"row {number}", keep=2) for number in range(4)]
    equal(counts, [1, 2, 2, 2], "the answer is the number of rows kept")
    rows = queue.redis.elements("1:logs")
    holds(all(row[:4] == "row " for row in rows), "rows are stored as they are", seen=rows, where="row.log.appended")
    equal(rows, ["row 2", "row 3"], "the newest rows are kept")


@scenario("log.missing-job")
def test_a_log_needs_a_job(client: Participant) -> None:
    """No list comes into being for a job that does not exist."""
    queue = client.queue()
    queue.add("real")
    _refuse_on_missing(client, lambda: queue.log("1", "a row"))
    equal(queue.redis.value("1:logs"), None, "no list was created")


@pytest.mark.parametrize("asc", [True, False], ids=["oldest-first", "newest-first"])
@scenario("log.read")
def test_logs_are_read_by_range(client: Participant, asc: bool) -> None:
    """Ranges count from the end that was asked for."""
    queue = client.queue()
    queue.add("work")
    for number in range(5):
        queue.log("1", f"row {number}")
    everything = queue.logs("1", asc=asc)
    equal(everything.count, 5, "the total is returned")
    rows = [f"row {number}" for number in range(5)]
    equal(everything.logs, rows if asc else rows[::-1], "all rows come in order")
    queue.logs("1", start=1, end=2, asc=asc)


@pytest.mark.parametrize("keep", [None, 2])
@scenario("log.cleared")
def test_clearing_the_log(client: Participant, keep: int | None) -> None:
    """All rows go, or all but the newest."""
    queue = client.queue()
    queue.add("work")
    for number in range(4):
        queue.log("1", f"row {number}")
    queue.call(job_ops.ClearLogs(job="1", keep_logs=keep))
    equal(queue.redis.elements("1:logs"), ["row 2", "row 3"] if keep else [], "the rows that had to go are gone")


@scenario("data.updated")
def test_updating_the_data(client: Participant) -> None:
    """The new data replaces the old, silently."""
    queue = client.queue()
    queue.add("work", {"old": 1})
    before = queue.redis.event_names()
    queue.update_data("1", {"new": [1, None, "é"]})
    equal(queue.redis.json("1", "data"), {"new": [1, None, "é"]}, "the field `data` is replaced", where="job.data")
    equal(queue.redis.event_names(), before, "there is no event about it")


@scenario("data.missing-job")
def test_updating_needs_a_job(client: Participant) -> None:
    """No hash comes into being by new data."""
    queue = client.queue()
    queue.add("real")
    _refuse_on_missing(client, lambda: queue.update_data("1", {"new": 1}))
    equal(queue.redis.value("1"), None, "no hash was created")
