"""Ends every verb by signals at random moments, and looks for what is left: processes, keys, folders.

`python -m tests.cli.signals --times 50` does it so often, and `test_cli_signals.py` plays a handful. Processes are
known by a variable in their environment, which they inherit from the program: nobody else's are counted.
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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import interruption
from conformance.servers import RedisInstance, open_server

from .cli_program import PROGRAM, clean_environment

MARK = "BULLMQ_CONFORMANCE_SIGNAL_TEST"
REPLAY = Path(__file__).parents[1] / "fuzz" / "replays" / "wrong-score.jsonl"
END_S = 90.0
GONE_S = 30.0
NOT_BEGUN = ("init_import_site", f'"{PROGRAM}", line')
"""In the first moments Python has not come to the program yet, and complains of a Ctrl-C in its own way."""
OF_THE_PROGRAM = "/conformance/cli/"
"""From here on nobody complains so any more."""
FOREIGN = {
    "bull:orders:1": "job",
    "bc00000000:q:1": "of another run",
    "bull:q-bc00000000:meta": "also",
    "x": "\x00\xff",
}


@dataclass(frozen=True)
class Verb:
    """A command line; `{redis}` and `{out}` are filled in. `longest_s`: until when it may be hit."""

    name: str
    words: tuple[str, ...]
    longest_s: float


VERBS = (
    Verb("run", ("run", "--client", "node", "--jobs", "1", "--redis", "{redis}", "--out", "{out}"), 12),
    Verb("run in two processes", ("run", "--client", "reference", "--jobs", "2", "--redis", "{redis}"), 14),
    Verb("fuzz", ("fuzz", "--client", "reference", "--redis", "{redis}", "--out", "{out}", "--budget", "60s"), 12),
    Verb("replay", ("replay", str(REPLAY), "--client", "reference", "--redis", "{redis}"), 4),
    Verb("chaos", ("chaos", "--client", "reference", "--faults", "worker.kill", "--out", "{out}"), 15),
    Verb("explain", ("explain", "--prove", "--all", "--redis", "{redis}"), 8),
    Verb("load", ("load", "--jobs", "20000", "--worker", "reference", "--redis", "{redis}", "--out", "{out}"), 25),
)


@dataclass(frozen=True)
class Interruption:
    """One case: a verb, a signal, after so many seconds, to the kit alone or its whole group, once or again."""

    verb: Verb
    number: signal.Signals
    after_s: float
    whole_group: bool
    again_s: float | None

    def __str__(self) -> str:
        """For people."""
        group = ", whole group" if self.whole_group else ""
        again = f", again after {self.again_s:.2f} s" if self.again_s is not None else ""
        return f"{self.verb.name}: {self.number.name} after {self.after_s:.2f} s{group}{again}"


@dataclass(frozen=True)
class Aftermath:
    """How it ended: exit code, seconds that took, what was said, and what is left (empty: nothing)."""

    code: int
    seconds: float
    said: str
    left: tuple[str, ...]

    @property
    def well(self) -> bool:
        """Whether nothing is left, and nobody saw a traceback of ours."""
        had_begun = OF_THE_PROGRAM in self.said or not any(sign in self.said for sign in NOT_BEGUN)
        return not self.left and not ("Traceback" in self.said and had_begun)


def drawn(rng: random.Random, verb: Verb, *, within_s: float = math.inf) -> Interruption:
    """A case by chance. `within_s`: it is hit before so many seconds are over."""
    again_s = rng.uniform(0.01, 0.8) if rng.random() < 0.4 else None
    after_s = rng.uniform(0.05, verb.longest_s) if within_s > verb.longest_s else rng.uniform(0, within_s)
    return Interruption(verb, rng.choice(interruption.SIGNALS), after_s, rng.random() < 0.3, again_s)


def foreign_keys(server: RedisInstance) -> dict[bytes, Any]:
    """Everything that is there, byte for byte."""
    with server.connect() as client:
        return {key: client.dump(key) for key in client.scan_iter(count=1000)}


def plant_foreign_keys(server: RedisInstance) -> None:
    """What a user may have in a Redis that the kit is let into."""
    with server.connect() as client:
        for key, value in FOREIGN.items():
            client.set(key, value)


def carry_out(case: Interruption, server: RedisInstance, folder: Path) -> Aftermath:
    """Start the verb, interrupt it, and look."""
    mark, temporary = uuid.uuid4().hex, folder / "tmp"
    temporary.mkdir(parents=True)
    names = {"redis": server.text, "out": str(folder / "out")}
    before = foreign_keys(server)
    with (folder / "said").open("wb") as said:
        program = subprocess.Popen(
            [str(PROGRAM), *(word.format_map(names) for word in case.verb.words)],
            env=clean_environment({MARK: mark, "TMPDIR": str(temporary)}),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=folder,
            start_new_session=True,
        )
    ended_in_s = _interrupted(program, case)
    left = tuple(_left(mark, temporary, before, server))
    return Aftermath(program.returncode, ended_in_s, (folder / "said").read_text("utf-8", "replace"), left)


def _interrupted(program: subprocess.Popen[bytes], case: Interruption) -> float:
    """Send the signals; returns how many seconds the program took to end."""
    try:
        with suppress(subprocess.TimeoutExpired):
            program.wait(case.after_s)
        begun_s = time.monotonic()
        for wait_s in (0.0, *([] if case.again_s is None else [case.again_s])):
            with suppress(subprocess.TimeoutExpired):
                program.wait(wait_s)
            with suppress(ProcessLookupError):
                (os.killpg if case.whole_group else os.kill)(program.pid, case.number)
        program.wait(END_S)
        return time.monotonic() - begun_s
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


def _left(mark: str, temporary: Path, before: Mapping[bytes, Any], server: RedisInstance) -> Iterator[str]:
    """What should not be there any more; processes have some time to go."""
    ends = time.monotonic() + GONE_S
    while (processes := marked(mark)) and time.monotonic() < ends:
        time.sleep(0.1)
    yield from (f"process {pid}: {args}" for pid, args in processes.items())
    yield from (f"folder {path.name}" for path in temporary.iterdir())
    after = foreign_keys(server)
    yield from (f"key {key!r}" for key in after.keys() - before.keys())
    yield from (f"foreign key {key!r} is another" for key, value in before.items() if after.get(key) != value)


def marked(mark: str) -> dict[int, str]:
    """Command lines of the processes that descend from a program, by their id."""
    found = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found


def main() -> int:
    """Interrupt each verb so often; returns 1 where something was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50, help="per verb (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--within", type=float, default=math.inf, help="only the first so many seconds of each")
    parser.add_argument("--verb", action="append", help="only this one; repeatable")
    options = parser.parse_args()
    rng, bad = random.Random(options.seed), 0
    with open_server(None, announce=print) as server, tempfile.TemporaryDirectory() as folder:
        plant_foreign_keys(server)
        cases = [drawn(rng, verb, within_s=options.within) for verb in VERBS for _ in range(options.times)]
        for number, case in enumerate(case for case in cases if not options.verb or case.verb.name in options.verb):
            aftermath = carry_out(case, server, Path(folder) / str(number))
            bad += not aftermath.well
            last = next(iter(aftermath.said.strip().splitlines()[-1:]), "")
            mark = "ok " if aftermath.well else "BAD"
            print(f"{mark} {case} -> {aftermath.code} in {aftermath.seconds:.1f} s: {last[:100]}", flush=True)
            for what in (*aftermath.left, *(aftermath.said.splitlines() if not aftermath.well else ())):
                print(f"     {what}", flush=True)
    print(f"{bad} were bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
