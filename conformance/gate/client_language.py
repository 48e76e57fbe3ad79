"""`reproduction.toml`: how a user of a client writes each operation. Bug reports get a script from it.

The text of the file travels in the header of a run, so that every report is a function of the run file alone.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import msgspec

from conformance.driver.ops import REGISTRY
from conformance.problems import UsageProblem

FILE = "reproduction.toml"

FOLDERS_ABOVE = 3
"""Folders above that of the driver in which the file may be: `target/release/driver` is two below its own."""

ANY = "*"
"""Key of the template of all other operations, or roles."""

LARGEST = 100_000
"""Characters of a file; its text is in every run file."""

Language = Literal["python", "javascript", "go", "rust", "java", "php", "ruby", "csharp", "elixir"]


class ClientLanguage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`reproduction.toml`, all of it templates: `calls` by operation, `open` by role, and the script around them.

    `prepare`: shell lines that install the client in an empty folder. `run`: the one that starts the script, saved as
    `file`. `start`: what lets seconds pass, `redis`: what sends a command to Redis. `step`: the `line` of a step, what
    `declare`s a variable, and the id that an earlier step (`number`) was `answered` with. A `script` without `readings`
    is followed by redis-cli commands.
    """

    language: Language
    file: str
    prepare: list[str]
    run: str
    start: str
    redis: str
    script: str
    step: dict[str, str]
    open: dict[str, str] = {}
    calls: dict[str, str] = {}

    @property
    def looks_itself(self) -> bool:
        """Whether the script reads Redis and prints the state of both sides."""
        return "readings" in self.script


def read_language(text: str) -> ClientLanguage:
    """Return the content of a `reproduction.toml`. Raises ValueError."""
    if len(text) > LARGEST:
        raise ValueError(f"it has {len(text)} characters, and {LARGEST} at most are possible")
    try:
        language = msgspec.convert(tomllib.loads(text), ClientLanguage)
    except msgspec.ValidationError as error:
        # Ours is a sentence about the file; msgspec's type would say nothing to its author.
        raise ValueError(str(error)) from error
    unknown = sorted(set(language.calls) - {ANY, *REGISTRY})
    if unknown:
        raise ValueError(f"`calls` has the unknown operation {unknown[0]!r}")
    return language


def language_file(command: Sequence[str]) -> Path | None:
    """Return the `reproduction.toml` of a driver: in the folder of one of the files of its command, or just above.

    The current folder comes last, for a command without files (`java -cp out Driver`).
    """
    files = [Path(word).absolute() for word in command if _is_file(word)]
    folders = [folder for file in files for folder in list(file.parents)[: FOLDERS_ABOVE + 1]]
    return next((path for folder in [*folders, Path.cwd()] if (path := folder / FILE).is_file()), None)


def _is_file(word: str) -> bool:
    try:
        return Path(word).is_file()
    # A word may be a whole program (`python -c ...`), which is too long for a name.
    except OSError:
        return False


def language_text(path: Path) -> str:
    """Return the text of a `reproduction.toml`, or of that in a folder. Raises UsageProblem for an invalid one."""
    path = path / FILE if path.is_dir() else path
    try:
        text = path.read_text("utf-8")
        read_language(text)
    except OSError as error:
        raise UsageProblem(
            f"cannot read {path}: {error.strerror}", hint="name a reproduction.toml or its folder"
        ) from error
    except ValueError as error:
        languages = ", ".join(get_args(Language))
        raise UsageProblem(
            f"invalid {path}: {error}", hint=f"`driver new LANGUAGE` writes an example; languages: {languages}"
        ) from error
    return text
