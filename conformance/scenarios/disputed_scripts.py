"""Disputed rows about the official scripts and their packages, on the oracle alone: keys, arguments and answers."""

from __future__ import annotations

import json
import re
import subprocess
import time
from binascii import crc_hqx
from functools import cache
from pathlib import Path
from typing import Final

import msgpack

from conformance.driver.ops import queue as queue_ops
from conformance.environment.clients import Toolchain, find_toolchain
from conformance.observe.tap.recording import CommandRecord
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.scenarios.support.steps import check_stalled_again

SLOTS = 16384


def _calls(client: Participant, script: str, keys: int) -> tuple[CommandRecord, ...]:
    """The calls of a script that Redis executed. Raises Mismatch unless each has this number of keys."""
    calls = tuple(call for call in client.tap.calls(script) if call.reply is not None and call.reply.error is None)
    equal({len(call.keys) for call in calls}, {keys}, f"keys of {script}")
    return calls


def _answers(calls: tuple[CommandRecord, ...]) -> list[str]:
    """The replies of Redis, as they crossed the wire."""
    return [call.reply.head.decode(errors="replace").strip() for call in calls if call.reply]


@scenario("script.move-to-active")
def test_what_a_claim_sends(client: Participant) -> None:
    """A claim sends 11 keys, without the lock's, and times in ms; a paused queue answers four zeros."""
    queue, worker = client.queue(), client.worker(lockDuration=45_000)
    queue.add("work")
    worker.claim_one("token-mine")
    queue.pause()
    equal(worker.claim("token-other"), None, "a paused queue hands out no job")
    calls = _calls(client, "moveToActive", keys=11)
    locks = [key for call in calls for key in call.keys if key.endswith(b":lock")]
    equal((locks, queue.redis.string("1:lock")), ([], "token-mine"), "the script builds the lock's key itself")
    equal(msgpack.unpackb(calls[0].argv[-1])["lockDuration"], 45_000, "the lock's life is sent in ms")
    equal(_answers(calls)[-1].split(), ["*4", ":0", ":0", ":0", ":0"], "the answer for a paused queue")


@scenario("script.move-to-finished")
def test_what_a_finish_sends(client: Participant) -> None:
    """One script with 14 keys completes and fails jobs, and fetches the next."""
    queue, worker = client.queue(), client.worker()
    for name in ("completed", "failed", "fetched"):
        queue.add(name)
    worker.complete(worker.claim_one().id)
    worker.fail(worker.claim_one().id, fetch_next=True)
    answers = _answers(_calls(client, "moveToFinished", keys=14))
    states = [queue.redis.state(job) for job in ("1", "2", "3")]
    equal(states, [["completed"], ["failed"], ["active"]], "one script did both, and fetched the third")
    equal(answers[0], ":0", "a finish that fetches nothing answers 0")
    holds("fetched" in answers[1], "a finish that fetches answers with the job", seen=answers[1])


@scenario("script.retry-job")
def test_what_a_retry_sends(client: Participant) -> None:
    """`retryJob` puts a job back at once and knows no delay; a back-off calls `moveToDelayed` instead."""
    queue, worker = client.queue(), client.worker()
    queue.add("at once", {}, attempts=2)
    worker.fail(worker.claim_one().id)
    worker.complete(worker.claim_one().id)
    queue.add("later", {}, attempts=2, backoff=60_000)
    worker.fail(worker.claim_one().id)
    retried, delayed = _calls(client, "retryJob", keys=11), _calls(client, "moveToDelayed", keys=8)
    equal(_answers(retried + delayed), [":0", ":0"], "both answer 0")
    equal(queue.redis.state("2"), ["delayed"], "the other script delays the job")
    names = queue.redis.event_names()
    equal((names.count("delayed"), names.count("waiting")), (1, 3), "the retry without back-off waits at once")
    holds(b"60000" not in b" ".join(retried[0].argv), "a retry has no delay", seen=retried[0].argv)
    holds(any(b"stacktrace" in text for text in retried[0].argv), "the client sends the stack traces", seen=retried)


@scenario("script.move-stalled")
def test_what_a_stalled_check_sends(client: Participant) -> None:
    """A check sends the interval of the checks and not the life of the locks."""
    queue, worker = client.queue(), client.worker(lockDuration=45_000, stalledInterval=7000)
    queue.add("work")
    worker.claim_one()
    worker.check_stalled()
    [call] = _calls(client, "moveStalledJobsToWait", keys=8)
    holds(b"45000" not in call.argv, "the lock's life is not sent", seen=call.argv)
    holds(b"7000" in call.argv, "the interval is sent", seen=call.argv)


@scenario("script.extend-lock")
def test_what_a_renewal_sends(client: Participant) -> None:
    """`extendLock` and `extendLocks` send times in ms; the second names the locks that are lost."""
    queue, worker = client.queue(), client.worker()
    for number in (1, 2):
        queue.add("work")
        worker.claim_one(f"token-{number}")
    worker.extend_lock("1", 45_000)
    queue.redis.delete("2:lock")
    equal(worker.extend_locks(["1", "2"], ["token-1", "token-2"], 45_000), ["2"], "the lost lock is named")
    for script, keys in (("extendLock", 2), ("extendLocks", 1)):
        argv = _calls(client, script, keys)[0].argv
        holds(b"45000" in argv, f"{script} sends ms", seen=argv)


@scenario("script.update-progress")
def test_what_progress_sends(client: Participant) -> None:
    """Progress is JSON text; the script answers 0, or -1 without a job, which the library turns into an error."""
    queue = client.queue()
    queue.add("work")
    queue.progress("1", {"percent": 5})
    queue.add("vanishing")

    def update_vanishing() -> None:
        with client.refuses("missing-job", "the library reports the missing job"):
            queue.progress("2", 6)

    # The library checks that the job exists: it must vanish between that check and the script.
    with client.tap.hold("updateProgress") as held:
        late = client.meanwhile(update_vanishing)
        held.wait()
        queue.redis.delete("2")
    late.result()
    calls = _calls(client, "updateProgress", keys=3)
    equal(calls[0].argv[-1], b'{"percent":5}', "progress is JSON text")
    equal(_answers(calls), [":0", ":-1"], "the answers are 0, and -1 without a job")


@scenario("script.add-log")
def test_what_a_log_row_sends(client: Participant) -> None:
    """The job's key is sent besides the log's, and a row for a missing job is refused with -1."""
    queue = client.queue()
    queue.add("work")
    queue.log("1", "a row")
    with client.refuses("missing-job", "the library reports the missing job"):
        queue.log("missing", "a row")
    calls = _calls(client, "addLog", keys=2)
    equal(calls[0].keys, tuple(queue.redis.key(name).encode() for name in ("1", "1:logs")), "the job is a key, too")
    equal((_answers(calls)[-1], queue.redis.exists("missing:logs")), (":-1", False), "no row is written")


NAMED_BY_THE_PAPER: Final = {
    "moveToActive": 3,
    "moveToCompleted": 3,
    "moveToFailed": 4,
    "retryJob": 2,
    "moveStalledJobsToWait": 1,
    "extendLock": 1,
    "updateProgress": 1,
    "addLog": 1,
}
"""The scripts that the paper names, and how many keys each takes there."""


@scenario("script.names")
def test_names_of_the_scripts(client: Participant) -> None:
    """Node never calls two of the eight scripts of the paper, calls the others with other keys, and calls more."""
    queue, worker = client.queue(), client.worker()
    for _ in range(3):
        queue.add("work", {}, attempts=1)
    queue.add("shaky", {}, attempts=2)
    worker.complete(worker.claim_one().id)
    worker.fail(worker.claim_one().id)
    queue.remove("3")
    worker.claim_one()
    worker.extend_lock("4", 60_000)
    queue.progress("4", 5)
    queue.log("4", "a row")
    worker.fail("4")
    worker.check_stalled()
    queue.pause()
    queue.call(queue_ops.Clean(grace_ms=0, limit=10, type="completed"))
    called = {command.script: len(command.keys) for command in client.tap.commands() if command.script}
    missing = [name for name in NAMED_BY_THE_PAPER if name not in called]
    equal(missing, ["moveToCompleted", "moveToFailed"], "scripts of the paper that Node never calls")
    same = [name for name, keys in NAMED_BY_THE_PAPER.items() if called.get(name) == keys]
    equal(same, [], "scripts that have as many keys as in the paper")
    unlisted = {"addStandardJob", "pause", "cleanJobsInSet", "removeJob"}
    holds(unlisted <= called.keys(), "the list lacks the scripts that add, pause, clean and remove", seen=called)


def slot(key: str) -> int:
    """The cluster slot of a key: CRC16 of the text between the first braces, or of the whole key."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    hashed = tag if brace and closing and tag else key
    return crc_hqx(hashed.encode(), 0) % SLOTS


@scenario("cluster.slot-number")
def test_the_slot_of_a_tag(client: Participant) -> None:  # noqa: ARG001  (arithmetic, without a client)
    """The keys of `bull:{myqueue}` are in slot 9917."""
    equal([slot(f"bull:{{myqueue}}:{name}") for name in ("wait", "active")], [9917, 9917], "the slots of two keys")


@scenario("cluster.untagged-spreads")
def test_slots_without_braces(client: Participant) -> None:
    """Without braces the keys of a queue are in several slots."""
    client.queue("q").add("work")
    names = [name for name in ("wait", "meta", "events", "id", "marker") if client.redis("q").exists(name)]
    equal(len(names), 5, "Node uses these keys")
    slots = {name: slot(f"bull:q:{name}") for name in names}
    holds(len(set(slots.values())) > 1, "the keys of bull:q are in several slots", seen=slots)
    equal([slot(f"bull:myqueue:{name}") for name in ("wait", "active")], [8258, 5693], "the slots that the row names")


MANY = 1100
"""More than 1000, which the paper gives as the limit of every loop."""
CLEARLY = 3
"""A ratio of two durations that chance does not explain."""


def _make_active(client: Participant, jobs: int) -> tuple[QueueHandle, WorkerHandle]:
    """A queue with this many active jobs, each locked for a minute, and a worker that can check for stalled ones."""
    queue, worker = client.queue(), client.worker(lockDuration=60_000)
    queue.add_bulk(*(("job", {}, {}) for _ in range(jobs)))
    with client.transcript.silent():
        for number in range(1, jobs + 1):
            worker.claim_one(f"token-{number}")
    return queue, worker


def _lose_locks(queue: QueueHandle, jobs: int) -> None:
    for number in range(1, jobs + 1):
        queue.redis.delete(f"{number}:lock")


@scenario("script.long-loops", clock="real")
def test_one_check_recovers_more_than_1000_jobs(client: Participant) -> None:
    """One call of `moveStalledJobsToWait` recovers 1100 jobs."""
    queue, worker = _make_active(client, MANY)
    _lose_locks(queue, MANY)
    check_stalled_again(queue, worker)
    equal(len(check_stalled_again(queue, worker)), MANY, "jobs recovered by one call")


@scenario("performance.stalled-check", clock="real")
def test_a_check_takes_longer_the_more_it_recovers(client: Participant) -> None:
    """A check of 1100 stalled jobs takes more than three times as long as one of 1100 locked jobs."""
    queue, worker = _make_active(client, MANY)

    def check() -> tuple[int, float]:
        started = time.perf_counter()
        recovered = check_stalled_again(queue, worker)
        return len(recovered), (time.perf_counter() - started) * 1000

    check()
    # The quickest of three: a busy machine makes a check slower, never quicker.
    locked_ms = min(check()[1] for _ in range(3))
    _lose_locks(queue, MANY)
    recovered, stalled_ms = check()
    equal(recovered, MANY, "jobs recovered")
    holds(
        stalled_ms > CLEARLY * locked_ms,
        "ms of a check while all locks live, and when all are lost",
        seen=(locked_ms, stalled_ms),
    )


INCLUDE = re.compile(r'^--- @include "([^"]+)"', re.MULTILINE)
WIRE_WORDS = ("stalled-check", "0x100000000", "cmsgpack")
"""A key, the step of a score, and how arguments are packed."""


@cache
def _toolchain() -> Toolchain:
    return find_toolchain("", print)


def _bullmq() -> Path:
    return _toolchain().package.root / "node_modules" / "bullmq"


def _output_of(*command: str) -> str:
    """The output of a program. Raises CalledProcessError if it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, cwd=_toolchain().package.root
    )
    return done.stdout.strip()


@scenario("script.folder")
def test_the_package_has_no_folder_of_complete_scripts(client: Participant) -> None:  # noqa: ARG001  (reads files only)
    """The package has no folder `scripts` with Lua; its Lua files call functions that only their includes define."""
    folders = {path.parent.relative_to(_bullmq()).as_posix() for path in _bullmq().rglob("*.lua")}
    holds(not any("scripts" in folder.split("/") for folder in folders), "folders with Lua", seen=sorted(folders))
    text = (_bullmq() / "dist/cjs/commands/moveToActive-11.lua").read_text("utf-8")
    missing = [name for name in (path.rpartition("/")[2] for path in INCLUDE.findall(text)) if f"{name}(" in text]
    holds("getTargetQueueList" in missing, "functions that moveToActive calls and its includes define", seen=missing)
    equal("function" in text.replace("Function", ""), False, "the file itself defines a function")


@scenario("upstream.documentation")
def test_only_the_scripts_describe_the_protocol(client: Participant) -> None:  # noqa: ARG001  (reads files only)
    """No document of the package contains these words of the protocol; its scripts contain all of them."""
    documents = [*_bullmq().rglob("*.d.ts"), *_bullmq().rglob("*.md")]
    scripts = [*(_bullmq() / "dist/cjs/commands").rglob("*.lua")]
    documented = {word for word in WIRE_WORDS for path in documents if word in path.read_text("utf-8")}
    known = {word for word in WIRE_WORDS for path in scripts if word in path.read_text("utf-8")}
    equal(documented, set(), f"words in {len(documents)} documents")
    equal(known, set(WIRE_WORDS), f"words in {len(scripts)} scripts")
    readme = (_bullmq() / "README.md").read_text("utf-8")
    holds("https://docs.bullmq.io" in readme, "the README refers to the site", seen="https://docs.bullmq.io")


@scenario("upstream.other-clients")
def test_the_python_client_has_the_same_authors(client: Participant) -> None:
    """`bullmq` on PyPI is by the authors of `bullmq` on npm."""
    python = _toolchain().launch("python-official").command[0]
    ask = "import importlib.metadata as m; d = m.metadata('bullmq'); print(d['Version'], d['Author-email'], sep='|')"
    version, author = _output_of(python, "-c", ask).split("|")
    npm = json.loads((_bullmq() / "package.json").read_bytes())["author"]
    holds(npm in author, f"authors on npm, and of {version} on PyPI", seen=(npm, author))
    equal(client.queue().add("job"), "1", "the npm package works here")


@scenario("upstream.redis-version")
def test_versions_of_redis_that_node_accepts(client: Participant) -> None:
    """Node refuses Redis below 5.0.0 and warns below 6.2.0."""
    script = "const c = require('bullmq').RedisConnection; console.log(c.minimumVersion, c.recommendedMinimumVersion)"
    limits = _output_of(str(_toolchain().node.path), "-e", script).split()
    equal(limits, ["5.0.0", "6.2.0"], "the lowest version, and the lowest without warning")
    equal(client.queue().add("job"), "1", "this Redis is new enough")
