"""The processes that run generated mutants: all of them start, or none is left behind."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys

from conformance.environment.clients import Launch
from conformance.mutants.generated.case_runner import CaseRunnerSetting
from conformance.mutants.generated.workers import worker_processes

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
    with interruption.heeded():
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


def test_all_of_them_start_before_any_runs_a_case() -> None:
    with worker_processes(unusable_setting(), COUNT):
        started = multiprocessing.active_children()
    assert len(started) == COUNT
    assert multiprocessing.active_children() == []


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
