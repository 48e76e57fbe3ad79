"""Skeletons of drivers, which `driver new` writes for authors to fill in. Each passes the handshake and the probe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from conformance.problems import EnvironmentProblem, UsageProblem

TEMPLATES = Path(str(files("conformance.driver"))) / "templates"
SUFFIX = ".tmpl"
"""Keeps tools away from files that belong to another project."""


@dataclass(frozen=True)
class Skeleton:
    """A language that there is a skeleton for. `command` starts the driver inside its folder, `build` comes before."""

    language: str
    command: tuple[str, ...]
    build: tuple[str, ...] = ()


SKELETONS = {
    skeleton.language: skeleton
    for skeleton in (
        Skeleton("python", ("python", "driver.py")),
        Skeleton("node", ("node", "driver.mjs")),
        Skeleton("go", ("./driver",), build=("go", "build", "-o", "driver", ".")),
    )
}


def write_skeleton(language: str, folder: Path) -> list[Path]:
    """Write the skeleton into the folder, which is made if needed, and return the files.

    Raises UsageProblem for an unknown language or if one of the files exists, EnvironmentProblem if it cannot write.
    """
    if language not in SKELETONS:
        raise UsageProblem(f"there is no skeleton for {language!r}", hint=f"use one of {', '.join(SKELETONS)}")
    contents = dict(_contents(language))
    existing = [name for name in contents if (folder / name).exists()]
    if existing:
        raise UsageProblem(f"{folder / existing[0]} exists already", hint="choose another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_text(content, "utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"cannot write to {folder}: {error.strerror}") from error
    return [folder / name for name in contents]


def _contents(language: str) -> Iterator[tuple[str, str]]:
    """Yield file names and contents. Python's bring the server loop: they run where the kit is not installed."""
    for template in sorted((TEMPLATES / language).glob(f"*{SUFFIX}")):
        yield template.name.removesuffix(SUFFIX), template.read_text("utf-8")
    if language == "python":
        yield "driver_server.py", (TEMPLATES.parent / "serve.py").read_text("utf-8")
