"""Builds on the user's machine, mostly of clients: one build per state of the source, kept in the cache."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from conformance.problems import EnvironmentProblem
from conformance.upstream.package import CACHE_VARIABLE, cache_folder, exclusive_lock

LAST_LINES = 6


@dataclass(frozen=True)
class BuildTool:
    """The build tool of a language. `program` is its name on PATH; `hint` explains how to install it."""

    program: str
    hint: str


BUILD_TOOLS = {
    "rust": BuildTool("cargo", "install Rust, for example with rustup"),
    "go": BuildTool("go", "install Go"),
    "java": BuildTool("javac", "install a JDK 17 or newer"),
}
"""Tools by the value of `toolchain` in a `client.toml`."""


class BuildStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[build]` of a `client.toml`.

    `command` runs in the client's folder; `{work}` in it is a folder of the cache that stays between builds, so that
    dependencies are compiled once. `program` is the driver's program below `{work}`. `sources` are
    files and folders, relative to the client's; a change of one of them causes a new build. `lock` is the one among
    them that pins all dependencies.
    """

    toolchain: str
    command: tuple[str, ...]
    program: str
    lock: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class ClientBuild:
    """The build of one client, whose `client.toml` and source are in `folder`.

    `kind`: its name in messages; not "client" for a part of the kit that is built in the same way.
    """

    client: str
    folder: Path
    step: BuildStep
    kind: str = "client"

    @property
    def tool(self) -> BuildTool:
        """Its build tool. Raises KeyError for an unknown toolchain."""
        return BUILD_TOOLS[self.step.toolchain]

    @property
    def program(self) -> Path:
        """The path of the built program in the cache; it may not exist yet."""
        return cache_folder() / f"built-{self.client}-{self._key()}" / Path(self.step.program).name

    def obstacle(self) -> str:
        """Why it cannot run on this machine, with what to do; empty if it can."""
        if self.program.exists() or shutil.which(self.tool.program):
            return ""
        return f"needs {self.tool.program}: {self.tool.hint}"

    def ensure(self, announce: Callable[[str], None]) -> Path:
        """The built program. Builds it first, unless this state of the source was built before.

        Raises EnvironmentProblem if the toolchain is missing, the build fails (with its last lines), or the cache
        cannot be written.
        """
        program = self.program
        try:
            if not program.exists():
                self._build_once(program, announce)
        except OSError as error:
            raise EnvironmentProblem(
                f"the cache folder {program.parent.parent} cannot be used: {error}",
                hint=f"set {CACHE_VARIABLE} to a writable folder",
            ) from error
        return program

    def _build_once(self, program: Path, announce: Callable[[str], None]) -> None:
        if shutil.which(self.tool.program) is None:
            raise EnvironmentProblem(
                f"{self.kind} {self.client!r} needs {self.tool.program} to be built, but it is not on PATH",
                hint=self.tool.hint,
            )
        work = self._work
        work.mkdir(parents=True, exist_ok=True)
        # Builds in one folder share compiled dependencies, so only one may run at a time.
        with exclusive_lock(
            work.parent / f".{work.name}.lock", on_wait=lambda: announce("waiting for another build ...")
        ):
            if not program.exists():
                announce(
                    f"building the {self.kind} {self.client!r} with {self.tool.program} (once; takes some minutes)"
                )
                self._run(work)
                self._keep(work / self.step.program, program)

    @property
    def _work(self) -> Path:
        """The build folder: one for all clients of a language; a part of the kit has its own, to wait for no client."""
        return cache_folder() / f"build-{self.step.toolchain if self.kind == 'client' else self.client}"

    def _run(self, work: Path) -> None:
        command = [word.format(work=work) for word in self.step.command]
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            # stdout too: tools differ in where they print errors.
            tail = " | ".join((done.stdout + done.stderr).strip().splitlines()[-LAST_LINES:])
            raise EnvironmentProblem(
                f"the {self.kind} {self.client!r} could not be built: {tail}",
                hint=f"run `{' '.join(command)}` in {self.folder} to see the full output",
            )

    def _keep(self, built: Path, program: Path) -> None:
        """Copy the built program into the cache."""
        # Through a temporary folder and a rename: another process sees the complete folder or none.
        part = Path(tempfile.mkdtemp(prefix=f"{program.parent.name}.part-", dir=program.parent.parent))
        try:
            shutil.copy2(built, part / program.name)
            # mkdtemp makes the folder private, but other users may share the cache.
            part.chmod(0o755)
            part.rename(program.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _key(self) -> str:
        """A hash of the source and of the kind of machine, because machines may share a cache."""
        digest = hashlib.sha256(f"{platform.system()} {platform.machine()} {self.step.command}".encode())
        for path in _files(self.folder, self.step.sources):
            # The names too: moving code between files changes the build but not the joined bytes.
            digest.update(f"\0{os.path.relpath(path, self.folder)}\0".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]


def _files(folder: Path, sources: Sequence[str]) -> Iterator[Path]:
    """All files of the sources, in the same order on every machine."""
    for source in sources:
        path = folder / source
        yield from sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
