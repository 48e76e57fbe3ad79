"""A signal while the program is still being imported: it ends without a word about Python's insides."""

from __future__ import annotations

import signal
import sys
import tomllib
from pathlib import Path

import pytest

from conformance import interruption

from .cli_program import ROOT, run_command

HIT_ON_THE_WAY = """
import os, runpy, sys

module, number = sys.argv[1], int(sys.argv[2])

class SignalAtImport:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, SignalAtImport())
sys.argv[1:] = ["--version"]
runpy.run_module("conformance", run_name="__main__", alter_sys=True)
"""
"""Runs the program, and sends it a signal when it starts to import a module."""
BEFORE_HANDLERS = ("conformance.cli", "conformance.problems")
"""The first of its modules, and the last before it installs signal handlers."""
AFTER_HANDLERS = ("click",)


@pytest.mark.parametrize("number", interruption.SIGNALS)
@pytest.mark.parametrize("module", [*BEFORE_HANDLERS, *AFTER_HANDLERS])
def test_a_signal_in_the_first_moments_prints_no_traceback(module: str, number: signal.Signals, tmp_path: Path) -> None:
    """The program has not started, so it prints nothing: the signal ends the process. Later it is an interruption."""
    words = [sys.executable, "-c", HIT_ON_THE_WAY, module, str(int(number))]
    done = run_command(words, cwd=tmp_path)
    if module in BEFORE_HANDLERS:
        assert (done.code, done.out, done.err) == (-number, "", "")
    else:
        assert (done.code, done.out, done.err) == (interruption.EXIT_CODE, "", "error: interrupted\n")


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    """`nohup`, and `command &` in a script: the program is not the one who decides."""
    ignoring = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{HIT_ON_THE_WAY}"
    done = run_command([sys.executable, "-c", ignoring, "conformance.cli", str(int(signal.SIGINT))], cwd=tmp_path)
    assert done.code == 0, done


def test_the_installed_program_starts_in_the_same_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"bullmq-conformance": "conformance.__main__:main"}
