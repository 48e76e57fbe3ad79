"""Take the Lua scripts out of an installed bullmq package."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec

from conformance.problems import EnvironmentProblem
from conformance.upstream.node import Node
from conformance.upstream.package import HARNESS

_TIMEOUT_S = 60
_ERROR = re.compile(r"\w*Error\b")


class RawScript(msgspec.Struct, frozen=True, kw_only=True):
    """A script as the package has it: the number of its KEYS and its exact text."""

    keys: int
    text: str


def extract(node: Node, root: Path) -> dict[str, RawScript]:
    """Let Node evaluate the package below `root` and answer its scripts by name.

    The texts are JavaScript template literals in `dist/cjs/scripts`: only evaluating them gives the bytes that BullMQ
    sends. Raises EnvironmentProblem if Node fails or prints something else.
    """
    command = [str(node.path), str(HARNESS / "extract.mjs"), str(root)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
        return msgspec.json.decode(done.stdout, type=dict[str, RawScript])
    except subprocess.CalledProcessError as error:
        raise _failed(root, _error_line(error.stderr)) from error
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError) as error:
        raise _failed(root, str(error)) from error


def _error_line(stderr: bytes) -> str:
    """Pick the line of a Node stack trace that names the error."""
    lines = stderr.decode(errors="replace").splitlines()
    return next((line for line in lines if _ERROR.match(line)), "Node said nothing")


def _failed(root: Path, why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"the Lua scripts below {root} cannot be read: {why}", hint=f"remove {root} and run again to install it anew"
    )
