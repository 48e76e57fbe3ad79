"""Ends every verb by signals at random moments, and looks for what is left: processes, keys, folders, containers.

`python -m tests.cli.signals --times 50` repeats this that often; `test_cli_signals.py` runs one each. A signal waits
until the verb has something to leave behind; with `--within`, its time counts from the start. Processes are
recognized by an environment variable that they inherit from the program, and containers by a unique name of their
image: foreign ones are not counted. A program that does not end shows the stacks of its threads.

Measured: 50 times each, all but `load`, `matrix`, `versions`, `mutants` and the verbs that need Spark with seed
17 at a load of 30 to 60 (650 interruptions), these with seed 23 at a load of 5 to 12 (400), and once more `fuzz`,
`mutants` and those that need Spark with seeds 29 and 31, with a check of the leftovers of a JVM added (350). In the
end no process, key, container or folder was left, and no foreign key had changed. The tests list the defects that
were fixed: a `fuzz` that had lost its Ctrl-C, a `list` that was hit while it installed its signal handlers, `mutants`
that waited forever for processes that Ctrl-C had hit during their start, Spark's own handling of Ctrl-C, the keys of a
load's progress, and folders of Spark in /tmp, which a JVM uses regardless of TMPDIR. It is unknown where the first
Ctrl-C was lost; the kit raises it again in any case. A run in two processes once showed a traceback of a worker that
was just starting (BrokenPipeError).

Since signals wait for something to leave behind, 20 times each at a load of 2 to 19: one folder was left, of `mutants`
whose processes a SIGHUP to the whole group had ended. It now belongs to the parent.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import interruption
from conformance.checkers.histories.history import History, HistoryHeader
from conformance.servers import RedisInstance, open_server

from .cli_program import PROGRAM, clean_environment

MARK = "BULLMQ_CONFORMANCE_SIGNAL_TEST"
TESTS = Path(__file__).parents[1]
REPLAY = TESTS / "fuzz" / "replays" / "wrong-score.jsonl"
RUN = TESTS / "report" / "runs" / "full.jsonl"
IMAGE = "bullmq-conformance/redis"
END_S = 90.0
STACKS_S = 10.0
GONE_S = 30.0
DROPPED = ("Failed checking if argv[0] is an import path entry", "Error processing line 1 of ")
"""Python prints this on a Ctrl-C before the program starts, and continues nevertheless; a user would press it again."""
NOT_BEGUN = ("init_import_site", f'"{PROGRAM}", line', *DROPPED)
"""In the first moments Python has not come to the program yet, and complains of a Ctrl-C in its own way."""
OF_PYTHON = 1
"""The exit code with which it does."""
PROGRAM_PATH = "/conformance/cli/"
"""After this point such a message is a failure."""
FOREIGN = {
    "bull:orders:1": "job",
    "bc00000000:q:1": "of another run",
    "bull:q-bc00000000:meta": "also",
    "x": "\x00\xff",
}
THEIRS = "theirs"
"""Prefix of a foreign queue, which some verbs read."""
OWN_SERVER = frozenset({"chaos", "bugs", "mutants", "permissions"})
"""Verbs that start a Redis of their own."""
AT_WORK_S = 180.0
LOOK_S = 0.02


@dataclass(frozen=True)
class Verb:
    """A command line; what is in braces is filled in. `longest_s`: until when it may be hit, once it is at work.

    `codes`: what it may end with when the signal comes too late. `program`: what is started in place of the kit.
    """

    name: str
    words: tuple[str, ...]
    longest_s: float
    codes: tuple[int, ...] = (0,)
    program: tuple[str, ...] = (str(PROGRAM),)

    @property
    def contained(self) -> bool:
        """Whether it needs an engine for containers, and an image of Redis."""
        return any("{image}" in word for word in self.words)

    @property
    def needs_java(self) -> bool:
        """Whether it starts Spark."""
        return self.words[0] == "load"

    @property
    def leaves(self) -> Sequence[str]:
        """The sign that it is at work: `key`, `container`, or a word in the command line of one of its processes."""
        if self.contained:
            return ("container",)
        if "{redis}" in self.words:
            return ("key", "java") if self.needs_java else ("key",)
        return ("redis-server",) if self.words[0] in OWN_SERVER else ()


VERBS = (
    Verb("run", ("run", "--client", "node", "--jobs", "1", "--redis", "{redis}", "--out", "{out}"), 12),
    Verb("run in two processes", ("run", "--client", "reference", "--jobs", "2", "--redis", "{redis}"), 14),
    Verb("run with a container", ("run", "--client", "reference", "--jobs", "1", "--redis", "container:{image}"), 10),
    Verb("fuzz", ("fuzz", "--client", "reference", "--redis", "{redis}", "--out", "{out}", "--budget", "60s"), 12),
    Verb("replay", ("replay", str(REPLAY), "--client", "reference", "--redis", "{redis}"), 4),
    Verb("chaos", ("chaos", "--client", "reference", "--faults", "worker.kill", "--out", "{out}"), 15),
    Verb("explain", ("explain", "--prove", "--all", "--redis", "{redis}"), 8),
    Verb("load", ("load", "--jobs", "200000", "--worker", "reference", "--redis", "{redis}", "--out", "{out}"), 25),
    Verb("list", ("list",), 1),
    Verb("ledger", ("ledger", "page"), 2),
    Verb("driver check", ("driver", "check", "--client", "reference", "--redis", "{redis}"), 4),
    Verb("driver new", ("driver", "new", "python", "--out", "{out}"), 1),
    Verb("report", ("report", str(RUN), "--out", "{out}"), 2),
    Verb(
        "matrix",
        ("matrix", "--clients", "reference,node", "--tier", "smoke", "--redis", "{redis}", "--out", "{out}"),
        15,
    ),
    Verb(
        "versions",
        ("versions", "diff", "5.62.0", "6.7.0", "--tier", "smoke", "--redis", "{redis}", "--out", "{out}"),
        15,
        codes=(0, 1),
    ),
    Verb(
        "versions mixed",
        ("versions", "mixed", "5.62.0", "6.7.0", "--redis", "{redis}", "--out", "{out}"),
        20,
        codes=(0, 1),
    ),
    Verb("bugs", ("bugs", "prove", "node-4300", "node-4299"), 15, codes=(0, 3)),
    Verb("mutants", ("mutants", "--sample", "4", "--quick", "--jobs", "2"), 15),
    Verb("bench", ("bench", "--client", "reference", "--measure", "claim", "--redis", "{redis}", "--out", "{out}"), 10),
    Verb("permissions", ("permissions", "--tier", "smoke", "--out", "{out}"), 15),
    Verb("snapshot", ("snapshot", "--redis", "{redis}", "--prefix", THEIRS, "--out", "{out}"), 3),
    Verb("diff", ("diff", "{redis}#" + THEIRS, "{redis}#" + THEIRS, "--out", "{out}"), 3),
    Verb("check", ("check", "{redis}#" + THEIRS, "--out", "{out}"), 3, codes=(0, 1)),
    Verb("watch", ("watch", "{redis}#" + THEIRS, "--for", "60s"), 20),
    Verb("history", ("history", "{history}", "--out", "{out}"), 10, codes=(4,)),
)


@dataclass(frozen=True)
class Interruption:
    """One case: a verb, a signal, its time (s), whether the whole process group gets it, and when it is repeated.

    `at_work`: the time is counted from the moment at which the verb has something to leave behind, not from its start.
    """

    verb: Verb
    number: signal.Signals
    after_s: float
    whole_group: bool
    again_s: float | None
    at_work: bool = False

    def send_to(self, program: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):
            (os.killpg if self.whole_group else os.kill)(program.pid, self.number)

    def __str__(self) -> str:
        group = ", whole group" if self.whole_group else ""
        again = f", again after {self.again_s:.2f} s" if self.again_s is not None else ""
        start = " of work" if self.at_work else ""
        return f"{self.verb.name}: {self.number.name} after {self.after_s:.2f} s{start}{group}{again}"


@dataclass(frozen=True)
class Aftermath:
    """How it ended: exit code, seconds that took, what was said, and what is left (empty: nothing).

    `code` is None where it did not end. `late`: it had ended before the signal came.
    """

    case: Interruption
    code: int | None
    late: bool
    seconds: float
    said: str
    left: tuple[str, ...]

    @property
    def wrong(self) -> tuple[str, ...]:
        """Leftovers, output that a user should not see, and an exit code that does not report the interruption."""
        return (*self.left, *self._wrong_code(), *self._wrong_words())

    def _wrong_code(self) -> Iterator[str]:
        if self.code is None:
            yield f"not ended {END_S:.0f} s after the signal"
        elif self.code not in self._allowed():
            yield f"exit code {self.code}"

    def _allowed(self) -> Iterable[int]:
        """After the program has finished, a signal changes nothing; before its start, the signal itself ends it."""
        yield from self.case.verb.codes
        if not self.late:
            yield interruption.EXIT_CODE
            if self.said in {"", "KeyboardInterrupt\n"} or self._not_started():
                yield from (-self.case.number, OF_PYTHON)

    def _wrong_words(self) -> Iterator[str]:
        if "Traceback" in self.said and not self._not_started():
            yield "a traceback"

    def _not_started(self) -> bool:
        return PROGRAM_PATH not in self.said and any(sign in self.said for sign in NOT_BEGUN)


def drawn(rng: random.Random, verb: Verb, *, within_s: float = math.inf) -> Interruption:
    """A random case. `within_s`: the signal is sent within that many seconds of the start, else of the work."""
    again_s = rng.uniform(0.01, 0.8) if rng.random() < 0.4 else None
    after_s = rng.uniform(0.05, verb.longest_s) if within_s > verb.longest_s else rng.uniform(0, within_s)
    at_work = bool(verb.leaves) and within_s == math.inf
    return Interruption(verb, rng.choice(interruption.SIGNALS), after_s, rng.random() < 0.3, again_s, at_work)


def foreign_keys(server: RedisInstance) -> dict[bytes, Any]:
    """Everything that is there, byte for byte."""
    with server.connect() as client:
        return {key: client.dump(key) for key in client.scan_iter(count=1000)}


def plant_foreign_keys(server: RedisInstance) -> None:
    """Keys that a user may have in a Redis that the kit may use."""
    with server.connect() as client:
        for key, value in FOREIGN.items():
            client.set(key, value)
        queue = f"{THEIRS}:q"
        client.hset(f"{queue}:meta", mapping={"opts.maxLenEvents": "10000", "version": "bullmq:5.62.0"})
        client.set(f"{queue}:id", "1")
        client.hset(f"{queue}:1", mapping={"name": "n", "data": "{}", "opts": '{"attempts":0}', "timestamp": "1"})
        client.delete(f"{queue}:wait")
        client.rpush(f"{queue}:wait", "1")


def restore_signals() -> None:
    """Let programs that are started from here handle all signals, even if `nohup` or `&` made them ignored."""
    for number in interruption.SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


@dataclass(frozen=True)
class Room:
    """The place where cases are run: a Redis with foreign keys, a folder, and the history of a run."""

    server: RedisInstance
    folder: Path

    @property
    def history(self) -> Path:
        path = self.folder / "history.jsonl"
        if not path.exists():
            path.write_bytes(History(header=HistoryHeader(), lines=()).encoded())
        return path


def carry_out(case: Interruption, room: Room, name: str = "case") -> Aftermath:
    """Start the verb, interrupt it, and look."""
    mark, folder = uuid.uuid4().hex, room.folder / name
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    before = foreign_keys(room.server)
    with image_called(f"bullmq-conformance/signals:{mark}" if case.verb.contained else "") as image:
        names = {"redis": room.server.text, "out": str(folder / "out"), "history": str(room.history), "image": image}
        with (folder / "said").open("wb") as said:
            program = subprocess.Popen(
                [*case.verb.program, *(word.format_map(names) for word in case.verb.words)],
                env=clean_environment({MARK: mark, "PYTHONFAULTHANDLER": "1", **temporary_in(temporary), **CONTAINERS}),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=folder,
                start_new_session=True,
            )
        if case.at_work:
            _wait_for_work(program, Traces(case.verb, mark, image, room.server, before.keys()))
        late, ended, seconds = _interrupted(program, case, folder / "said")
        # A signal in the last moments finds a program that has done its work, and ends as without it.
        files = _files_left(folder, finished=late or program.returncode in case.verb.codes)
        left = (*_processes_left(mark), *files, *containers_of(image), *_keys_left(before, room.server))
    code = program.returncode if ended else None
    return Aftermath(case, code, late, seconds, (folder / "said").read_text("utf-8", "replace"), left)


def temporary_in(folder: Path) -> dict[str, str]:
    """Variables that put all temporary files into a folder, including those of Spark's JVM, which ignores TMPDIR."""
    return {"TMPDIR": str(folder), "SPARK_SUBMIT_OPTS": f'"-Djava.io.tmpdir={folder}"'}


@dataclass(frozen=True)
class Traces:
    """Signs that a program is at work. It is known by its mark and image. `foreign`: keys that others have left."""

    verb: Verb
    mark: str
    image: str
    server: RedisInstance
    foreign: Collection[bytes]

    def exist(self) -> bool:
        """Whether everything is there that the verb may leave behind."""
        return all(self._exists(what) for what in self.verb.leaves)

    def _exists(self, what: str) -> bool:
        if what == "container":
            return bool(containers_of(self.image))
        if what == "key":
            with self.server.connect() as client:
                return any(key not in self.foreign for key in client.scan_iter(count=1000))
        return any(what in line for line in marked(self.mark).values())


def _wait_for_work(program: subprocess.Popen[bytes], traces: Traces) -> None:
    """Until the program has something to leave behind or has ended, or for `AT_WORK_S`."""
    deadline = time.monotonic() + AT_WORK_S
    while program.poll() is None and not traces.exist() and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def _interrupted(program: subprocess.Popen[bytes], case: Interruption, said: Path) -> tuple[bool, bool, float]:
    """Send the signals; returns whether it had ended before, whether it did end, and how many seconds that took."""
    try:
        with suppress(subprocess.TimeoutExpired):
            program.wait(case.after_s)
        late, started_s = program.returncode is not None, time.monotonic()
        for wait_s in (0.0, *([] if case.again_s is None else [case.again_s])):
            with suppress(subprocess.TimeoutExpired):
                program.wait(wait_s)
            case.send_to(program)
        ended = _ends(program, case, said)
        return late, ended, time.monotonic() - started_s
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def _ends(program: subprocess.Popen[bytes], case: Interruption, said: Path) -> bool:
    deadline, heard = time.monotonic() + END_S, True
    while time.monotonic() < deadline:
        with suppress(subprocess.TimeoutExpired):
            program.wait(1)
            return True
        if heard and any(sign in said.read_text("utf-8", "replace") for sign in DROPPED):
            heard = False
            case.send_to(program)
    program.send_signal(signal.SIGABRT)  # it shows its stacks
    with suppress(subprocess.TimeoutExpired):
        program.wait(STACKS_S)
    return False


def _processes_left(mark: str) -> list[str]:
    """They have some time to go."""
    ends = time.monotonic() + GONE_S
    while (processes := marked(mark)) and time.monotonic() < ends:
        time.sleep(0.1)
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"process {pid}: {args}" for pid, args in processes.items()]


def _files_left(folder: Path, *, finished: bool) -> Iterator[str]:
    """Temporary files, and those in the working directory; a finished report has an index there."""
    expected = {"tmp", "said", "out"} | ({"index.html"} if finished else set())
    yield from (f"folder {path.name}" for path in (folder / "tmp").iterdir())
    yield from (f"file {path.name}" for path in folder.iterdir() if path.name not in expected)


def _keys_left(before: Mapping[bytes, Any], server: RedisInstance) -> Iterator[str]:
    """Keys of ours; they are taken away, so that the next case is judged by its own."""
    after = foreign_keys(server)
    ours = after.keys() - before.keys()
    yield from (f"key {key!r}" for key in ours)
    yield from (f"foreign key {key!r} is another" for key, value in before.items() if after.get(key) != value)
    with server.connect() as client:
        for key in ours:
            client.delete(key)


CONTAINERS = {"TESTCONTAINERS_RYUK_DISABLED": "true", "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1"}


def docker(*words: str) -> str:
    """The output of docker; empty if it refuses or is not installed."""
    try:
        said = subprocess.run(["docker", *words], capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        return ""
    return "" if said.returncode else said.stdout.strip()


@contextmanager
def image_called(name: str) -> Iterator[str]:
    """In this block the image of Redis has this name as well, if one is given."""
    if name:
        docker("tag", IMAGE, name)
    try:
        yield name
    finally:
        if name:
            for left in docker("ps", "--all", "--quiet", "--filter", f"ancestor={name}").split():
                if name in docker("inspect", "--format", "{{.Config.Image}}", left):
                    docker("rm", "--force", left)
            docker("rmi", name)


def containers_of(image: str) -> list[str]:
    """Containers that were made of an image by this name."""
    listed = docker("ps", "--all", "--format", "{{.ID}} {{.Image}}").splitlines() if image else []
    return [f"container {line}" for line in listed if line.split()[-1] == image]


def marked(mark: str) -> dict[int, str]:
    """Command lines of the processes that descend from a program, by their id."""
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def table_of(aftermaths: Iterable[Aftermath]) -> Iterator[str]:
    """One line per verb: how often it was hit, with what it ended, and what was wrong."""
    by_verb: dict[str, list[Aftermath]] = {}
    for aftermath in aftermaths:
        by_verb.setdefault(aftermath.case.verb.name, []).append(aftermath)
    for name, ended in by_verb.items():
        codes = Counter("late" if aftermath.late else str(aftermath.code) for aftermath in ended)
        wrong = Counter(what.split()[0] for aftermath in ended for what in aftermath.wrong)
        shown = ", ".join(f"{code}: {number}" for code, number in sorted(codes.items()))
        bad = ", ".join(f"{what}: {number}" for what, number in sorted(wrong.items()))
        yield f"{name}: {len(ended)} times ({shown}); wrong: {bad or 'nothing'}"


def main() -> int:
    """Interrupt each verb so often; returns 1 where something was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50, help="per verb (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=math.inf, help="send each signal within this many seconds")
    parser.add_argument("--verb", action="append", help="only this one; repeatable")
    options = parser.parse_args()
    restore_signals()
    chosen = [verb for verb in VERBS if not options.verb or verb.name in options.verb]
    aftermaths = []
    with open_server(None, announce=print) as server, tempfile.TemporaryDirectory() as folder:
        plant_foreign_keys(server)
        for verb in chosen:
            rng = random.Random(f"{options.seed} {verb.name}")
            for number in range(options.times):
                case = drawn(rng, verb, within_s=options.within)
                aftermath = carry_out(case, Room(server, Path(folder)), f"{verb.name} {number}")
                aftermaths.append(aftermath)
                _show(aftermath)
    print(*table_of(aftermaths), sep="\n")
    return 1 if any(aftermath.wrong for aftermath in aftermaths) else 0


def _show(aftermath: Aftermath) -> None:
    last = next(iter(aftermath.said.strip().splitlines()[-1:]), "")
    mark = "BAD" if aftermath.wrong else "ok "
    print(f"{mark} {aftermath.case} -> {aftermath.code} in {aftermath.seconds:.1f} s: {last[:100]}", flush=True)
    for what in (*aftermath.wrong, *(aftermath.said.splitlines() if aftermath.wrong else ())):
        print(f"     {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
