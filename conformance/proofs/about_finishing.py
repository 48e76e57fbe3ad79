"""Completing, failing, retrying, keeping and removing."""

from __future__ import annotations

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import queue as queue_ops
from conformance.participants.expect import Mismatch, between, equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.proofs.proof import proof


def _finish_all(worker: WorkerHandle, count: int) -> None:
    for _ in range(count):
        worker.caller.clock.pass_ms(5)
        worker.complete(worker.claim_one().id)


@proof("job.hash.finished-on")
def no_finish_before_the_finish(oracle: Participant) -> str:
    """Look at `finishedOn` while a job is active and when it is completed."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one()
    before = queue.redis.field("1", "finishedOn")
    worker.complete("1")
    after = queue.redis.field("1", "finishedOn")
    equal((before, after), (None, str(oracle.clock.now_ms())), "the field appears with the finish")
    return f"before the finish there is no such field, afterwards it holds {after}"


@proof("job.hash.attempts-made")
def a_success_counts(oracle: Participant) -> str:
    """Complete a job without attempts."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one()
    worker.complete("1")
    fields = queue.redis.hash("1")
    equal((fields["atm"], fields["ats"], "attemptsMade" in fields), ("1", "1", False), "a success counts in `atm`")
    return "after one success `atm` is 1 although the job has 0 attempts, and `attemptsMade` does not exist"


@proof("lifecycle.complete.fetches-next")
def one_token_for_two_jobs(oracle: Participant) -> str:
    """Finish a job and fetch the next in one step."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("first")
    queue.add("second")
    worker.claim_one("token-a")
    worker.complete("1", None, "token-a", fetch_next=True)
    equal(queue.redis.string("2:lock"), "token-a", "the second job has the first one's token")
    return "the second job is locked with token-a, the token of the first"


@proof("lifecycle.complete.missing")
def a_missing_job(oracle: Participant) -> str:
    """Complete a job whose hash was deleted."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("vanishing")
    worker.claim_one()
    queue.redis.delete("1")
    message = _completion_refusal(worker, "missing-job")
    equal(_replies(oracle), [":-1"], "the script answers -1")
    return f"the script answered -1, of which the library made: {message}"


@proof("LUA-2.3")
def refusals_have_numbers(oracle: Participant) -> str:
    """Complete a job under a foreign lock, and without lock."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("work")
    worker.claim_one()
    queue.redis.set_string("1:lock", "token-other", ttl_ms=60_000)
    foreign = _completion_refusal(worker, "lock-mismatch")
    queue.redis.delete("1:lock")
    missing = _completion_refusal(worker, "missing-lock")
    equal(_replies(oracle), [":-6", ":-2"], "the script answers numbers")
    return f"-6 becomes `{foreign}`, and -2 becomes `{missing}`"


def _replies(oracle: Participant) -> list[str]:
    """What Redis answered to each completion, as it crossed the wire."""
    replies = [call.reply for call in oracle.tap.calls("moveToFinished")]
    return [reply.head.decode().strip() for reply in replies if reply is not None and reply.error is None]


def _completion_refusal(worker: WorkerHandle, code: str) -> str:
    """The library's message when it refuses to complete job 1 with this code."""
    try:
        worker.complete("1")
    except OperationFailed as failure:
        equal(failure.error.code, code, "the refusal has this code")
        return failure.error.message
    raise Mismatch("the completion is refused", expected=code, actual="accepted")


@proof("lifecycle.remove-on-complete.all")
def never_completed(oracle: Participant) -> str:
    """Complete a job that is not to be kept."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("brief", {}, removeOnComplete=True)
    worker.claim_one()
    queue.log("1", "a row")
    worker.complete("1")
    left = [name for name in ("completed", "1", "1:logs") if queue.redis.exists(name)]
    equal(left, [], "nothing is kept")
    holds("completed" in queue.redis.event_names(), "the event is left", seen=queue.redis.event_names())
    return "neither the set `completed` nor hash and log exist, and the event `completed` is in the stream"


@proof("lifecycle.remove-on-complete.count")
def zero_removes_and_one_keeps_one(oracle: Participant) -> str:
    """Complete two jobs each with a count of 0, 1 and -1."""
    kept = {}
    for count in (0, 1, -1):
        queue, worker = oracle.queue(f"keep{count}"), oracle.worker(queue=f"keep{count}")
        for _ in range(2):
            queue.add("work", {}, removeOnComplete=count)
        _finish_all(worker, 2)
        kept[count] = queue.redis.members("completed")
    equal(kept, {0: [], 1: ["2"], -1: ["1", "2"]}, "0 removes, 1 keeps the newest, -1 keeps all")
    return "0 keeps none of two, 1 keeps the newest one, -1 keeps both"


@proof("lifecycle.remove-on-complete.age")
def ages_and_the_workers_setting(oracle: Participant) -> str:
    """Complete an old job and a new one that allows an age of one second, and one under a worker's own setting."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("old")
    _finish_all(worker, 1)
    oracle.pass_time(1500)
    queue.add("new", {}, removeOnComplete={"age": 1, "count": 100})
    _finish_all(worker, 1)
    equal(queue.redis.members("completed"), ["2"], "the old job is gone, and the one without option was kept")
    queue.add("plain")
    _finish_all(oracle.worker(removeOnComplete={"count": 0}), 1)
    equal(queue.redis.value("3"), None, "without the option the worker's own setting applies")
    return "the job that is older than a second is gone; a job without option is kept or not as its worker says"


@proof("retry.succeeds-later")
def result_and_reason(oracle: Participant) -> str:
    """Let a job fail first and succeed later."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("shaky", {}, attempts=2)
    worker.claim_one()
    worker.fail("1", "first try")
    worker.claim_one()
    worker.complete("1", "ok")
    fields = queue.redis.hash("1")
    equal((fields["returnvalue"], fields["failedReason"]), ('"ok"', "first try"), "both are there")
    return 'the hash has the result "ok" and the reason `first try`'


@proof("getters.drain")
def what_a_drain_leaves(oracle: Participant) -> str:
    """Drain a queue with a completed, an active, a waiting and a delayed job."""
    queue, worker = oracle.queue(), oracle.worker()
    for name in ("completed", "active", "waiting"):
        queue.add(name)
    queue.add("delayed", {}, delay=60_000)
    _finish_all(worker, 1)
    worker.claim_one("token-2")
    queue.call(queue_ops.Drain(delayed=False))
    left = [queue.redis.state(job) for job in ("1", "2", "3", "4")]
    equal(left, [["completed"], ["active"], [], ["delayed"]], "only the waiting job is gone")
    queue.call(queue_ops.Drain(delayed=True))
    left = [queue.redis.state(job) for job in ("1", "2", "4")]
    equal(left, [["completed"], ["active"], []], "the delayed one is gone when that is asked for")
    return "the waiting job is gone, and the delayed one when asked to; the completed and the active one are left"


@proof("progress.stored")
def any_progress(oracle: Participant) -> str:
    """Report 101, -3, a text and an object as progress."""
    queue = oracle.queue()
    queue.add("work")
    stored = []
    for value in (101, -3, "halfway", {"percent": 5}):
        queue.progress("1", value)
        stored.append(queue.redis.field("1", "progress"))
    equal(stored, ["101", "-3", '"halfway"', '{"percent":5}'], "each is stored as JSON")
    return f"all are stored: {', '.join(map(str, stored))}"


@proof("log.appended")
def a_log_answers_its_length(oracle: Participant) -> str:
    """Add three log rows."""
    queue = oracle.queue()
    queue.add("work")
    answers = [queue.log("1", f"row {number}") for number in range(3)]
    equal(answers, [1, 2, 3], "the answer is the number of rows")
    return f"the answers are {', '.join(map(str, answers))}"


@proof("log.keep")
def logs_grow(oracle: Participant) -> str:
    """Add 1100 log rows without a limit, and one with."""
    queue = oracle.queue()
    queue.add("work")
    for number in range(1100):
        queue.log("1", f"row {number}")
    grown = len(queue.redis.elements("1:logs"))
    kept = queue.log("1", "the last", keep=3)
    equal((grown, kept), (1100, 3), "only a limit that is given trims")
    return f"all {grown} rows were there, until one came with keepLogs 3 and left {kept}"


HOUR_MS = 3_600_000


def _fail_once(queue: QueueHandle, worker: WorkerHandle) -> int:
    """Let job 1 fail, promote it, and answer the delay of the retry in ms."""
    worker.claim_one()
    worker.fail("1")
    delay = int(queue.redis.field("1", "delay") or 0)
    queue.promote("1")
    return delay


@proof("retry.immediately")
def never_failed_in_between(oracle: Participant) -> str:
    """Let a job without back-off fail with an attempt left."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("shaky", {}, attempts=2)
    worker.claim_one()
    worker.fail("1")
    equal(queue.redis.state("1"), ["wait"], "it waits again at once")
    names = queue.redis.event_names()
    holds("failed" not in names, "it was never in `failed`", seen=names)
    return f"the job waits again at once; the stream holds {', '.join(names)}"


@proof("retry.exhausted")
def zero_and_one_are_one(oracle: Participant) -> str:
    """Let jobs of 0, 1 and 2 attempts fail once."""
    queue, worker = oracle.queue(), oracle.worker()
    for attempts in (0, 1, 2):
        queue.add("doomed", {}, attempts=attempts)
    for _ in range(3):
        worker.fail(worker.claim_one().id)
    states = [queue.redis.state(job) for job in ("1", "2", "3")]
    equal(states, [["failed"], ["failed"], ["wait"]], "0 and 1 both mean one attempt")
    return "after one failure the jobs with 0 and 1 attempts are failed, the one with 2 waits"


@proof("retry.backoff.exponential")
def no_cap(oracle: Participant) -> str:
    """Let a job with an exponential back-off of 1 s fail fifteen times."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("doomed", {}, attempts=16, backoff={"type": "exponential", "delay": 1000})
    delays = [_fail_once(queue, worker) for _ in range(15)]
    equal(delays, [1000 * 2**number for number in range(15)], "each delay is twice the one before")
    return f"the 15th retry waits {delays[-1]} ms, which is {delays[-1] / HOUR_MS:.2f} hours"


@proof("retry.backoff.cap-arithmetic")
def the_first_delay_above_an_hour(oracle: Participant) -> str:
    """Count the retries from 1 s until one waits more than an hour."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("doomed", {}, attempts=16, backoff={"type": "exponential", "delay": 1000})
    delays = [_fail_once(queue, worker) for _ in range(14)]
    first = next(number for number, delay in enumerate(delays, 1) if delay > HOUR_MS)
    equal((first, delays[9:12]), (13, [512_000, 1_024_000, 2_048_000]), "the 13th is the first above an hour")
    return "retries 10, 11 and 12 wait 512, 1024 and 2048 s; the 13th is the first above an hour"


@proof("retry.backoff.jitter")
def jitter_is_asked_for_and_shortens(oracle: Participant) -> str:
    """Read the delays of ten retries without jitter and of ten with 0.2."""
    exact, spread = _delays(oracle, "exact", {}), _delays(oracle, "spread", {"jitter": 0.2})
    equal(set(exact), {10_000}, "without jitter the delay is exact")
    for delay in spread:
        between(delay, 8000, 10_000, "a jitter only shortens")
    return f"without jitter all wait 10000 ms, with 0.2 between {min(spread)} and {max(spread)} ms"


def _delays(oracle: Participant, name: str, jitter: dict[str, float]) -> list[int]:
    queue, worker = oracle.queue(name), oracle.worker(queue=name)
    for number in range(1, 11):
        queue.add("shaky", {}, attempts=2, backoff={"type": "fixed", "delay": 10_000, **jitter})
        worker.claim_one()
        worker.fail(str(number))
    return [int(queue.redis.field(str(number), "delay") or 0) for number in range(1, 11)]


@proof("script.retry-job")
def a_retry_is_immediate(oracle: Participant) -> str:
    """Let a job without back-off and one with fail."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("immediate", {}, attempts=2)
    worker.claim_one()
    worker.fail("1")
    queue.add("delayed", {}, attempts=2, backoff={"type": "exponential", "delay": 1000})
    worker.complete(worker.claim_one("token-a").id, None, "token-a")
    worker.fail(worker.claim_one().id)
    names = queue.redis.event_names()
    equal(queue.redis.state("2"), ["delayed"], "a back-off delays")
    equal((names.count("delayed"), names.count("waiting")), (1, 3), "a retry waits at once unless it is delayed")
    return "the retry without back-off left `waiting` at once; only the one with back-off left `delayed`"
