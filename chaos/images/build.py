"""`python -m chaos.images.build [--base IMAGE] [--only NAME]`: builds the images of container mode.

Everything that the workers need is put into the context of the build, from this machine's caches: the build itself
reaches neither npm nor PyPI. On a host without an image registry, `build-base.sh` makes the base from Debian packages.
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
from conformance.problems import EnvironmentProblem
from conformance.upstream.package import HARNESS

HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
NEEDED = ("hiredis", "msgpack", "msgspec", "platformdirs", "redis", "tzdata", "nodejs-bin")
"""What the reference's driver imports beside the kit; nodejs-bin for a base image without Node."""
FOR_OTHER_PYTHONS = ("async-timeout",)
"""What redis-py needs on Python before 3.11.3, and so in an image of Debian 12, whatever Python builds the image."""
NOT_COPIED = (".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", "node_modules")
NODE_WORKER, PYTHON_WORKER = "bullmq-conformance/node-worker", "bullmq-conformance/python-worker"


@click.command()
@click.option("--base", default="", help="Base image of all three; default: those named in the Dockerfiles.")
@click.option("--only", type=click.Choice(["redis", "node-worker", "python-worker"]), default=None)
def main(base: str, only: str | None) -> None:
    """Build the images. Raises EnvironmentProblem with docker's last lines."""
    builders = {"redis": _redis_context, "node-worker": _node_context, "python-worker": _python_context}
    with prepare(EnvironmentOptions(), click.echo, redis="program") as environment:
        for name, fill in builders.items():
            if only not in {None, name}:
                continue
            with tempfile.TemporaryDirectory() as folder:
                fill(Path(folder), environment)
                _build(name, Path(folder), base)
                click.echo(f"bullmq-conformance/{name}")


def _redis_context(_folder: Path, _environment: Environment) -> None:
    """Nothing but the Dockerfile."""


def _node_context(folder: Path, environment: Environment) -> None:
    """The pinned package, and the driver of the oracle."""
    shutil.copytree(environment.toolchain.package.root, folder / "modules", symlinks=True)
    shutil.copytree(HARNESS, folder / "driver", ignore=shutil.ignore_patterns("*.py", "__pycache__"))


def _python_context(folder: Path, environment: Environment) -> None:
    """Wheels of the kit and of what its driver needs, and the pinned package for its Lua scripts."""
    root = environment.toolchain.package.root
    shutil.copytree(root, folder / "cache" / root.name, symlinks=True)
    with tempfile.TemporaryDirectory() as copy:  # building leaves traces in the folder of the project
        project = shutil.copytree(PROJECT, Path(copy, "project"), ignore=shutil.ignore_patterns(*NOT_COPIED))
        _wheels(project, folder / "wheels")


def _wheels(project: Path, folder: Path) -> None:
    needed = [f"{name}=={version(name)}" for name in NEEDED]
    wheels = ["--wheel-dir", str(folder), str(project), *needed, *FOR_OTHER_PYTHONS]
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", *wheels])


def _build(name: str, context: Path, base: str) -> None:
    shutil.copy(HERE / f"{name}.Dockerfile", context / "Dockerfile")
    chosen = ["--build-arg", f"BASE={base}"] if base else []
    _run(["docker", "build", "--quiet", *chosen, "--tag", f"bullmq-conformance/{name}", str(context)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise EnvironmentProblem(f"`{' '.join(command[:4])} ...` failed:\n{tail}", hint="see docs/chaos.md, Images")


if __name__ == "__main__":
    main()
