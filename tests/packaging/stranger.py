"""Commands as run by a user who has neither our environment nor our sources."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import conformance

ROOT = Path(conformance.__file__).parents[1]
PACKAGES = ("conformance", "chaos", "reports")
"""The contents of the wheel."""
TIMEOUT_S = 1200
"""Long: on a machine with 40 busy processes, an environment alone takes minutes."""


def without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a stranger would have too."""
    ours = ("PYTEST_", "PYTHON", "BULLMQ_", "GITHUB_")
    return {name: value for name, value in environment.items() if not name.startswith(ours)}


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command to its end and return what it printed; fails where it does."""
    done = ended(*command, cwd=cwd)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def ended(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with further variables of the environment; what it printed is its `stdout`."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**without_ours(os.environ), "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def lend_dependencies(python: Path, cwd: Path) -> None:
    """Let an environment see the packages of this one, behind its own.

    A .pth file adds the folder; the .pth files in that folder (such as that of an editable installation) do not count.
    """
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=cwd).strip()
    (Path(purelib) / "lent.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")


def lent_packages(folder: Path) -> Path:
    """A folder for PYTHONPATH with the packages of this environment, without the kit: pip finds all that it needs."""
    for library in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for package in Path(library).iterdir():
            ours = package.name.startswith(("bullmq_conformance", "__editable__", "pip", "setuptools"))
            if not (ours or package.suffix == ".pth"):
                (folder / package.name).symlink_to(package)
    return folder


def type_errors(python: Path, program: str, folder: Path) -> list[str]:
    """Return what mypy --strict says about a program that uses the packages of an environment: `LINE: [CODE]`."""
    source = folder / "program.py"
    source.write_text(program, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", os.devnull]
    done = subprocess.run(
        [*command, "--python-executable", python, "--cache-dir", python.parents[1] / "mypy", source],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=4 * TIMEOUT_S,
        check=False,
    )
    assert done.returncode in {0, 1}, f"mypy broke down:\n{done.stdout}{done.stderr}"
    found = re.findall(r"^program\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert bool(found) == bool(done.returncode), done.stdout
    return [f"{line}: [{code}]" for line, code in found]
