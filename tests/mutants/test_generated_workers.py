"""The processes that run generated mutants: all of them start, or none is left behind."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

import pytest

from conformance.environment.clients import Launch, find_toolchain
from conformance.mutants.generated.case_runner import CaseRunnerSetting
from conformance.mutants.generated.driver import UNCHANGED
from conformance.mutants.generated.workers import hunt, worker_processes
from conformance.reference_impl.scripts.runner import ScriptTexts
from conformance.servers.connection import wait_until

COUNT = 3
LONGEST_S = 60

HIT_BY_CTRL_C = """
import os, signal, threading, time
from pathlib import Path
from conformance import interruption
from conformance.environment.clients import Launch
from conformance.mutants.generated.case_runner import CaseRunnerSetting
from conformance.mutants.generated.workers import worker_processes

LARGER_THAN_A_PIPE = "-" * 1_000_000

def is_worker(pid):
    return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()

def hit_the_group_often_when_the_first_starts():
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    while not any(map(is_worker, children.read_text().split())):
        pass
    for _ in range(30):
        os.killpg(0, signal.SIGINT)
        time.sleep(0.002)

if __name__ == "__main__":
    threading.Thread(target=hit_the_group_often_when_the_first_starts, daemon=True).start()
    with interruption.handled():
        try:
            setting = CaseRunnerSetting(oracle=Launch("none", ["false"]), scripts={"x": LARGER_THAN_A_PIPE})
            with worker_processes(setting, 2):
                pass
        except KeyboardInterrupt:
            print("interrupted")
"""


def unusable_setting() -> CaseRunnerSetting:
    """A case runner with this setting fails at once."""
    return CaseRunnerSetting(oracle=Launch("none", ["false"]), scripts={})


@pytest.mark.slow
def test_all_of_them_start_before_any_runs_a_case() -> None:
    with worker_processes(unusable_setting(), COUNT):
        started = multiprocessing.active_children()
    assert len(started) == COUNT
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_ctrl_c_ends_them_while_they_start() -> None:
    """A child that it ends before it has read its work would leave the parent writing for ever."""
    done = subprocess.run(
        [sys.executable, "-c", HIT_BY_CTRL_C],
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
        start_new_session=True,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


@pytest.mark.slow
def test_nothing_is_left_of_one_that_is_killed(
    scripts: ScriptTexts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by SIGTERM or SIGHUP to the whole group, which only the parent handles."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    texts = {name: script.text for name, script in scripts.items()}
    setting = CaseRunnerSetting(oracle=find_toolchain("", print).oracle, scripts=texts)
    with suppress(BrokenProcessPool), worker_processes(setting, 1) as pool:
        hunted = pool.submit(hunt, UNCHANGED, ["add/a_plain_job_enters_wait_at_the_left"] * 1000)
        assert wait_until(lambda: any(tmp_path.rglob("tmp*")), deadline_s=LONGEST_S), list(tmp_path.rglob("*"))
        for process in multiprocessing.active_children():
            process.kill()
        hunted.result()
    # Its Redis is ended by a process that notices its death.
    assert wait_until(lambda: not any(tmp_path.iterdir()), deadline_s=LONGEST_S), list(tmp_path.rglob("*"))
