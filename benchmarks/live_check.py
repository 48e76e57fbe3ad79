"""`check` on a large live store under load: what it finds, its processor time, its memory, and what the load feels.

    python -m benchmarks.live_check --jobs 1000000 --rate 500 --runs 20

A script in Redis writes the jobs, and Node.js loads four further queues. The sound store is checked several times, then
damaged (`tests/reports/live/damages.py`), checked again, and read from its RDB file. Exit code 1: a false or a missing
finding. The delay of clients is measured by single commands in further checks, which run for a second and are stopped
for a second in turns: a machine changes from minute to minute.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from benchmarks.commands import Ran, ran
from benchmarks.stores import QUEUE, fill
from conformance.servers import RedisInstance, open_server
from reports.check.summary import CheckSummary
from tests.reports.live.damaged_store import damage, node_load
from tests.reports.live.damages import DAMAGES

PREFIX = "b"
PROBE_EVERY_S = 0.002
TURN_S = 1.0


def check_command(store: str, out: Path) -> list[str]:
    """Words of a command that checks a store."""
    return [sys.executable, "-m", "conformance", "check", store, "--out", str(out)]


def check(store: str, out: Path) -> tuple[CheckSummary, Ran]:
    """Check a store in a process of its own; returns its report, and what it took."""
    done = ran(check_command(store, out))
    assert done.code in (0, 1), done.output
    return msgspec.json.decode((out / "check.json").read_bytes(), type=CheckSummary), done


class Probe:
    """Sends single commands, and notes their delays (ms): `beside` while a check runs, `alone` while it does not."""

    def __init__(self, server: RedisInstance) -> None:
        self.beside: list[float] = []
        self.alone: list[float] = []
        self._noted: list[float] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, args=(server,), daemon=True)
        self._thread.start()

    def note(self, delays: list[float]) -> None:
        """Add the delays of the next turn to these."""
        self._noted = delays

    def pause(self) -> None:
        """Note nothing until the next turn."""
        self._noted = None

    def end(self) -> None:
        """Send no more commands."""
        self._ended.set()
        self._thread.join()

    def _ask(self, server: RedisInstance) -> None:
        with server.connect() as client:
            while not self._ended.wait(PROBE_EVERY_S):
                noted, started = self._noted, time.perf_counter()
                client.exists("probe")
                # A command that was sent in one turn and answered in the next belongs to neither.
                if noted is not None and noted is self._noted:
                    noted.append((time.perf_counter() - started) * 1000)


def check_in_turns(store: str, out: Path, probe: Probe) -> None:
    """Check a store, with the processes stopped every other second."""
    with subprocess.Popen(check_command(store, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            probe.note(probe.beside)
            with suppress(subprocess.TimeoutExpired):
                process.wait(TURN_S)
            probe.pause()
            _each_of(process.pid, psutil.Process.suspend)
            probe.note(probe.alone)
            time.sleep(TURN_S)
            probe.pause()
            _each_of(process.pid, psutil.Process.resume)
    assert process.returncode == 0, f"a check in turns has ended with {process.returncode}"


def _each_of(pid: int, act: Callable[[psutil.Process], None]) -> None:
    """Do it to a process and its children, which may end at any time."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                act(each)


def quantile(delays: Sequence[float], share: float) -> float:
    """A quantile of delays."""
    ordered = sorted(delays)
    return ordered[int(len(ordered) * share)] if ordered else 0.0


def missing(summary: CheckSummary) -> list[str]:
    """Damages whose findings are not exactly those of the table."""
    found: dict[str, set[str]] = {}
    for example in summary.examples:
        queue = example.key.removeprefix(f"{PREFIX}:").partition(":")[0]
        found.setdefault(queue, set()).add(example.cause)
    return [case.name for case in DAMAGES if found.get(case.name, set()) != set(case.findings)]


def _text(took: Ran) -> str:
    return f"{took.seconds:.1f} s, {took.cpu_s:.1f} s of processor time, {took.peak_mb:.0f} MB"


def _delays(server: RedisInstance, store: str, out: Path, checks: int) -> str:
    """What clients feel of checks."""
    probe = Probe(server)
    for number in range(checks):
        check_in_turns(store, out / f"turns-{number}", probe)
    probe.end()
    found = {share: (quantile(probe.alone, share), quantile(probe.beside, share)) for share in (0.5, 0.9, 0.99)}
    texts = [f"p{share * 100:.0f} {alone:.2f} ms to {beside:.2f} ms" for share, (alone, beside) in found.items()]
    alone, beside = found[0.99]
    return f"delays of clients, without and with a check: {', '.join(texts)}; the p99 is {beside / alone:.2f} times"


def main() -> int:
    """Run it; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=500, help="jobs/s of the load; 0: none")
    parser.add_argument("--runs", type=int, default=20, help="checks of the sound store")
    parser.add_argument("--turns", type=int, default=3, help="checks in turns, for the delays of clients")
    options = parser.parse_args()
    wrong = 0
    with open_server(None, announce=print) as server, tempfile.TemporaryDirectory() as folder:
        fill(server, PREFIX, options.jobs)
        store, out = f"{server.url}#{PREFIX}", Path(folder)
        with server.connect() as client:
            client.hset(f"{PREFIX}:{QUEUE}:meta", "opts.maxLenEvents", 10 * options.jobs)
            for other in ("live", "idle"):  # their jobs are years old
                client.delete(*client.scan_iter(f"{PREFIX}:{other}:*", count=1000))
        with node_load(server, PREFIX, [case.name for case in DAMAGES], rate=options.rate):
            for run in range(options.runs):
                summary, took = check(store, out / str(run))
                wrong += summary.total
                found = f"{summary.total} places, {summary.fleeting} fleeting"
                print(f"run {run}: {summary.jobs} jobs, {found}; {_text(took)}", flush=True)
            if options.turns:
                print(_delays(server, store, out, options.turns), flush=True)
            damage(server, PREFIX, DAMAGES)
            summary, took = check(store, out / "damaged")
            counts = {cause.cause: cause.count for cause in summary.causes}
            print(f"damaged: {len(DAMAGES)} damages, wrong: {missing(summary)}; {_text(took)}; {counts}")
            wrong += len(missing(summary))
        with server.connect() as client:
            client.save()
            settings = client.config_get("d*")
        summary, took = check(f"{settings['dir']}/{settings['dbfilename']}#{PREFIX}", out / "rdb")
        print(f"RDB file: {summary.jobs} jobs, {summary.total} places; {_text(took)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
