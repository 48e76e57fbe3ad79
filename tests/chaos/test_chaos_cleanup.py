"""Nothing stays behind: no process, no folder, also after Ctrl-C and after a run that failed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from conformance.servers.waiting import wait_until

MARK = "BULLMQ_CHAOS_TEST_MARK"
DEADLINE_S = 60.0
FAILING = """
import sys
from contextlib import contextmanager
from chaos.equipment import prepare
from chaos.faults.registry import Fault
from chaos.runner import Spec, run_chaos

@contextmanager
def broken(stage):
    with stage.window("broken"):
        stage.workers[0].member.freeze()
        stage.primary.freeze()
        raise AssertionError("the nemesis itself fails")
        yield

equipment = prepare(print)
run_chaos(Spec(client=equipment.launch("reference"), faults=[Fault("broken", "x", broken, "none")]))
"""


def _marked(mark: str) -> list[str]:
    """Command lines of all processes that inherited the mark."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["ctrl-c", "failure"])
def test_nothing_stays(how: str, tmp_path: Path) -> None:
    mark, scratch = uuid.uuid4().hex, tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, MARK: mark, "TMPDIR": str(scratch)}
    program = ["-m", "conformance", "chaos", "--client", "reference", "--faults", "none", "--duration", "60s"]
    arguments = program if how == "ctrl-c" else ["-c", FAILING]
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if how == "ctrl-c":
            busy = wait_until(
                lambda: sum("reference_impl.driver" in line for line in _marked(mark)) >= 3, deadline_s=DEADLINE_S
            )
            assert busy, f"the run did not start: {_marked(mark)}"
            process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert process.returncode == (130 if how == "ctrl-c" else 1), said
    assert ("interrupted" in said) == (how == "ctrl-c"), said
    assert wait_until(lambda: not _marked(mark), deadline_s=10), f"still there: {_marked(mark)}"
    assert list(scratch.iterdir()) == []
