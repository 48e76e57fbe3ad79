"""The lines of a run file, from which every report is computed.

A run file is append-only JSONL: one `RunHeader`, one `ScenarioRecord` per scenario (and assignment of its roles), one
`RunFooter`.
A file without a footer is an incomplete run and every report says so.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, get_args

import msgspec

from conformance.driver.messages import client_text
from conformance.findings import Finding
from conformance.ledger.profiles import declared_names
from conformance.pages.text import escaped_surrogates

FORMAT = 1

Verdict = Literal["pass", "fail", "warn", "unsupported", "unchecked", "inconclusive", "changed", "error"]
"""`warn`: fails a SHOULD. `unsupported`: an op or capability that the client does not declare. `unchecked`: a failure
of another requirement ended the scenario before its evidence. `inconclusive`: a deadline of the kit or an `info` answer
left the question open. `changed`: the oracle has an unsupported version and differs from what the scenario expects.
`error`: the kit, the oracle or the set-up broke."""

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
"""The order of verdicts. `fail` before `error`: a shown failure stays true even if other checks broke.
`pass` before `unsupported`: one scenario in which the requirement holds decides it."""


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of several verdicts; pass if there are none."""
    return min(verdicts, key=WORST_FIRST.index, default="pass")


Level = Literal["MUST", "SHOULD", "MAY"]
LEVELS: tuple[Level, ...] = get_args(Level)


class Party(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client that took part: its handshake, and how it was started.

    `lacks`: features, besides operations and capabilities, that it declares as missing. `packages`: versions of the
    libraries that it uses. `folder`: its name among the clients of the kit; empty if it was started by a command.
    `installed`: the packages that the kit has installed for it and verified, by name: version and hash of the archive.
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
    installed: dict[str, str] = {}

    @property
    def text(self) -> str:
        """The client and its libraries, with versions, as text."""
        return client_text(self)

    @property
    def installed_text(self) -> str:
        """The packages that the kit has installed for it, in a few words; empty if there are none."""
        if not self.installed:
            return ""
        lines = "".join(f"{name} {version}\n" for name, version in sorted(self.installed.items()))
        return f"{len(self.installed)} verified packages, sha256 {hashlib.sha256(lines.encode()).hexdigest()[:16]}"

    @property
    def declared(self) -> frozenset[str]:
        """Everything that profiles can require and that the client declares."""
        return declared_names(self.ops, self.capabilities, self.lacks)


class RedisInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The Redis server of a run. `source`: where it came from. `settings`: the CONFIG values that matter to BullMQ."""

    source: str
    version: str
    mode: Literal["standalone", "cluster"]
    settings: dict[str, str]


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="header"):
    """First line of a run. Times are Unix ms. `options`: those that differ from their defaults.

    `not_run`: examined requirements that no scenario of this run covers, with the reason. `partner`: the second client
    on shared queues; None if that was the oracle. `reproduction`: the text of the client's `reproduction.toml`.
    `deselected`: number of scenarios that the options select and that
    pytest's own selection (`-k`, `-m`, node ids, `--lf`, `--deselect`) left out.
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
    reproduction: str = ""
    deselected: int = 0


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a scenario: a call of one or both sides, or an action of the kit.

    `do`: the operation; for the kit `clock` (`args.ms` pass), `wait` (for `args.what`), `network` (`args.what` happens
    between the client and Redis) or `redis` (`args.words`, a command). `on`: the handle. `args`: arguments of the call
    without the side's own Redis URL, and with PREFIX for its prefix. `oracle`, `client`, `partner`: the result on that
    side as text; empty if the side took no part. `stand_in`: the oracle did it on the client's keys, because the driver
    does not declare it.
    """

    by: Literal["both", "oracle", "client", "partner", "kit"]
    do: str
    on: str = ""
    args: dict[str, Any] = {}
    oracle: str = ""
    client: str = ""
    partner: str = ""
    stand_in: bool = False


class ScenarioRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="scenario"):
    """The result of one scenario.

    `requirements`: verdict of each requirement that the scenario covers. `known`: reasons of those that known.toml
    excuses. `about`: the requirements that the scenario itself states; the others have findings against them. `steps`:
    only recorded if there are findings. `timings_ms`: time spent in `oracle`, `client`, `observe` and altogether
    (`total`). `client_cpu_ms`, `oracle_cpu_ms`: CPU time of their drivers. `repeated`: outcomes of earlier attempts,
    which do not count because the machine starved or the client is flaky (`unsteady`: why). `unanswered`: operations
    that the client performed without returning a result to compare.
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
    client_cpu_ms: float = 0.0
    oracle_cpu_ms: float = 0.0
    reproduce: str = ""
    log: list[str] = []
    about: list[str] = []
    steps: list[StepRecord] = []
    repeated: list[str] = []
    unanswered: list[str] = []
    unsteady: str = ""

    @property
    def alone(self) -> bool:
        """Whether a user could repeat the steps with the client alone, on a healthy network."""
        compared = any(step.by == "both" for step in self.steps)
        taken = [step for step in self.steps if not (compared and step.by == "oracle")]
        return not any(step.by in ("oracle", "partner") or step.do == "network" or step.stand_in for step in taken)


class RunFooter(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="footer"):
    """Last line of a run. `exit_code` as in the README.

    `stale`: requirements that known.toml lists and that now pass, with the listed reason. `problems`: messages about
    the whole run (known entries that matched nothing, a driver that could not be restarted, ...). `stopped`: why an
    option ended the run before its last planned scenario. `broke`: why other scenarios have no record. `unanswered`:
    operations that the client performed without returning a result.
    """

    finished_ms: int
    exit_code: int
    verdicts: dict[str, int]
    stale: dict[str, str] = {}
    problems: list[str] = []
    startup_ms: dict[str, float] = {}
    stopped: str = ""
    broke: str = ""
    unanswered: list[str] = []


Record = RunHeader | ScenarioRecord | RunFooter


def encode(record: Record) -> bytes:
    """Encode as one JSONL line, newline included.

    Job data may contain lone surrogates, and Redis bytes that are not UTF-8. They are written as escapes, because
    losing the whole record would be worse.
    """
    try:
        # The usual case is fast; replacing surrogates copies the whole record.
        return msgspec.json.encode(record) + b"\n"
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(plain(record))) + b"\n"


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return escaped_surrogates(value)
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
    """Return the record as JSON values, for templates."""
    converted: dict[str, Any] = msgspec.to_builtins(record)
    return converted


HIDDEN = "***"
"""Replaces passwords."""

_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^:@/?#]*:).*@", re.DOTALL | re.IGNORECASE)
"""User and password of a URL, up to the last `@`: a password that was not percent-encoded may contain any character."""


SYSTEM_FOLDERS = ("/usr/", "/bin/", "/opt/")
"""Folders that are the same on other machines, so their names stay in commands that others read."""


def redacted(words: Sequence[str]) -> list[str]:
    """Remove passwords of URLs from the words of a command line, also in words like `--redis=redis://…`."""
    return [without_password(word) for word in words]


def without_password(text: str) -> str:
    """Remove the password from a text that is, or ends with, a URL."""
    return _PASSWORD.sub(rf"\g<before>{HIDDEN}@", text)


try:
    KIT_VERSION = version("bullmq-conformance")
except PackageNotFoundError:  # run from a folder that is not installed
    KIT_VERSION = "0+unknown"
