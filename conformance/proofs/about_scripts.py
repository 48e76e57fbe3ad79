"""The official scripts, and the packages that they come in."""

from __future__ import annotations

import json
import re
import subprocess
import time
from binascii import crc_hqx
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import msgpack

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import queue as queue_ops
from conformance.environment.clients import Toolchain, find_toolchain
from conformance.observe.tap.recording import CommandRecord, short_text
from conformance.participants.expect import Mismatch, equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.proofs.proof import proof

SLOTS = 16384


def _calls(oracle: Participant, script: str) -> tuple[CommandRecord, ...]:
    """The calls of a script that Redis has carried out. Raises Mismatch where there is none."""
    calls = tuple(call for call in oracle.tap.calls(script) if call.reply is not None and call.reply.error is None)
    holds(calls, f"Node calls {script}", seen=[str(command) for command in oracle.tap.commands()])
    return calls


def _answers(calls: tuple[CommandRecord, ...]) -> list[str]:
    """What Redis answered, as it crossed the wire."""
    return [call.reply.head.decode(errors="replace").strip() for call in calls if call.reply]


def _shown(script: str, calls: tuple[CommandRecord, ...]) -> str:
    """One call for people: its name, the numbers of its keys and arguments, and what Redis answered."""
    answer = short_text(calls[-1].reply.head.replace(b"\r\n", b" ").strip()) if calls[-1].reply else "nothing"
    return f"{script} was sent with {len(calls[-1].keys)} keys and {len(calls[-1].argv)} arguments, answered {answer}"


def _taken_keys(calls: tuple[CommandRecord, ...], expected: int) -> None:
    equal({len(call.keys) for call in calls}, {expected}, "this many keys cross the wire")


@proof("script.move-to-active")
def what_a_claim_sends(oracle: Participant) -> str:
    """Claim a job, and claim again while the queue is paused."""
    queue, worker = oracle.queue(), oracle.worker(lockDuration=45_000)
    queue.add("work")
    worker.claim_one("token-mine")
    queue.pause()
    equal(worker.claim("token-other"), None, "a paused queue has no job")
    calls = _calls(oracle, "moveToActive")
    _taken_keys(calls, 11)
    named = [key for call in calls for key in call.keys if key.endswith(b":lock")]
    equal((named, queue.redis.string("1:lock")), ([], "token-mine"), "the lock's key is built inside")
    options = msgpack.unpackb(calls[0].argv[-1])
    equal(options["lockDuration"], 45_000, "times are in ms")
    equal(_answers(calls)[-1].split(), ["*4", ":0", ":0", ":0", ":0"], "a paused queue answers four zeros")
    return f"{_shown('moveToActive', calls)}; the lock is none of its keys, and its life was sent as 45000"


@proof("script.move-to-finished")
def what_an_end_sends(oracle: Participant) -> str:
    """Complete a job, let one fail, and fetch the third with an end."""
    queue, worker = oracle.queue(), oracle.worker()
    for name in ("completed", "failed", "fetched"):
        queue.add(name)
    worker.complete(worker.claim_one().id)
    worker.fail(worker.claim_one().id, fetch_next=True)
    calls = _calls(oracle, "moveToFinished")
    _taken_keys(calls, 14)
    states = [queue.redis.state(job) for job in ("1", "2", "3")]
    equal(states, [["completed"], ["failed"], ["active"]], "one script did both, and fetched the third")
    equal(_answers(calls)[0], ":0", "an end that fetches nothing answers 0")
    holds("fetched" in _answers(calls)[1], "an end that fetches answers the job", seen=_answers(calls)[1])
    return f"{len(calls)} calls of one script completed a job, failed one and fetched a third; {_shown('it', calls)}"


@proof("script.retry-job")
def what_a_retry_sends(oracle: Participant) -> str:
    """Let a job without back-off and one with fail."""
    queue, worker = oracle.queue(), oracle.worker()
    queue.add("at once", {}, attempts=2)
    worker.fail(worker.claim_one().id)
    worker.complete(worker.claim_one().id)
    queue.add("later", {}, attempts=2, backoff=60_000)
    worker.fail(worker.claim_one().id)
    retried, delayed = _calls(oracle, "retryJob"), _calls(oracle, "moveToDelayed")
    _taken_keys(retried, 11)
    _taken_keys(delayed, 8)
    equal(_answers(retried + delayed), [":0", ":0"], "both answer 0")
    equal(queue.redis.state("2"), ["delayed"], "it is the other script that delays")
    holds(b"60000" not in b" ".join(retried[0].argv), "a retry knows no delay", seen=retried[0].argv)
    holds(any(b"stacktrace" in text for text in retried[0].argv), "the client sends the stack traces", seen=retried)
    return f"{_shown('retryJob', retried)}; {_shown('moveToDelayed', delayed)}"


@proof("script.move-stalled")
def what_a_check_sends(oracle: Participant) -> str:
    """Check for stalled jobs as a worker whose locks live for 45 s."""
    queue, worker = oracle.queue(), oracle.worker(lockDuration=45_000, stalledInterval=7000)
    queue.add("work")
    worker.claim_one()
    worker.check_stalled()
    calls = _calls(oracle, "moveStalledJobsToWait")
    _taken_keys(calls, 8)
    holds(b"45000" not in calls[0].argv, "it does not learn how long a lock lives", seen=calls[0].argv)
    holds(b"7000" in calls[0].argv, "it learns how long the check counts", seen=calls[0].argv)
    sent = ", ".join(map(short_text, calls[0].argv))
    return f"{_shown('moveStalledJobsToWait', calls)}; the arguments are {sent}"


@proof("script.extend-lock")
def what_a_renewal_sends(oracle: Participant) -> str:
    """Renew one lock, and two in common of which one is lost."""
    queue, worker = oracle.queue(), oracle.worker()
    for number in (1, 2):
        queue.add("work")
        worker.claim_one(f"token-{number}")
    worker.extend_lock("1", 45_000)
    queue.redis.delete("2:lock")
    equal(worker.extend_locks(["1", "2"], ["token-1", "token-2"], 45_000), ["2"], "the lost one is named")
    one, many = _calls(oracle, "extendLock"), _calls(oracle, "extendLocks")
    _taken_keys(one, 2)
    _taken_keys(many, 1)
    holds(b"45000" in one[0].argv and b"45000" in many[0].argv, "times are in ms", seen=(one[0].argv, many[0].argv))
    return f"{_shown('extendLock', one)}; {_shown('extendLocks', many)}"


@proof("script.update-progress")
def what_progress_sends(oracle: Participant) -> str:
    """Report progress of a job, and of one that does not exist any more."""
    queue = oracle.queue()
    queue.add("work")
    queue.progress("1", {"percent": 5})
    queue.add("vanishing")
    with oracle.tap.hold("updateProgress") as held:
        late = oracle.meanwhile(lambda: _code_of(lambda: queue.progress("2", 6)))
        held.wait()
        queue.redis.delete("2")
    equal(late.result(), "missing-job", "the library makes an error of -1")
    calls = _calls(oracle, "updateProgress")
    _taken_keys(calls, 3)
    equal(calls[0].argv[-1], b'{"percent":5}', "progress is JSON text")
    equal(_answers(calls), [":0", ":-1"], "the answers are 0, and -1 without a job")
    return f"{_shown('updateProgress', calls[:1])}; without a job the answer is -1"


@proof("script.add-log")
def what_a_row_sends(oracle: Participant) -> str:
    """Add a row to the log of a job, and to one of a job that does not exist."""
    queue = oracle.queue()
    queue.add("work")
    queue.log("1", "a row")
    refused = _code_of(lambda: queue.log("nobody", "a row"))
    calls = _calls(oracle, "addLog")
    _taken_keys(calls, 2)
    equal(calls[0].keys, tuple(queue.redis.key(name).encode() for name in ("1", "1:logs")), "the job is a key, too")
    equal((_answers(calls)[-1], refused, queue.redis.exists("nobody:logs")), (":-1", "missing-job", False), "refused")
    return f"{_shown('addLog', calls[:1])}; a row of a job that does not exist is answered -1"


def _code_of(call: Callable[[], object]) -> str:
    """With which code a call is refused. Raises Mismatch where it is not."""
    try:
        call()
    except OperationFailed as failure:
        return failure.error.code
    raise Mismatch("the call is refused", expected="an error", actual="accepted")


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


@proof("script.names")
def names_of_the_scripts(oracle: Participant) -> str:
    """Take jobs through their lives, and look at what Node sends for it."""
    queue, worker = oracle.queue(), oracle.worker()
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
    called = {command.script: len(command.keys) for command in oracle.tap.commands() if command.script}
    missing = [name for name in NAMED_BY_THE_PAPER if name not in called]
    equal(missing, ["moveToCompleted", "moveToFailed"], "two of eight are never called")
    same = [name for name, keys in NAMED_BY_THE_PAPER.items() if called.get(name) == keys]
    equal(same, [], "the numbers of keys differ for all")
    others = sorted(called.keys() - NAMED_BY_THE_PAPER.keys())
    wanted = {"addStandardJob", "pause", "cleanJobsInSet", "removeJob"}
    equal(wanted - set(others), set(), "what adds, pauses, cleans and removes is missing from the list")
    return f"Node called {', '.join(f'{name} ({keys} keys)' for name, keys in sorted(called.items()))}"


def slot(key: str) -> int:
    """The cluster slot of a key: CRC16 of what is between the first braces, or of all of it."""
    _, brace, rest = key.partition("{")
    tag, closing, _ = rest.partition("}")
    hashed = tag if brace and closing and tag else key
    return crc_hqx(hashed.encode(), 0) % SLOTS


@proof("cluster.slot-number")
def the_slot_of_a_tag(_oracle: Participant) -> str:
    """Compute the slots of two keys with braces."""
    slots = [slot(f"bull:{{myqueue}}:{name}") for name in ("wait", "active")]
    equal(slots, [9917, 9917], "both are in slot 9917")
    return f"they are in slot {slots[0]}"


@proof("cluster.untagged-spreads")
def slots_without_braces(oracle: Participant) -> str:
    """Compute the slots of the keys that Node uses for a queue with a plain name."""
    oracle.queue("q").add("work")
    there = [name for name in ("wait", "meta", "events", "id", "marker") if oracle.redis("q").exists(name)]
    equal(len(there), 5, "Node uses these keys")
    slots = {name: slot(f"bull:q:{name}") for name in there}
    equal(len(set(slots.values())) > 1, True, "they are in several slots")
    named = [slot(f"bull:myqueue:{name}") for name in ("wait", "active")]
    equal(named, [8258, 5693], "and so are those that the ledger names")
    return "the keys of bull:q are in the slots " + ", ".join(f"{number} ({name})" for name, number in slots.items())


MANY = 1100
"""More than the 1000 that are said to be the limit of every loop."""
CLEARLY = 3
"""How many times as long is a difference that is no chance."""


def _make_active(oracle: Participant, jobs: int) -> tuple[QueueHandle, WorkerHandle]:
    """A queue with so many active jobs, each locked for a minute, and a worker that can check for stalled ones."""
    queue, worker = oracle.queue(), oracle.worker(lockDuration=60_000)
    queue.add_bulk(*(("job", {}, {}) for _ in range(jobs)))
    with oracle.transcript.silent():
        for number in range(1, jobs + 1):
            worker.claim_one(f"token-{number}")
    return queue, worker


def _lose_locks(queue: QueueHandle, jobs: int) -> None:
    for number in range(1, jobs + 1):
        queue.redis.delete(f"{number}:lock")


def _check(queue: QueueHandle, worker: WorkerHandle) -> tuple[int, float]:
    """One stalled check: how many jobs it recovered, and how many ms it took."""
    queue.redis.delete("stalled-check")
    began = time.perf_counter()
    recovered = worker.check_stalled()
    return len(recovered), (time.perf_counter() - began) * 1000


@proof("script.long-loops", clock="real")
def one_check_for_all(oracle: Participant) -> str:
    """Let more than 1000 jobs lose their locks, and check twice."""
    queue, worker = _make_active(oracle, MANY)
    _lose_locks(queue, MANY)
    _check(queue, worker)
    recovered, _ = _check(queue, worker)
    equal(recovered, MANY, "one call of one script recovers them all")
    return f"one call of moveStalledJobsToWait recovered {recovered} jobs"


@proof("performance.stalled-check", clock="real")
def a_check_takes_as_long_as_it_finds(oracle: Participant) -> str:
    """Time a check of jobs whose locks all live, and one of the same jobs when all locks are lost."""
    queue, worker = _make_active(oracle, MANY)
    _check(queue, worker)
    living = min(_check(queue, worker)[1] for _ in range(3))
    _lose_locks(queue, MANY)
    recovered, stalled = _check(queue, worker)
    equal(recovered, MANY, "all of them have stalled")
    holds(stalled > CLEARLY * living, f"that takes more than {CLEARLY} times as long", seen=(living, stalled))
    for_all = stalled / MANY * 10_000
    return f"{living:.1f} ms while {MANY} locks live, {stalled:.1f} ms when all are lost: {for_all:.0f} ms for 10000"


INCLUDE = re.compile(r'^--- @include "([^"]+)"', re.MULTILINE)
WIRE_WORDS = ("stalled-check", "0x100000000", "cmsgpack")
"""A key, the step of a score, and how arguments are packed."""


@cache
def _toolchain() -> Toolchain:
    return find_toolchain("", print)


def _bullmq() -> Path:
    return _toolchain().package.root / "node_modules" / "bullmq"


def _said_by(*command: str) -> str:
    """What a program prints. Raises CalledProcessError where it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, cwd=_toolchain().package.root
    )
    return done.stdout.strip()


@proof("script.folder")
def no_folder_of_scripts_that_run(_oracle: Participant) -> str:
    """Look for Lua in the published package, and for what a script calls and does not define."""
    folders = {path.parent.relative_to(_bullmq()).as_posix() for path in _bullmq().rglob("*.lua")}
    holds(not any("scripts" in folder.split("/") for folder in folders), "no folder `scripts` has Lua", seen=folders)
    text = (_bullmq() / "dist/cjs/commands/moveToActive-11.lua").read_text("utf-8")
    missing = [name for name in (path.rpartition("/")[2] for path in INCLUDE.findall(text)) if f"{name}(" in text]
    holds("getTargetQueueList" in missing, "the file calls what its includes define", seen=missing)
    equal("function" in text.replace("Function", ""), False, "the file itself defines no function")
    return (
        f"Lua is in {', '.join(sorted(folders))} only; moveToActive calls {', '.join(missing)} and defines none of them"
    )


@proof("upstream.documentation")
def only_the_scripts_tell(_oracle: Participant) -> str:
    """Look for words of the protocol in what the package documents, and in its scripts."""
    documents = [*_bullmq().rglob("*.d.ts"), *_bullmq().rglob("*.md")]
    scripts = [*(_bullmq() / "dist/cjs/commands").rglob("*.lua")]
    documented = {word for word in WIRE_WORDS for path in documents if word in path.read_text("utf-8")}
    known = {word for word in WIRE_WORDS for path in scripts if word in path.read_text("utf-8")}
    equal((documented, known), (set(), set(WIRE_WORDS)), "no document has these words, and the scripts have them all")
    readme = (_bullmq() / "README.md").read_text("utf-8")
    holds("https://docs.bullmq.io" in readme, "the documents point to the site", seen=readme)
    return f"none of {len(documents)} documents of the package says {', '.join(WIRE_WORDS)}; the scripts do"


@proof("upstream.other-clients")
def the_same_makers_have_a_python_client(oracle: Participant) -> str:
    """Ask the pinned package from PyPI who made it, and compare with the one from npm."""
    python = _toolchain().launch("python-official").command[0]
    ask = "import importlib.metadata as m; d = m.metadata('bullmq'); print(d['Version'], d['Author-email'], sep='|')"
    version, author = _said_by(python, "-c", ask).split("|")
    npm = json.loads((_bullmq() / "package.json").read_bytes())["author"]
    holds(npm in author, "both packages have one maker", seen=(npm, author))
    equal(oracle.queue().add("job"), "1", "the one from npm works here")
    return f"bullmq {version} on PyPI is by {author}, as bullmq on npm is by {npm}"


@proof("upstream.redis-version")
def five_is_enough(oracle: Participant) -> str:
    """Ask Node's class for the versions of Redis that it refuses and warns of."""
    script = "const c = require('bullmq').RedisConnection; console.log(c.minimumVersion, c.recommendedMinimumVersion)"
    refused, advised = _said_by(str(_toolchain().node.path), "-e", script).split()
    equal((refused, advised), ("5.0.0", "6.2.0"), "these are the limits")
    equal(oracle.queue().add("job"), "1", "this Redis is new enough")
    return f"it refuses Redis below {refused} and warns below {advised}"
