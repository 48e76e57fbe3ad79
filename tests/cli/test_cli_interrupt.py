"""Ctrl-C: the run ends with 130, no process and no hidden cursor stays behind, and the run file says incomplete."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from conformance import interruption
from conformance.cli import main

from .cli_program import (
    PROGRAM,
    Program,
    clean_environment,
    family,
    read_records,
    still_there,
    wait_until,
)


@pytest.mark.parametrize("number", interruption.SIGNALS)
def test_a_second_interruption_does_not_break_off_the_telling_of_the_first(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes when the verb has ended by the first, and `error: interrupted` is about to be printed."""
    complain = main._complain

    def hit_again(what: str, hint: str, code: int) -> int:
        signal.raise_signal(number)
        return complain(what, hint, code)

    monkeypatch.setattr(main, "_carry_out", partial(signal.raise_signal, number))
    monkeypatch.setattr(main, "_complain", hit_again)
    before = [signal.getsignal(known) for known in interruption.SIGNALS]
    assert main.run() == interruption.EXIT_CODE
    assert capsys.readouterr().err == "error: interrupted\n"
    assert [signal.getsignal(known) for known in interruption.SIGNALS] == before


@pytest.mark.parametrize(
    ("jobs", "send"),
    [("1", os.kill), ("1", os.killpg), ("2", os.killpg)],
    ids=["one process, only the kit", "one process, as from a terminal", "two processes, as from a terminal"],
)
@pytest.mark.slow
def test_an_interrupted_run_leaves_no_process_and_says_that_it_is_incomplete(
    program: Program, tmp_path: Path, jobs: str, send: Callable[[int, int], None]
) -> None:
    out = tmp_path / "out"
    areas = ("--select", "add", "--select", "getters", "--select", "order", "--select", "job-hash", "--select", "retry")
    with (tmp_path / "stderr").open("wb") as stderr:
        run = subprocess.Popen(
            [PROGRAM, "run", "--client", "node", "--jobs", jobs, "--out", out, *areas],
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            cwd=tmp_path,
            start_new_session=True,
        )
    try:
        wait_until(lambda: lines_of(out) >= 2 or run.poll() is not None, seen=(tmp_path / "stderr").read_text)
        members = family(run.pid)
        send(run.pid, signal.SIGINT)
        code = run.wait(60)
    finally:
        run.kill()
    assert any("redis-se" in args for args in members.values()), members
    assert sum("driver" in args for args in members.values()) >= 2, members
    said = (tmp_path / "stderr").read_text()
    assert code == 130, said
    assert said.endswith("error: interrupted\n")
    assert "Traceback" not in said
    wait_until(lambda: not still_there(members), seen=lambda: still_there(members), within_s=15)
    assert read_records(out).footer is None
    report = program("report", out)
    assert report.code == 0
    assert "INCOMPLETE RUN" in report.out


def lines_of(out: Path) -> int:
    try:
        return (out / "run.jsonl").read_bytes().count(b"\n")
    except OSError:
        return 0


@pytest.mark.slow
def test_an_interrupted_run_gives_the_cursor_back(tmp_path: Path) -> None:
    """The live view hides the cursor; a shell without one is a nuisance."""
    hide, show = b"\x1b[?25l", b"\x1b[?25h"
    terminal, other_end = pty.openpty()
    command = [str(PROGRAM), "run", "--client", "node", "--jobs", "1", "--select", "lock"]
    environment = clean_environment({"TERM": "xterm"})
    with subprocess.Popen(
        command, env=environment, stdin=other_end, stdout=other_end, stderr=other_end, cwd=tmp_path
    ) as run:
        os.close(other_end)
        seen = bytearray()
        while piece := read_terminal(terminal):
            if hide in piece and hide not in seen:
                run.send_signal(signal.SIGINT)
            seen += piece
        code = run.wait(60)
    os.close(terminal)
    assert code == 130, seen
    assert hide in seen, "the live view was there"
    assert seen.rfind(show) > seen.rfind(hide)


def read_terminal(terminal: int) -> bytes:
    """The data that arrived; empty when the program has ended (on Linux that is an error)."""
    assert select.select([terminal], [], [], 60)[0], "nothing came for a minute"
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""
