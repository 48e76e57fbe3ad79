"""The official scripts, and the packages that they come in."""

from __future__ import annotations

import json
import re
import subprocess
import time
from binascii import crc_hqx
from functools import cache
from pathlib import Path

from conformance.environment.clients import Toolchain, find_toolchain
from conformance.participants.expect import equal, holds
from conformance.participants.handles import QueueHandle, WorkerHandle
from conformance.participants.participant import Participant
from conformance.proofs.proof import Prove, proof
from conformance.upstream.manifest import load_manifest

SLOTS = 16384

KEYS_BY_ROW = {
    "script.move-to-active": {"moveToActive": 11},
    "script.move-to-finished": {"moveToFinished": 14},
    "script.retry-job": {"retryJob": 11, "moveToDelayed": 8},
    "script.move-stalled": {"moveStalledJobsToWait": 8},
    "script.extend-lock": {"extendLock": 2, "extendLocks": 1},
    "script.update-progress": {"updateProgress": 3},
    "script.add-log": {"addLog": 2},
}
"""Scripts of each row and their numbers of keys in the published package."""


def _numbers_of_keys(expected: dict[str, int]) -> Prove:
    def steps(_oracle: Participant) -> str:
        scripts = load_manifest().scripts
        found = {name: scripts[name].keys for name in expected}
        equal(found, expected, "the published scripts take these numbers of keys")
        return " and ".join(f"{name} takes {keys} keys" for name, keys in found.items())

    steps.__doc__ = "Read the numbers of keys from the manifest of the pinned package."
    return steps


for _row, _expected in KEYS_BY_ROW.items():
    proof(_row)(_numbers_of_keys(_expected))


@proof("script.names")
def names_of_the_scripts(_oracle: Participant) -> str:
    """Look for the eight scripts that the paper names in the manifest of the pinned package."""
    scripts = load_manifest().scripts
    named = ("moveToActive", "moveToCompleted", "moveToFailed", "retryJob", "moveStalledJobsToWait", "extendLock")
    unknown = [name for name in (*named, "updateProgress", "addLog") if name not in scripts]
    equal((len(scripts), unknown), (49, ["moveToCompleted", "moveToFailed"]), "two of eight do not exist")
    return f"there are {len(scripts)} scripts, and none is called {' or '.join(unknown)}"


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
    holds("https://docs.bullmq.io" in readme, "the documents point to the site")
    return f"none of {len(documents)} documents of the package says {', '.join(WIRE_WORDS)}; the scripts do"


@proof("upstream.other-clients")
def the_same_makers_have_a_python_client(oracle: Participant) -> str:
    """Ask the pinned package from PyPI who made it, and compare with the one from npm."""
    python = _toolchain().launch("python-official").command[0]
    ask = "import importlib.metadata as m; d = m.metadata('bullmq'); print(d['Version'], d['Author-email'], sep='|')"
    version, author = _said_by(python, "-c", ask).split("|")
    npm = json.loads((_bullmq() / "package.json").read_bytes())["author"]
    holds(npm in author, "both packages have one maker", seen=(npm, author))
    holds(oracle.queue().add("job"), "the one from npm works here")
    return f"bullmq {version} on PyPI is by {author}, as bullmq on npm is by {npm}"


@proof("upstream.redis-version")
def five_is_enough(oracle: Participant) -> str:
    """Ask Node's class for the versions of Redis that it refuses and warns of."""
    script = "const c = require('bullmq').RedisConnection; console.log(c.minimumVersion, c.recommendedMinimumVersion)"
    refused, advised = _said_by(str(_toolchain().node.path), "-e", script).split()
    equal((refused, advised), ("5.0.0", "6.2.0"), "these are the limits")
    holds(oracle.queue().add("job"), "this Redis is new enough")
    return f"it refuses Redis below {refused} and warns below {advised}"
