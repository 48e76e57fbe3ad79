"""Options, methods and events that a bullmq package declares in its types, and the defaults of its objects."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec

from conformance.problems import EnvironmentProblem
from conformance.upstream.node import NodeBinary
from conformance.upstream.package import HARNESS

_DEFAULTS_TIMEOUT_S: Final = 60
_FOLDERS: Final = ("interfaces", "types", "classes")
_CLASSES: Final = (
    *("QueueBase", "QueueGetters", "Queue", "Worker", "Job", "FlowProducer", "JobScheduler"),
    *("QueueEvents", "QueueEventsProducer", "Relay"),
)
_LISTENERS: Final = ("QueueListener", "WorkerListener", "QueueEventsListener")
_OPTIONS: Final = re.compile(r"\w+(Options|Opts)$|KeepJobs$|FlowJob(Base)?$")
_NOT_OPTIONS: Final = re.compile(
    r"(Redis|Cluster|Connection|IORedis|Postgres|Base)Options|\w*Backend\w*|(Span|Metric|LockManager)Options"
    r"|(AddChildren|AddNode|ParentKey|RetryJob|MoveToDelayed)Opts|JobSchedulerJobOptions"
)
"""Of the libraries that connect, of databases other than Redis, and of calls inside the library."""

_COMMENT: Final = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TOKEN: Final = re.compile(r"""[A-Za-z_$][\w$]*|=>|'[^']*'|"[^"]*"|`[^`]*`|\S""")
_DECLARED: Final = re.compile(r"export (?:declare )?(?:abstract )?(interface|class|type) (\w+)")
_MODIFIERS: Final = frozenset({"readonly", "static", "get", "set", "abstract", "declare", "async", "override"})
_HIDDEN: Final = frozenset({"private", "protected"})
_OPENING: Final = {"{": "}", "(": ")", "<": ">", "[": "]"}


@dataclass(frozen=True)
class Declarations:
    """The names that a package declares, each as `Type.name`, with a dot for each level of an inline object.

    `options`: with their types as text. `methods`: public ones of the classes that users create, with the options that
    they declare inline. `events`: local events, by the interface of their listeners.
    """

    options: dict[str, str] = field(default_factory=dict)
    methods: set[str] = field(default_factory=set)
    events: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        """All of them."""
        return {*self.options, *self.methods, *self.events}


def read_declarations(root: Path) -> Declarations:
    """Read the package in the folder `root`, which holds `node_modules`. Raises EnvironmentProblem if it has none."""
    home = root / "node_modules" / "bullmq" / "dist" / "esm"
    found = Declarations()
    for path in sorted(path for folder in _FOLDERS for path in (home / folder).glob("*.d.ts")):
        for kind, name, members in declared_in(path.read_text("utf-8")):
            if kind == "class" and name in _CLASSES:
                found.methods.update(f"{name}.{member.path}" for member in members if not member.is_property)
                found.methods.update(f"{name}.{member.path}" for member in members if "." in member.path)
            elif name in _LISTENERS:
                found.events.update(f"{name}.{member.path}" for member in members if "." not in member.path)
            elif kind != "class" and _OPTIONS.fullmatch(name) and not _NOT_OPTIONS.fullmatch(name):
                found.options.update({f"{name}.{member.path}": member.type for member in members})
    if not found.methods:
        raise EnvironmentProblem(
            f"{home} has no TypeScript declarations of bullmq", hint="remove the folder, and retry"
        )
    return found


def read_defaults(node: NodeBinary, root: Path) -> dict[str, dict[str, Any]]:
    """The options of new objects (`WorkerOptions`, ...) for which the user has given none, by name.

    Raises EnvironmentProblem if the package in the folder `root` cannot be loaded.
    """
    command = [str(node.path), str(HARNESS / "defaults.mjs"), str(root)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_DEFAULTS_TIMEOUT_S, check=True)
        return msgspec.json.decode(done.stdout, type=dict[str, dict[str, Any]])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise EnvironmentProblem(
            f"the defaults of the package below {root} cannot be read: {error}", hint="remove the folder, and retry"
        ) from error


@dataclass(frozen=True)
class Member:
    """A member of an interface, class or type. `path`: its name, after those of the inline objects around it."""

    path: str
    is_property: bool
    type: str = ""


def declared_in(text: str) -> Iterator[tuple[str, str, list[Member]]]:
    """Yield kind, name and visible members of each exported interface, class and type of a `.d.ts` file."""
    plain = _COMMENT.sub("", text)
    starts = list(_DECLARED.finditer(plain))
    for match, following in zip_longest(starts, starts[1:]):
        body = plain[match.end() : following.start() if following else None]
        yield match[1], match[2], list(_members(_TOKEN.findall(body)))


def _members(tokens: Sequence[str]) -> Iterator[Member]:
    """Read names at the starts of statements directly inside braces; those inside parentheses are parameters."""
    around: list[tuple[str, str]] = []  # closing token, and the path of the member that it belongs to
    path, is_hidden, is_start = "", False, False
    for place, token in enumerate(tokens):
        if token in _OPENING:
            around.append((_OPENING[token], path))
            is_start = token == "{"
        elif around and token == around[-1][0]:
            _, path = around.pop()
            is_start = token == "}" and bool(around) and around[-1][0] == "}"
        elif token in ";," and around and around[-1][0] == "}":
            path, is_hidden, is_start = _path_of(around), False, True
        elif is_start and token in _HIDDEN:
            is_hidden = True
        elif is_start and token not in _MODIFIERS:
            is_start = False
            follows = tokens[place + 1] if place + 1 < len(tokens) else ""
            if not token[0].isalpha() or follows not in {"?", ":", "(", "<"} or token == "constructor":
                continue
            path = ".".join(filter(None, (_path_of(around), token)))
            # Objects in the type parameters of a class, or in the arguments of its constructor, belong to no member.
            if not is_hidden and all(closing == "}" or owner for closing, owner in around):
                yield Member(path, is_property=follows in {"?", ":"}, type=_type_after(tokens, place))


def _path_of(around: Sequence[tuple[str, str]]) -> str:
    return around[-1][1] if around else ""


def _type_after(tokens: Sequence[str], place: int) -> str:
    """The text of a property's type, up to the end of the statement."""
    words: list[str] = []
    depth = 0
    for token in tokens[place + 1 :]:
        depth += (token in _OPENING) - (token in _OPENING.values())
        if depth < 0 or (depth == 0 and token in ";,"):
            break
        words.append(token)
    return " ".join(words).lstrip("?: ")
