"""`python -m chaos.images.build [--base IMAGE] [--only NAME]`: builds the images of container mode, and the kit's.

Everything that the workers and the gate need is put into the context of the build, from this machine's caches: the
build itself reaches neither npm nor PyPI. On a host without an image registry, `build-base.sh` makes the base from
Debian packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import click

from conformance.environment.prepare import Environment, EnvironmentOptions, prepare
from conformance.pages.terminal import terminal_line
from conformance.problems import EnvironmentProblem, Problem
from conformance.upstream.package import HARNESS

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
NEEDED = ("hiredis", "msgpack", "msgspec", "platformdirs", "redis", "tzdata", "nodejs-bin")
"""Packages that the reference's driver needs besides the kit; nodejs-bin for a base image without Node.js."""
FOR_OTHER_PYTHONS = ("async-timeout",)
"""A package that redis-py needs before Python 3.11.3, and so in an image of Debian 12, whichever Python builds it."""
NOT_COPIED = (".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "node_modules")
OF_CONTAINER_MODE = ("redis", "node-worker", "python-worker")
NODE_WORKER, PYTHON_WORKER = "bullmq-conformance/node-worker", "bullmq-conformance/python-worker"


@click.command()
@click.option("--base", default="", help="Base image of all; default: those named in the Dockerfiles.")
@click.option(
    "--only", type=click.Choice([*OF_CONTAINER_MODE, "kit"]), default=None, help="Default: all but the kit's."
)
def main(base: str, only: str | None) -> None:
    """Build the images. Raises EnvironmentProblem with the last lines of docker or pip."""
    contexts = {
        "redis": _redis_context,
        "node-worker": _node_context,
        "python-worker": _python_context,
        "kit": _kit_context,
    }
    with prepare(EnvironmentOptions(), click.echo, redis="program") as environment:
        for name in [only] if only else OF_CONTAINER_MODE:
            fill = contexts[name]
            with tempfile.TemporaryDirectory() as folder:
                fill(Path(folder), environment)
                _build(name, Path(folder), base)
                click.echo(terminal_line(f"bullmq-conformance/{name}"))


def _redis_context(_folder: Path, _environment: Environment) -> None:
    """A context with only the Dockerfile."""


def _node_context(folder: Path, environment: Environment) -> None:
    """The pinned package, and the driver of the oracle."""
    shutil.copytree(environment.toolchain.package.root, folder / "modules", symlinks=True)
    shutil.copytree(HARNESS, folder / "driver", ignore=shutil.ignore_patterns("*.py", "__pycache__"))


def _python_context(folder: Path, environment: Environment) -> None:
    """Wheels of the kit and of its driver's dependencies, and the pinned package for its Lua scripts."""
    needed = [f"{name}=={version(name)}" for name in NEEDED]
    _cached_package(folder, environment)
    _wheels(folder, "--no-deps", *needed, *FOR_OTHER_PYTHONS)


def _kit_context(folder: Path, environment: Environment) -> None:
    """Wheels of the kit and of all its dependencies, and the pinned package."""
    _cached_package(folder, environment)
    _wheels(folder, *FOR_OTHER_PYTHONS)


def _cached_package(folder: Path, environment: Environment) -> None:
    root = environment.toolchain.package.root
    shutil.copytree(root, folder / "cache" / root.name, symlinks=True)


def _wheels(folder: Path, *what: str) -> None:
    """Put wheels into the context: of the project, and of the other packages in `what`."""
    with tempfile.TemporaryDirectory() as copy:  # a build leaves files in the folder of the project
        project = shutil.copytree(PROJECT, Path(copy, "project"), ignore=shutil.ignore_patterns(*NOT_COPIED))
        wheels = ["--wheel-dir", str(folder / "wheels"), str(project), *what]
        _run([sys.executable, "-m", "pip", "wheel", "--quiet", *wheels])


def _build(name: str, context: Path, base: str) -> None:
    shutil.copy(HERE / f"{name}.Dockerfile", context / "Dockerfile")
    chosen = ["--build-arg", f"BASE={base}"] if base else []
    _run(["docker", "build", "--quiet", *chosen, "--tag", f"bullmq-conformance/{name}", str(context)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise EnvironmentProblem(
            f"`{' '.join(command[:4])} ...` failed:\n{tail}", hint="see Images in docs/how-to/chaos.md"
        )


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(str(problem))
