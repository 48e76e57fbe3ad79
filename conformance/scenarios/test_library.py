"""The view of a library's own user: refusals, metrics and logs, and pauses before another attempt.

The rules are those of the written specification. Node.js has none of them, so the scenarios run on the client alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from operator import eq
from typing import Any, TypeVar

import pytest

from conformance.driver.errors import OperationUnsupported
from conformance.driver.ops.library import LogLine
from conformance.participants.expect import between, equal, holds, one_of
from conformance.participants.handles import ParticipantHandle, QueueHandle, WorkerHandle
from conformance.participants.marks import shared
from conformance.participants.participant import Participant
from conformance.scenarios.support.metrics_text import total

Seen = TypeVar("Seen")

MEGABYTE = 1024 * 1024
HOUR_MS = 3_600_000

REFUSED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "priority": ("priority", {"priority": -1}),
    "delay": ("delay", {"delay": -1}),
    "no-attempt": ("attempts", {"attempts": 0}),
    "attempts": ("attempts", {"attempts": -1}),
    "no-backoff": ("delay", {"attempts": 3, "backoff": {"type": "fixed", "delay": 0}}),
    "backoff": ("delay", {"attempts": 3, "backoff": {"type": "exponential", "delay": -1}}),
    "keep-completed": ("removeOnComplete", {"removeOnComplete": -1}),
    "keep-completed-count": ("removeOnComplete", {"removeOnComplete": {"count": -1}}),
    "keep-completed-age": ("removeOnComplete", {"removeOnComplete": {"age": -1}}),
    "keep-failed": ("removeOnFail", {"removeOnFail": -1}),
    "keep-failed-count": ("removeOnFail", {"removeOnFail": {"count": -1}}),
    "keep-failed-age": ("removeOnFail", {"removeOnFail": {"age": -1}}),
}
"""Option that the message must name, and the options of a job that a library refuses."""
UNKNOWN_BACKOFF = {"attempts": 3, "backoff": {"type": "linear", "delay": 1000}}


def _refused(queue: QueueHandle, **job: Any) -> str:
    """Return the message of a refusal. Raises Mismatch if the job was added."""
    message = queue.refuses(**job)
    holds(message, "the job is refused", seen=message)
    equal(queue.redis.value("id"), None, "nothing is written")
    return message


@pytest.mark.parametrize("case", REFUSED)
@shared("library.validation.negative-numbers")
def test_senseless_numbers_are_refused(client: Participant, case: str) -> None:
    """A job with a negative number, or with 0 attempts or a back-off of 0 ms, is refused before anything is written."""
    _refused(client.queue(library=True), **REFUSED[case][1])


@shared("library.validation.backoff-type")
def test_an_unknown_backoff_is_refused(client: Participant) -> None:
    """A back-off that is neither fixed nor exponential is refused when the job is added."""
    _refused(client.queue(library=True), **UNKNOWN_BACKOFF)


@pytest.mark.parametrize("case", REFUSED)
@shared("library.validation.messages")
def test_a_refusal_names_field_and_rule(client: Participant, case: str) -> None:
    """The message has the name of the option, and the least value that is allowed."""
    option, job = REFUSED[case]
    message = _refused(client.queue(library=True), **job)
    holds(option.lower() in message.lower(), f"the message names {option}", seen=message)
    holds(re.search(r"\b[01]\b|negative|positive", message), "the message names the rule", seen=message)


@shared("library.validation.messages")
def test_a_refused_type_is_told_the_allowed_ones(client: Participant) -> None:
    """The message names the field and both types of back-off."""
    message = _refused(client.queue(library=True), **UNKNOWN_BACKOFF).lower()
    missing = [word for word in ("backoff", "fixed", "exponential") if word not in message]
    equal(missing, [], "words that the message lacks")


@shared("library.validation.keep-many")
def test_keeping_very_many_jobs_is_warned_about(client: Participant) -> None:
    """A job that keeps more than 10000 finished jobs is added, and a warning names the option."""
    queue = client.queue(library=True)
    equal(queue.refuses(removeOnComplete=10_000), "", "10000 are accepted")
    equal(_warnings(queue), [], "without a warning")
    equal(queue.refuses(removeOnComplete=10_001), "", "more are accepted")
    _look(client, lambda: _warnings(queue), lambda lines: len(lines) == 1, "one warning names removeOnComplete")


def _warnings(queue: QueueHandle) -> list[str]:
    lines = (f"{line.message} {line.values}" for line in queue.log_lines() if line.level == "WARN")
    return [line for line in lines if "removeOnComplete" in line]


@shared("library.validation.payload")
def test_a_payload_above_10_mb_is_refused(client: Participant) -> None:
    """Data and options above 10 MB are refused, with a message that names size and limit; below, they are accepted."""
    queue = client.queue(library=True)
    message = _refused(queue, raw=_text_of(12.3 * MEGABYTE))
    # 12.3 MB of 1024 * 1024 bytes, or 12.9 of a million.
    holds(re.search(r"12\.[39]", message), "the message names the size", seen=message)
    holds(re.search(r"\b10\b|10485760|10000000", message), "the message names the limit", seen=message)
    _refused(queue, raw=_text_of(9 * MEGABYTE), note="x" * (2 * MEGABYTE))
    equal(queue.refuses(raw=_text_of(9 * MEGABYTE)), "", "9 MB are accepted")


def _text_of(size: float) -> str:
    """A JSON text of this many bytes."""
    return f'"{"x" * (round(size) - 2)}"'


LOOKS = 200
"""About 5 s. Each look is an answer of the client's process: what is still missing then did not lack time."""


def _look(client: Participant, probe: Callable[[], Seen], until: Callable[[Seen], object], what: str) -> Seen:
    """Look until it holds, and return what was seen. Raises Mismatch after `LOOKS` looks."""
    looks = count(1)
    seen = client.eventually(probe, lambda seen: until(seen) or next(looks) > LOOKS, what, within_ms=60_000)
    holds(until(seen), what, seen=seen)
    return seen


# Metrics.


def _shows(client: Participant, handle: ParticipantHandle, metric: str, value: float, *labels: str, **at: str) -> None:
    """Wait until a metric has this value."""
    _look(
        client,
        lambda: total(handle.metrics(), metric, *labels, **at),
        lambda seen: seen == value,
        f"{metric} {at or ''} with the labels {', '.join((*labels, *at)) or 'none'} is {value:g}",
    )


def _reaches(client: Participant, handle: ParticipantHandle, metric: str, *labels: str, least: float = 1) -> None:
    _look(
        client,
        lambda: total(handle.metrics(), metric, *labels),
        lambda seen: seen is not None and seen >= least,
        f"{metric} with the labels {', '.join(labels) or 'none'} is at least {least:g}",
    )


def _work(client: Participant) -> WorkerHandle:
    """Two jobs complete, and one fails at its second attempt."""
    queue = client.queue()
    worker = client.worker("ask", library=True)
    for number in (1, 2):
        queue.add(f"job {number}")
        worker.resolve(worker.next_job().job.id, "complete", value_raw=str(number))
    queue.add("doomed", {}, attempts=2)
    for _ in range(2):
        worker.resolve(worker.next_job().job.id, "fail", message="no luck")
    client.eventually(lambda: queue.redis.members("failed"), lambda ids: len(ids) == 1, "the third job has failed")
    return worker


@shared("library.metrics.jobs")
def test_metrics_count_jobs(client: Participant) -> None:
    """Jobs are counted by outcome and reason, with their durations and the lengths of the queue's states."""
    worker = _work(client)
    for status, number in (("completed", 2), ("failed", 1), ("retried", 1)):
        _shows(client, worker, "bullmq_jobs_processed_total", number, "queue", status=status)
    _shows(client, worker, "bullmq_jobs_failed_total", 1, "queue", reason="transient_exhausted")
    _shows(client, worker, "bullmq_job_duration_seconds_count", 4, "queue")
    for state, number in (("wait", 0), ("active", 0), ("completed", 2), ("failed", 1)):
        _shows(client, worker, "bullmq_queue_length", number, "queue", state=state)


def _lose_a_lock(client: Participant) -> WorkerHandle:
    """A job whose lock is renewed loses it, and the stalled check of its own worker puts it back."""
    queue = client.queue()
    # Two at a time: the worker runs the job again while its first run goes on.
    often: dict[str, Any] = {"lockDuration": 2000, "lockRenewTime": 200, "stalledInterval": 300, "concurrency": 2}
    worker = client.worker("ask", library=True, **often)
    queue.add("long")
    job = worker.next_job().job.id
    _reaches(client, worker, "bullmq_heartbeat_success_total", "queue")
    queue.redis.delete(f"{job}:lock")
    worker.next_job(within_ms=15_000)
    for _ in ("the first run", "the second run"):
        worker.resolve(job, "complete")
    client.eventually(
        lambda: queue.redis.state(job), lambda at: at == ["completed"], "the second run completes the job"
    )
    return worker


@shared("library.metrics.jobs")
def test_metrics_count_stalled_jobs(client: Participant) -> None:
    """A job that a stalled check has put back is counted."""
    _reaches(client, _lose_a_lock(client), "bullmq_stalled_jobs_total", "queue")


@shared("library.metrics.workers")
def test_metrics_count_workers_and_renewals(client: Participant) -> None:
    """Renewals that worked and failed are counted, with their duration, and every open worker."""
    worker = _lose_a_lock(client)
    _reaches(client, worker, "bullmq_heartbeat_failure_total", "queue")
    _reaches(client, worker, "bullmq_lock_extend_duration_seconds_count", "queue")
    _shows(client, worker, "bullmq_active_workers", 1, "queue", "worker_id")


@shared("library.metrics.connection")
def test_metrics_show_the_connection(client: Participant) -> None:
    """The state of the connection is shown, and attempts to reconnect are counted."""
    worker = client.worker("noop", library=True)
    _connected(client, worker, connected=True)
    _not_on_a_cluster(client)
    with client.tap.outage():
        _connected(client, worker, connected=False)
        _reaches(client, worker, "bullmq_redis_reconnect_attempts_total")
    _connected(client, worker, connected=True)


def _not_on_a_cluster(client: Participant) -> None:
    """Raise OperationUnsupported on a cluster: a client tries several nodes there, as its Redis library does."""
    if client.on_cluster:
        raise OperationUnsupported("open", "attempts to reconnect to a cluster cannot be counted")


def _connected(client: Participant, worker: WorkerHandle, *, connected: bool) -> None:
    def statuses() -> tuple[float | None, ...]:
        text = worker.metrics()
        both = ("connected", "disconnected")
        return tuple(total(text, "bullmq_redis_connection_status", status=status) for status in both)

    wanted = (float(connected), float(not connected))
    _look(client, statuses, lambda seen: seen == wanted, f"the statuses connected and disconnected are {wanted}")


# Logs.


def _logged(client: Participant, handle: ParticipantHandle, level: str, message: str, *fields: str) -> LogLine:
    """Wait for a line, and return it. Raises Mismatch if its level or its fields are others."""
    lines = _look(client, lambda: handle.log_lines(message), bool, f"the log has {message!r}")
    equal(lines[0].level, level, f"the level of {message!r}")
    equal([name for name in fields if name not in lines[0].values], [], f"fields that {message!r} lacks")
    return lines[0]


@shared("library.log.events")
def test_the_life_of_a_job_is_logged(client: Participant) -> None:
    """Lines show jobs that are picked up, completed, retried and failed, with ids, times and the kind of error."""
    worker = _work(client)
    picked_up = _logged(client, worker, "INFO", "Job picked up", "jobId", "queue")
    equal(str(picked_up.values["jobId"]), "1", "the first job")
    _logged(client, worker, "INFO", "Job completed", "jobId", "duration", "result")
    _logged(client, worker, "WARN", "Job retried", "jobId", "attemptsMade", "delay")
    failed = _logged(client, worker, "ERROR", "Job failed", "jobId", "error", "category", "attemptsMade")
    holds("no luck" in str(failed.values["error"]), "the error is that of the processor", seen=failed.values["error"])
    one_of(failed.values["category"], ["transient", "permanent"], "the kind of the error")


@shared("library.log.events")
def test_a_stalled_job_is_logged(client: Participant) -> None:
    """A warning names the job that stalled."""
    _logged(client, _lose_a_lock(client), "WARN", "Job stalled", "jobId")


@shared("library.log.interface")
def test_lines_have_levels_and_values(client: Participant) -> None:
    """Renewals are for debugging, jobs are information, troubles are warnings; every line has named values."""
    worker = _lose_a_lock(client)
    lines = _look(client, worker.log_lines, lambda seen: len(seen) > 1, "the worker logs lines")
    equal({line.level for line in lines} & {"DEBUG", "INFO", "WARN"}, {"DEBUG", "INFO", "WARN"}, "levels of the lines")
    equal([line.message for line in lines if not line.values], [], "lines without a value")


@shared("library.log.connection")
def test_a_failed_renewal_is_logged(client: Participant) -> None:
    """A warning names the job whose lock could not be renewed, and the error."""
    _logged(client, _lose_a_lock(client), "WARN", "Heartbeat failed", "jobId", "error")


@shared("library.log.connection")
def test_a_lost_connection_is_logged(client: Participant) -> None:
    """The log shows that Redis is gone, and when it is back: after how many attempts and how long."""
    worker = client.worker("noop", library=True)
    with client.tap.outage():
        _logged(client, worker, "ERROR", "Redis disconnected", "error")
    back = _logged(client, worker, "INFO", "Redis reconnected", "attempt", "duration")
    holds(int(back.values["attempt"]) >= 1, "the number of attempts", seen=back.values["attempt"])


@shared("library.worker-id")
def test_every_line_names_the_worker(client: Participant) -> None:
    """Lines have a worker id of host, process and six hex digits, another one for each worker, or a given one."""
    client.queue().add("first")
    ids: list[str] = []
    for options in ({}, {}, {"workerId": "mail-7"}):
        worker = client.worker("noop", library=True, **options)
        client.queue().add("more")
        _look(client, worker.log_lines, bool, "the worker logs a line")
        named = {str(line.values.get("worker_id", line.values.get("workerId"))) for line in worker.log_lines()}
        equal(len(named), 1, "worker ids in the lines of one worker")
        ids += named
        worker.close()
    for chosen in ids[:2]:
        holds(re.fullmatch(r".+-\d+-[0-9a-f]{6}", chosen), "host, process and six hex digits", seen=chosen)
    holds(ids[0] != ids[1], "two workers have two ids", seen=ids)
    equal(ids[2], "mail-7", "the id that the user gave")


# Pauses.


@shared("library.backoff-cap")
def test_the_delay_of_a_retry_has_a_maximum(client: Participant) -> None:
    """A retry waits for at most an hour, or what its job allows; below that, exponential delays are spread by 20 %."""
    queue = client.queue(library=True)
    worker = client.worker("ask", library=True)
    delays = []
    for backoff in ({"delay": 5_000_000}, {"delay": 5_000_000, "maxDelay": 60_000}, *[{"delay": 100_000}] * 6):
        queue.add("doomed", {}, attempts=2, backoff={"type": "exponential", **backoff})
        job = worker.next_job().job.id
        worker.resolve(job, "fail")
        client.eventually(partial(queue.redis.state, job), partial(eq, ["delayed"]), "the job is delayed")
        delays.append(int(str(queue.redis.field(job, "delay"))))
    # The worker logs a retry after Redis has delayed the job.
    _look(client, lambda: len(worker.log_lines("Job retried")), partial(eq, len(delays)), "each retry is logged")
    equal(delays[0], HOUR_MS, "the longest delay (ms)")
    equal(delays[1], 60_000, "the longest delay that the job allows (ms)")
    for delay in delays[2:]:
        between(delay, 80_000, 120_000, "a delay of 100 s, spread by 20 percent (ms)")
    holds(len(set(delays[2:])) > 1, "the delays are spread", seen=delays[2:])


@shared("library.reconnect.schedule")
def test_pauses_before_reconnecting_are_doubled(client: Participant) -> None:
    """The first attempt comes after about 100 ms, and each pause is twice as long as the last one."""
    _not_on_a_cluster(client)
    reader = client.events(library=True)
    with client.tap.outage():
        before = client.tap.opened
        # 100, 200, 400, 800 and 1600 ms, each spread by 20 percent: the fifth comes after 2.5 to 3.7 s.
        client.eventually(lambda: client.tap.opened - before, lambda seen: seen >= 1, "an attempt", within_ms=3000)
        client.pass_time(2300)
        attempts = client.tap.opened - before
    _logged(client, reader, "INFO", "Redis reconnected", "attempt")
    between(attempts, 3, 6, "attempts within 2.4 s")


@shared("library.stalled.no-overlap")
def test_a_stalled_check_waits_for_the_last_one(client: Participant) -> None:
    """While a check runs, the next one is left out and counted."""
    with client.tap.hold("moveStalledJobsToWait", phase="after-execute") as check:
        worker = client.worker("noop", library=True, stalledInterval=300)
        check.wait(within_ms=10_000)
        _reaches(client, worker, "bullmq_stalled_checker_skipped_total", "queue")
        equal(len(client.tap.calls("moveStalledJobsToWait")), 1, "checks until the first one has ended")
        check.release()
