"""The lines of a run: what the gate writes down and every report is computed from.

A run file is append-only JSONL: one `RunHeader`, one `ScenarioRecord` per scenario (and assignment of its roles), one
`RunFooter`.
A file without a footer is an incomplete run and every report says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, get_args

import msgspec

from conformance.driver.messages import client_text
from conformance.findings import Finding
from conformance.ledger.profiles import declared_names

FORMAT = 1

Verdict = Literal["pass", "fail", "warn", "unsupported", "unchecked", "inconclusive", "changed", "error"]
"""`warn`: fails a SHOULD. `unsupported`: an op or capability that the client does not declare. `unchecked`: a failure
of another requirement ended the scenario before its evidence. `inconclusive`: a deadline of the kit or an `info` answer
left the question open. `changed`: the oracle, of a version that nobody prepared, does otherwise than the scenario
says. `error`: the kit, the oracle or the set-up broke."""

WORST_FIRST: tuple[Verdict, ...] = (
    "fail",
    "error",
    "inconclusive",
    "changed",
    "warn",
    "unchecked",
    "pass",
    "unsupported",
)
"""The one ordering of verdicts. `fail` before `error`: what is known about the client outlives what could not be found
out. `pass` before `unsupported`: one scenario that saw the requirement hold has decided it."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; pass if there are none."""
    return min(verdicts, key=WORST_FIRST.index, default="pass")


Level = Literal["MUST", "SHOULD", "MAY"]
LEVELS: tuple[Level, ...] = get_args(Level)


class Party(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client that took part: what its handshake said, and how it was started.

    `lacks`: what it says that others have beside operations and capabilities. `packages`: versions of the libraries
    that it stands on. `folder`: its name among the clients that come with the kit, empty for one that was started by a
    command.
    """

    name: str
    language: str
    version: str
    targets: str
    command: list[str]
    capabilities: list[str]
    ops: list[str]
    fixed_prefix: str | None = None
    lacks: list[str] = []
    packages: dict[str, str] = {}
    folder: str = ""

    @property
    def text(self) -> str:
        """The client and what it stands on, with all versions, for people."""
        return client_text(self)

    @property
    def declared(self) -> frozenset[str]:
        """What profiles can ask for, and the client has."""
        return declared_names(self.ops, self.capabilities, self.lacks)


class RedisInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where Redis came from, and what it is. `settings`: the CONFIG values that matter to BullMQ."""

    source: str
    version: str
    mode: Literal["standalone", "cluster"]
    settings: dict[str, str]


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="header"):
    """First line of a run. Times are Unix ms. `options`: those that differ from their defaults.

    `not_run`: examined requirements that no scenario of this run speaks about, with the reason. `partner`: who took the
    oracle's place as the second client on one queue; None where that was the oracle itself.
    """

    format: int
    kit: str
    run: str
    started_ms: int
    seed: int
    tier: str
    command: list[str]
    requirement_set: str
    client: Party
    oracle: Party
    redis: RedisInfo
    environment: dict[str, str]
    planned: int
    options: dict[str, Any] = {}
    not_run: dict[str, str] = {}
    partner: Party | None = None


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a scenario: a call of both sides or of one, or something that the kit did.

    `do`: the operation; `clock` (`args.ms` pass), `wait` (for what `args.what` says), `network` (`args.what` happens
    between the client and Redis) or `redis` (`args.words`, a command) where it is the kit. `on`: the handle. `args`: of
    the call, without what each side has for itself (its Redis), and PREFIX where its prefix stood. `oracle`, `client`,
    `partner`: how it ended on that side, as text; empty where that side took no part.
    """

    by: Literal["both", "oracle", "client", "partner", "kit"]
    do: str
    on: str = ""
    args: dict[str, Any] = {}
    oracle: str = ""
    client: str = ""
    partner: str = ""


class ScenarioRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="scenario"):
    """What one scenario found.

    `requirements` holds the verdict of each requirement that the scenario speaks about, `known` the reason of those
    that known.toml excuses. `about`: the requirements that the scenario itself states; others are there because
    findings speak against them. `steps`: what was done, where there are findings. `timings_ms`: time spent in
    `oracle`, `client`, `observe` and in all (`total`). `repeated`: what the attempts before the last one said, which do
    not count because the machine starved, or because the client fails now and then (`unsteady`: why). `unanswered`:
    operations that the client did without an answer, so that there was none to compare.
    """

    id: str
    title: str
    area: str
    tier: str
    verdict: Verdict
    requirements: dict[str, Verdict]
    findings: list[Finding] = []
    known: dict[str, str] = {}
    reason: str = ""
    timings_ms: dict[str, float] = {}
    reproduce: str = ""
    log: list[str] = []
    about: list[str] = []
    steps: list[StepRecord] = []
    repeated: list[str] = []
    unanswered: list[str] = []
    unsteady: str = ""


class RunFooter(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="footer"):
    """Last line of a run. `exit_code` as in the README.

    `stale`: requirements that known.toml lists and that pass now, with the listed reason. `problems`: sentences about
    the whole run (known entries that matched nothing, a driver that could not be started again, ...). `stopped`: why
    the run was ended before its last planned scenario, where that was asked for. `unanswered`: the operations that the
    client did without an answer.
    """

    finished_ms: int
    exit_code: int
    verdicts: dict[str, int]
    stale: dict[str, str] = {}
    problems: list[str] = []
    startup_ms: dict[str, float] = {}
    stopped: str = ""
    unanswered: list[str] = []


Record = RunHeader | ScenarioRecord | RunFooter


def encode(record: Record) -> bytes:
    """One JSONL line, newline included.

    Job data may hold lone surrogates, and Redis bytes that are no UTF-8: they are shown as escapes, because losing the
    whole record would be worse.
    """
    try:
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(plain(record))) + b"\n"


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return value


def decode(line: bytes) -> Record:
    """Read one line. Raises msgspec.ValidationError for anything that is not a record of this format."""
    decoded: Record = msgspec.json.decode(line, type=Record)
    return decoded


def plain(record: Record) -> dict[str, Any]:
    """The record as JSON values, for templates."""
    converted: dict[str, Any] = msgspec.to_builtins(record)
    return converted


HIDDEN = "***"
"""Stands where a password was."""

_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^:@/?#]*:).*@", re.DOTALL | re.IGNORECASE)
"""User and password of a URL, up to the last `@`: one that was not percent-encoded may hold any character."""


def redacted(words: Sequence[str]) -> list[str]:
    """The words of a command line without the passwords of URLs, also in words like `--redis=redis://…`."""
    return [without_password(word) for word in words]


def without_password(text: str) -> str:
    """A text that is, or ends with, a URL: the same without its password."""
    return _PASSWORD.sub(rf"\g<before>{HIDDEN}@", text)


try:
    KIT_VERSION = version("bullmq-conformance")
except PackageNotFoundError:  # run from a folder that was never installed
    KIT_VERSION = "0+unknown"
