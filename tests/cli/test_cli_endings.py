"""However the program is ended, it is one line and an exit code: Ctrl-C while it starts, and a disk that is full."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance import interruption

from .cli_program import PROGRAM, Program, clean_environment, run_command

pytestmark = [pytest.mark.long(11), pytest.mark.slow]

WHILE_IT_STARTS = """
import builtins, os, signal
load = builtins.__import__
def interrupted(name, *rest, **more):
    if name == "conformance.cli.verbs":
        os.kill(os.getpid(), signal.{signal})
    return load(name, *rest, **more)
builtins.__import__ = interrupted
from conformance.cli.main import main
main()
"""

TWICE = """
import os, signal
from conformance import interruption
with interruption.handled():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)
        print("cleaned up")
"""

DROPPED = """
import os, signal, time, weakref
from conformance import interruption
class Anything: pass
with interruption.handled():
    thing = Anything()
    callback = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    try:
        del thing
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pass
        print("it was not interrupted")
    except KeyboardInterrupt:
        print("ended")
"""

FORGOTTEN = """
import os, signal, time
from conformance import interruption
with interruption.handled():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:
        pass
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pass
        print("it was not interrupted")
    except KeyboardInterrupt:
        print("ended")
"""
"""As some library does it in the middle of its work."""

DROPPED_IN_A_RUN = """
import os, signal, weakref
from conformance.gate.plugin import GatePlugin
class Anything: pass
counted = GatePlugin.pytest_runtest_logreport
def interrupted(self, report):
    counted(self, report)
    if self.records and not hit:
        hit.append(report)
        thing = Anything()
        callback = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
        del thing
hit = []
GatePlugin.pytest_runtest_logreport = interrupted
from conformance.cli.main import main
main()
"""


def test_an_interruption_that_hits_the_garbage_collector_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", DROPPED], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("ended\n", "")


def test_neither_is_one_that_a_library_forgets() -> None:
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("ended\n", "")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_neither_is_one_in_the_middle_of_a_run(tmp_path: Path, jobs: str) -> None:
    """Pytest has a hook of its own for what Python drops, which would print it and let the run go on."""
    words = ("run", "--client", "node", "--jobs", jobs, "--select", "add", "--select", "getters")
    done = run_command([sys.executable, "-c", DROPPED_IN_A_RUN, *words], cwd=tmp_path)
    assert done.code == 130, done.err
    assert done.err.endswith("error: interrupted\n")
    assert "Traceback" not in done.err


def test_an_interruption_while_the_program_starts_is_130_in_one_line(tmp_path: Path) -> None:
    for number in interruption.SIGNALS:
        code = WHILE_IT_STARTS.replace("{signal}", number.name)
        done = run_command([sys.executable, "-c", code, "list"], cwd=tmp_path)
        assert (done.code, done.err) == (130, "error: interrupted\n"), number


def test_the_second_signal_does_not_break_off_the_cleaning_up(tmp_path: Path) -> None:
    done = run_command([sys.executable, "-c", TWICE], cwd=tmp_path)
    assert done.out == "cleaned up\n"
    assert "KeyboardInterrupt" in done.err


@pytest.mark.parametrize("number", interruption.SIGNALS)
def test_a_postponed_block_is_completed_before_the_interruption(number: int) -> None:
    done: list[str] = []

    def start() -> None:
        with interruption.postponed():
            signal.raise_signal(number)
            done.append("started")
        done.append("never")

    with interruption.handled(), pytest.raises(KeyboardInterrupt):
        start()
    assert done == ["started"]


def test_an_interruption_that_is_forgotten_later_is_none_of_the_next_block(monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[bool] = []
    monkeypatch.setattr(interruption, "_interrupt_soon", lambda *, only_if_handled: again.append(only_if_handled))
    with interruption.handled():
        kept = interruption.LastingKeyboardInterrupt()
        forgotten = interruption.LastingKeyboardInterrupt()
        del forgotten
    assert again == [True], "one that is forgotten where it belongs comes again"
    with interruption.handled():
        del kept
    assert again == [True]


def test_a_starting_child_is_interrupted_once_it_unblocks_signals() -> None:
    hit_at_once = "import os, signal; os.kill(os.getpid(), signal.SIGTERM); print('spared', flush=True)"
    lets_through = f"{hit_at_once}; from conformance import interruption; interruption.let_through(); print('not hit')"
    with interruption.held_from_children():
        done = subprocess.run([sys.executable, "-c", lets_through], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("spared\n", -signal.SIGTERM)
    done = subprocess.run([sys.executable, "-c", hit_at_once], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", -signal.SIGTERM), "the block is over"


def test_a_signal_ignored_from_the_start_stays_ignored() -> None:
    """`nohup bullmq-conformance run ... &` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruption.handled():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in {signal.SIG_IGN, signal.SIG_DFL}
    finally:
        signal.signal(signal.SIGHUP, before)


def test_no_room_for_what_is_printed() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PROGRAM, "list"], stdout=full, stderr=subprocess.PIPE, env=clean_environment(), check=False, timeout=60
        )
    assert done.returncode == 3
    assert done.stderr.decode().splitlines() == [
        "error: cannot write: No space left on device",
        "hint: free some space on the disk, or choose another --out",
    ]


def test_no_room_for_the_run_file(program: Program, tmp_path: Path) -> None:
    """The header may fit while a scenario does not: the line is the same, no matter which write fails."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.jsonl").symlink_to("/dev/full")
    done = program("run", "--client", "node", "--jobs", "1", "--select", "add.*", "--out", out)
    assert done.complains(3, "cannot write to the run file", "No space left on device", "free some space")


def test_out_is_tried_before_the_work(program: Program, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file" / "out"
    for words in (("chaos", "--client", "node"), ("fuzz", "--client", "node"), ("run", "--client", "node")):
        done = program(*words, "--out", out, env={"PATH": "/nonexistent"})
        assert done.complains(3, "cannot write", "choose"), words
