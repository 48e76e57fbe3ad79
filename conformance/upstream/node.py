"""Finds the Node.js that runs the oracle, and runs its npm."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conformance.problems import EnvironmentProblem, UsageProblem

MINIMUM_MAJOR = 18
"""The driver needs nothing newer, and the newest `nodejs-bin` on PyPI is 18.4."""

_VERSION_TIMEOUT_S = 60
_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)")

NPM_TIMEOUT_S = 600
_NPM_ERROR_LINES = 4
_NPM_ERROR_LINE = re.compile(r"npm (?:ERR!|error)(.*)")
_UNINFORMATIVE = (
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
_NPM_CLI = Path("node_modules", "npm", "bin", "npm-cli.js")

_NPM_SETTINGS = {
    "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    "NPM_CONFIG_PREFER_OFFLINE": "true",
    # By default npm retries after 10 s and then 60 s, which looks like a hang without a network.
    "NPM_CONFIG_FETCH_RETRY_MINTIMEOUT": "500",
    "NPM_CONFIG_FETCH_RETRY_MAXTIMEOUT": "2000",
}

Source = Literal["setting", "system", "nodejs-bin"]


@dataclass(frozen=True)
class NodeBinary:
    """A Node.js that can be started. `version` has no leading `v`; `source`: how it was found."""

    path: Path
    version: str
    source: Source


def find_node(setting: str | None = None) -> NodeBinary:
    """Find a Node.js: the one of `setting`, else the one on PATH, else the one of the PyPI package `nodejs-bin`.

    `setting` is a path or a command name. Raises UsageProblem if it does not name a usable Node.js, and
    EnvironmentProblem if there is no setting and no usable Node.js.
    """
    if setting:
        return _node_of_setting(setting)
    on_path = shutil.which("node")
    rejected = ""
    if on_path:
        version = node_version(Path(on_path))
        if version and _new_enough(version):
            return NodeBinary(Path(on_path), version, "system")
        rejected = f" ({on_path} is {version or 'not a working Node.js'})"
    bundled = bundled_node()
    if bundled:
        version = node_version(bundled)
        if version and _new_enough(version):
            return NodeBinary(bundled, version, "nodejs-bin")
    raise EnvironmentProblem(
        f"no Node.js {MINIMUM_MAJOR} or newer was found{rejected}",
        hint="install Node.js, or `pip install nodejs-bin`, or set --node PATH",
    )


def bundled_node() -> Path | None:
    """Locate the binary inside the PyPI package `nodejs-bin` (module `nodejs`) without importing it."""
    spec = importlib.util.find_spec("nodejs")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    candidates = (folder / "bin" / "node", folder / "node.exe")
    return next((path for path in candidates if path.is_file()), None)


def node_version(path: Path) -> str | None:
    """Ask a binary for its version, such as `20.11.1`; None if it is not Node.js or does not start."""
    try:
        done = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.fullmatch(done.stdout.strip())
    return ".".join(match.groups()) if match else None


def _node_of_setting(setting: str) -> NodeBinary:
    path = shutil.which(setting)
    if path is None:
        raise UsageProblem(
            f"--node {setting}: there is no such program", hint="give the path of a Node.js binary, or omit --node"
        )
    version = node_version(Path(path))
    if version is None:
        raise UsageProblem(f"--node {setting}: this is not a working Node.js", hint=f"try `{setting} --version`")
    if not _new_enough(version):
        raise UsageProblem(
            f"--node {setting}: version {version} is too old", hint=f"{MINIMUM_MAJOR} or newer is needed"
        )
    return NodeBinary(Path(path), version, "setting")


def _new_enough(version: str) -> bool:
    return int(version.split(".", 1)[0]) >= MINIMUM_MAJOR


def find_npm(node: NodeBinary) -> Path:
    """Locate npm's `npm-cli.js`: next to this Node.js, else on PATH, else inside `nodejs-bin`.

    Raises EnvironmentProblem if there is none. The kit runs the file with Node itself: the `npm` command is a shell
    script on some systems, and would start the first `node` on PATH.
    """
    for binary in (node.path, bundled_node()):
        npm = _npm_next_to(binary) if binary else None
        if npm:
            return npm
        if binary == node.path and (on_path := _npm_on_path()):
            return on_path
    raise EnvironmentProblem(
        f"no npm was found next to {node.path} or on PATH", hint="install npm, or `pip install nodejs-bin`"
    )


def _npm_next_to(binary: Path) -> Path | None:
    # `node` on PATH is often a link into a version manager's folder, where npm is its neighbour.
    resolved = binary.resolve()
    candidates = (
        resolved.parent.parent / "lib" / _NPM_CLI,
        resolved.parent / _NPM_CLI,
        (binary.parent / "npm").resolve(),
    )
    return next((path for path in candidates if path.name == _NPM_CLI.name and path.is_file()), None)


def _npm_on_path() -> Path | None:
    command = shutil.which("npm")
    path = Path(command).resolve() if command else None
    return path if path and path.name == _NPM_CLI.name else None


def run_npm(node: NodeBinary, folder: Path, *words: str) -> None:
    """Run `npm WORDS` in a folder, without install scripts of packages. Raises EnvironmentProblem with npm's error."""
    _npm(node, folder, *words, "--ignore-scripts", "--no-audit", "--no-fund")


def npm_output(node: NodeBinary, *words: str) -> str:
    """The output of `npm WORDS` on stdout. Raises EnvironmentProblem with npm's error."""
    return _npm(node, None, *words)


def _npm(node: NodeBinary, folder: Path | None, *words: str) -> str:
    command = [str(node.path), str(find_npm(node)), *words]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **_NPM_SETTINGS},
            # npm may ask a question (login, update), and nothing would answer it.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=NPM_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise _npm_failed(f"npm did not finish within {NPM_TIMEOUT_S} s") from expired
    except OSError as error:
        raise _npm_failed(f"npm could not be started: {error}") from error
    if done.returncode != 0:
        raise _npm_failed(f"npm {words[0]} failed: {error_summary(done.stderr or done.stdout)}")
    return done.stdout


def error_summary(output: str) -> str:
    """Join the informative error lines of npm, without usage texts and the path of its log file."""
    errors = [match[1].strip() for line in output.splitlines() if (match := _NPM_ERROR_LINE.match(line))]
    informative = [line for line in errors if line and not line.startswith(_UNINFORMATIVE)]
    return "; ".join(informative[:_NPM_ERROR_LINES]) or output.strip()[-200:] or "it printed nothing"


def _npm_failed(what: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        what,
        hint="the npm registry is needed once: check the network, proxy and npm settings, "
        "or set BULLMQ_CONFORMANCE_CACHE to a folder that was filled on another machine",
    )
