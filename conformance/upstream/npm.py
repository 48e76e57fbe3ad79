"""Run `npm ci` in a folder, with the npm that belongs to a Node.js."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from conformance.problems import EnvironmentProblem
from conformance.upstream.node import Node, bundled_node

INSTALL_TIMEOUT_S = 600
_ERROR_LINES = 4
_ERROR_LINE = re.compile(r"npm (?:ERR!|error)(.*)")
_NOT_TELLING = (
    "at ",
    "errno",
    "syscall",
    "A complete log",
    "/",
    "network This is",
    "network In most",
    "network If you",
    "network '",
)
_CLI = Path("node_modules", "npm", "bin", "npm-cli.js")

_SETTINGS = {
    "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    "NPM_CONFIG_PREFER_OFFLINE": "true",
    # npm waits 10 s and then 60 s before it tries again; without a network that would only look like a hang.
    "NPM_CONFIG_FETCH_RETRY_MINTIMEOUT": "500",
    "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT": "2000",
}


def find_npm(node: Node) -> Path:
    """Locate npm's `npm-cli.js`: beside this Node.js, else on PATH, else the one inside `nodejs-bin`.

    Raises EnvironmentProblem if there is none. Node runs the file itself: the `npm` command is a shell script on some
    systems, and would start whatever `node` is first on PATH.
    """
    for binary in (node.path, bundled_node()):
        beside = _npm_beside(binary) if binary else None
        if beside:
            return beside
        if binary == node.path and (on_path := _npm_on_path()):
            return on_path
    raise EnvironmentProblem(
        f"no npm was found beside {node.path} or on PATH", hint="install npm, or `pip install nodejs-bin`"
    )


def _npm_beside(binary: Path) -> Path | None:
    resolved = binary.resolve()
    candidates = (
        resolved.parent.parent / "lib" / _CLI,
        resolved.parent / _CLI,
        (binary.parent / "npm").resolve(),
    )
    return next((path for path in candidates if path.name == _CLI.name and path.is_file()), None)


def _npm_on_path() -> Path | None:
    command = shutil.which("npm")
    path = Path(command).resolve() if command else None
    return path if path and path.name == _CLI.name else None


def install(node: Node, folder: Path) -> None:
    """Install exactly what `package-lock.json` in `folder` says; packages run no scripts of their own.

    The lock leaves out the optional native helpers of msgpackr, so that the same files are installed on every system.
    Raises EnvironmentProblem with npm's own words.
    """
    command = [str(node.path), str(find_npm(node)), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **_SETTINGS},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise _failed(f"npm did not finish within {INSTALL_TIMEOUT_S} s") from expired
    except OSError as error:
        raise _failed(f"npm could not be started: {error}") from error
    if done.returncode != 0:
        raise _failed(f"npm ci failed: {error_summary(done.stderr or done.stdout)}")


def error_summary(output: str) -> str:
    """Join the error lines of npm that say what is wrong, without usage texts and where its log file is."""
    errors = [match[1].strip() for line in output.splitlines() if (match := _ERROR_LINE.match(line))]
    telling = [line for line in errors if line and not line.startswith(_NOT_TELLING)]
    return "; ".join(telling[:_ERROR_LINES]) or output.strip()[-200:] or "it printed nothing"


def _failed(what: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        what,
        hint="the npm registry is needed once: check the network, proxy and npm settings, "
        "or set BULLMQ_CONFORMANCE_CACHE to a folder that was filled on another machine",
    )
