"""The corpus of real bugs: one row for each entry under "Bug Fixes" in the changelogs of BullMQ and its ports.

Every entry until 21 August 2026 (Node.js 6.2.0) has a row, and so have open issues of the ports. A row is `caught`
if it has a proof (see `proof.py`), `not visible` if no driver can show the bug, else `open`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from functools import lru_cache
from importlib.resources import files
from typing import Literal, get_args

import msgspec

from conformance.ledger.loader import load_ledger

Port = Literal["node", "python", "rust", "elixir", "php", "go"]
Area = Literal[
    "adding",
    "claiming",
    "finishing",
    "retries",
    "stalled",
    "locks",
    "flows",
    "schedulers",
    "deduplication",
    "rate-limits",
    "pausing",
    "removal",
    "retention",
    "getters",
    "events",
    "metrics",
    "connections",
    "closing",
    "sandbox",
    "telemetry",
    "types",
    "dependencies",
    "packaging",
    "performance",
    "scripts",
    "postgres",
    "logging",
]
Visible = Literal["state", "event", "answer", "traffic", "time", "connections", "inside"]
Status = Literal["caught", "open", "not visible"]

FuzzReason = Literal[
    "loop", "listener", "connection", "same-time", "time", "lost-key", "older-data", "many-calls", "unfound", "unhunted"
]
"""Why `fuzz` does not find a bug.

`loop`: the worker's own loop has it, and the workers of `fuzz` take their jobs by calls. `listener`: only a listener in
the client's process, or an event reader, sees it. `connection`: a connection must be lost, slow, shared, of a cluster,
or made in another way. `same-time`: two calls must overlap. `time`: the client's clock must pass a minute, and the kit
cannot set it. `lost-key`: Redis must have lost a key. `older-data`: it is about data or repeatable jobs of older
versions. `many-calls`: it takes hundreds of calls. `unfound`: a sequence can provoke it, but one to three searches of
a minute found none. `unhunted`: a sequence can provoke it, and none was searched for.
"""

RELEASES = "releases"
"""A proof by the releases themselves: the one before the fix fails, and the one with the fix passes."""


class Bug(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One bug.

    `id`: port and number of the pull request or issue. `fixed`: the release with the fix, empty if there is none;
    `before`: the release before it; `commit`: start of the hash of the fix; `repository`: of the issue, if not
    upstream's. `harm`: what a user suffers, in one sentence. `visible`: how a test can see it that drives the client
    from outside; `inside` if none can, with the `reason`.

    `requirement`: the row of the ledger that it violates, empty if no row does. `proof`: `releases`, or the id of the
    bug of another port that the same commit has fixed in the shared Lua scripts, or the name of a mutant that has the
    same defect; empty if there is none. `select`: the scenarios of the proof, by default all of the
    requirement. `oracle`: the release to compare with in the proof, by default the kit's own or, for a fix that is
    newer, the release of the fix. `redis`: the server of the proof, if it needs a certain one, such as `cluster:3`.

    `fuzz`: of a caught bug, the seed with which `fuzz --mode differential` finds it within a minute, or why not.
    The clients are those of the proof: the one with the bug is compared with the fix, and a mutant with Node.js.
    """

    id: str
    fixed: str = ""
    before: str = ""
    commit: str = ""
    repository: str = "taskforcesh/bullmq"
    harm: str
    area: Area
    visible: Visible = "inside"
    requirement: str = ""
    reason: str = ""
    proof: str = ""
    select: str = ""
    oracle: str = ""
    redis: str = ""
    fuzz: int | FuzzReason | None = None

    @property
    def port(self) -> str:
        """The client that had the bug."""
        return self.id.partition("-")[0]

    @property
    def url(self) -> str:
        """The page of the pull request or issue; of the commit if the changelog names neither."""
        number = self.id.split("-")[1]
        return f"https://github.com/{self.repository}/" + (
            f"issues/{number}" if number.isdecimal() else f"commit/{self.commit}"
        )

    @property
    def is_proven_by_releases(self) -> bool:
        """Whether releases show it: its own, or those of a port that runs the same scripts."""
        return self.proof == RELEASES or self.proof.partition("-")[0] in get_args(Port)

    @property
    def status(self) -> Status:
        """Whether the kit catches it."""
        if self.visible == "inside":
            return "not visible"
        return "caught" if self.proof else "open"


Corpus = Mapping[str, Bug]
"""All bugs by id: a port after the other, the newest first, and after them those that are not visible."""


@lru_cache(maxsize=1)
def load_corpus() -> Corpus:
    """Read the data files, one per port. Raises ValueError for a row that is not well-formed."""
    folder = files("conformance.bugs") / "data"
    bugs = [
        bug for port in get_args(Port) for bug in read_bugs(folder.joinpath(f"{port}.toml").read_text("utf-8"), port)
    ]
    return corpus_of(bugs)


def corpus_of(bugs: Iterable[Bug]) -> Corpus:
    """Return the corpus of these rows. Raises ValueError for an id given twice, or a row that contradicts itself."""
    by_id: dict[str, Bug] = {}
    for bug in bugs:
        if bug.id in by_id:
            raise ValueError(f"two bugs have the id {bug.id!r}")
        if problem := _problem_with(bug):
            raise ValueError(f"bug {bug.id}: {problem}")
        by_id[bug.id] = bug
    return by_id


class BlindDraw(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Visible bugs drawn at random before scenarios were written for their classes, and how many were caught then."""

    drawn: date
    seed: str
    caught_then: int
    ids: list[str]


def load_blind_draw() -> BlindDraw:
    """Read the draw. Raises ValueError if it is not well-formed."""
    text = (files("conformance.bugs") / "data" / "blind.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), BlindDraw)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A port's data file. `bug`: by id, the harm and then tables of the other fields.

    `inside`: the rows that are not visible from outside, one line each.
    """

    bug: dict[str, list[str | dict[str, str | int]]] = {}
    inside: list[Bug] = []


def read_bugs(text: str, port: str) -> list[Bug]:
    """Return the rows of a port's data file. Raises ValueError if it is not TOML or has another shape."""
    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ValueError(f"bugs of {port}: {error}") from error
    bugs = [*(_read_row(bug_id, row) for bug_id, row in file.bug.items()), *file.inside]
    strangers = [bug.id for bug in bugs if bug.port != port]
    if strangers:
        raise ValueError(f"bugs of {port}: {strangers[0]} belongs to another port")
    return bugs


def _read_row(bug_id: str, row: Iterable[str | dict[str, str | int]]) -> Bug:
    """Return the bug of a row. Raises ValueError if a field is unknown, missing, of another type, or given twice."""
    fields: dict[str, str | int] = {"id": bug_id}
    for part in row:
        for name, value in {"harm": part}.items() if isinstance(part, str) else part.items():
            if name in fields:
                raise ValueError(f"bug {bug_id}: two values of {name!r}")
            fields[name] = value
    try:
        return msgspec.convert(fields, Bug)
    except msgspec.ValidationError as error:
        raise ValueError(f"bug {bug_id}: {error}") from error


def _problem_with(bug: Bug) -> str:
    """Return the contradiction in the row; empty if there is none."""
    if (bug.visible == "inside") != bool(bug.reason):
        return "a bug that is visible `inside` only has a reason, and no other has"
    if bug.requirement and bug.requirement not in load_ledger():
        return f"the ledger has no requirement {bug.requirement!r}"
    if bug.proof and not bug.requirement:
        return "a proof needs the requirement that fails"
    if bug.proof and bug.visible == "inside":
        return "a bug that is not visible cannot be proven"
    if bug.fuzz is not None and bug.status != "caught":
        return "only a caught bug says whether `fuzz` finds it"
    if bug.proof == RELEASES and not (bug.before and bug.fixed):
        return "a proof by releases needs the release of the fix and the one before"
    return ""
