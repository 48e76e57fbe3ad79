"""The options of a run: each is declared once, as a field, and reaches both command lines and the run file."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import pytest
from msgspec import Meta

from conformance.environment.clients import client_folders
from conformance.environment.prepare import EnvironmentOptions
from conformance.gate.known import list_for, list_name
from conformance.gate.records import Level, redacted
from conformance.participants.marks import Tier
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION

COMMAND_FLAG = "--client-command"
"""How `pytest conformance/` is given the command of a driver; `bullmq-conformance run` takes it after `--`."""


REPEATED = {"reproduce": True}
"""Marks an option that a failure may depend on: the line that runs a scenario again repeats it."""


class RunConfig(EnvironmentOptions, frozen=True, kw_only=True):
    """Everything that a run was asked for.

    A field with a description is an option: its name is the flag (unless `extra` names another one, for a word that
    Python keeps for itself), its type says what the choices are and whether it may be repeated. A new one is on every
    command line and in the run file's header without another line of code.
    """

    client: Annotated[
        str, Meta(description="Client under test: reference, node, python-official or another by name.")
    ] = "reference"
    command: list[str] = msgspec.field(default_factory=list)
    packages: Annotated[
        list[str],
        Meta(
            description="PACKAGE==VERSION that the client stands on, such as redis==7.4.1; repeatable.",
            extra={**REPEATED, "flag": "--with"},
        ),
    ] = msgspec.field(default_factory=list)
    oracle: Annotated[
        str,
        Meta(description="Version of BullMQ that is right: 5.81.5, newest-5, newest; default: 5.62.0.", extra=REPEATED),
    ] = ""
    partner: Annotated[
        str,
        Meta(
            description="Second client of hand-overs: NAME[@VERSION] or a driver's command; default: the oracle.",
            extra=REPEATED,
        ),
    ] = ""
    redis: Annotated[
        str,
        Meta(
            description="URL, binary:PATH, bundled, container[:IMAGE] or cluster[:N]; default: local.", extra=REPEATED
        ),
    ] = ""
    node: Annotated[str, Meta(description="Node.js binary (>= 18) for the oracle.", extra=REPEATED)] = ""
    seed: Annotated[int, Meta(description="Seed of everything random.", extra=REPEATED)] = 0
    tier: Annotated[Tier, Meta(description="How much to run.")] = "core"
    level: Annotated[Level, Meta(description="Lowest level to run.")] = "MAY"
    select: Annotated[list[str], Meta(description="Glob over requirement ids, areas or scenario ids; repeatable.")] = (
        msgspec.field(default_factory=list)
    )
    handovers: Annotated[
        bool, Meta(description="Only the hand-overs: what two clients do on one queue, in every assignment of roles.")
    ] = False
    profile: Annotated[
        list[str],
        Meta(description="What the client must be conformant as (`list --profiles` names them); repeatable."),
    ] = msgspec.field(default_factory=list)
    min_decided: Annotated[
        str, Meta(description="Least share of the requirements that must be decided, such as 30%.")
    ] = ""
    no_rule: Annotated[
        list[str],
        Meta(description="Canonical rule to switch off (`list --rules` names them); repeatable.", extra=REPEATED),
    ] = msgspec.field(default_factory=list)
    known: Annotated[
        str,
        Meta(
            description="known.toml, or its folder: failures that are expected; default: the named client's own list."
        ),
    ] = ""
    no_known: Annotated[bool, Meta(description="Excuse nothing, whatever the client's known.toml lists.")] = False
    write_known: Annotated[
        str,
        Meta(description="known.toml to write, or its folder: what failed is added, what is listed and passes goes."),
    ] = ""
    budget: Annotated[str, Meta(description="Time for the run (90s, 5m): then no other scenario is begun.")] = ""
    fail_fast: Annotated[bool, Meta(description="Begin no other scenario once one has failed.")] = False
    out: Annotated[str, Meta(description="Folder for the run file and the reports.")] = ""
    format: Annotated[list[str], Meta(description="Report to write to --out; repeatable, default: all.")] = (
        msgspec.field(default_factory=list)
    )
    invocation: list[str] = msgspec.field(default_factory=list)
    """The words that the user typed."""

    @property
    def oracle_version(self) -> str:
        """The exact version of the oracle, once `settled` has put it in place of a word."""
        return self.oracle or BULLMQ_VERSION

    @property
    def known_path(self) -> Path | None:
        """The list of known failures to use: that of this run's oracle, None if there is none.

        Raises UsageProblem where it is asked for and refused, and for the list of another oracle.
        """
        if self.known and self.no_known:
            raise UsageProblem("--known and --no-known contradict each other", hint="give one of them")
        if self.known:
            return list_for(Path(self.known), self.oracle_version, "--known")
        folder = None if self.no_known or self.command else client_folders().get(self.client)
        own = folder / list_name(self.oracle_version) if folder else None
        return own if own and own.exists() else None

    @property
    def written_list(self) -> Path | None:
        """The known.toml to write, None if none was asked for. Raises UsageProblem for that of another oracle."""
        return list_for(Path(self.write_known), self.oracle_version, "--write-known") if self.write_known else None

    @property
    def is_narrowed(self) -> bool:
        """Whether scenarios of the tier are left out."""
        return bool(self.select or self.profile or self.handovers) or self.level != "MAY"

    @property
    def budget_ms(self) -> float | None:
        """The time for the run, None for as long as it takes. Raises UsageProblem for what is no time."""
        return duration_ms(self.budget, "--budget") if self.budget else None


@dataclass(frozen=True)
class RunOption:
    """One option as a command line needs it.

    `flag`: as it is typed. `choices`: empty for any value. `kind`: str, int, float or bool (a flag); a repeatable one
    is a list of texts. `reproduce`: whether a failure may depend on it.
    """

    name: str
    flag: str
    help: str
    default: Any
    choices: tuple[str, ...]
    repeatable: bool
    kind: type
    reproduce: bool

    def words(self, config: RunConfig) -> Iterator[str]:
        """The words that give the option the value it has in `config`; none where that is the default."""
        value = getattr(config, self.name)
        if value == self.default:
            return
        if self.kind is bool:
            yield self.flag
            return
        for word in value if self.repeatable else [value]:
            yield from (self.flag, str(word))


@cache  # what the types say is read once: each scenario tells how to run it again
def run_options() -> tuple[RunOption, ...]:
    """Every option, in the order of the declaration."""
    return tuple(_options())


def _options() -> Iterator[RunOption]:
    for field in msgspec.structs.fields(RunConfig):
        if get_origin(field.type) is not Annotated:
            continue
        declared, meta = get_args(field.type)
        repeatable = get_origin(declared) is list
        extra = meta.extra or {}
        yield RunOption(
            name=field.name,
            flag=extra.get("flag", f"--{field.name.replace('_', '-')}"),
            help=meta.description,
            default=[] if repeatable else field.default,
            choices=get_args(declared) if get_origin(declared) is Literal else (),
            repeatable=repeatable,
            kind=declared if declared in {int, float, bool} else str,
            reproduce=bool(extra.get("reproduce")),
        )


def recorded(config: RunConfig) -> dict[str, Any]:
    """The options that differ from their defaults, for the header of the run file; passwords are left out."""
    given = {option.name: getattr(config, option.name) for option in run_options()}
    return {
        option.name: redacted(given[option.name]) if option.repeatable else redacted([str(given[option.name])])[0]
        for option in run_options()
        if given[option.name] != option.default
    }


def words_of(config: RunConfig) -> list[str]:
    """The run as words for pytest, which hands the same to its xdist workers."""
    words = [word for option in run_options() for word in option.words(config)]
    return words + ([COMMAND_FLAG, json.dumps(config.command)] if config.command else [])


def add_options(parser: pytest.Parser) -> None:
    """The options of `pytest conformance/`."""
    group = parser.getgroup("bullmq-conformance", "BullMQ conformance")
    group.addoption(COMMAND_FLAG, default="", help="Command of your driver, instead of --client.")
    for option in run_options():
        settings: dict[str, Any] = {"dest": option.name, "default": option.default, "help": option.help}
        settings |= {"choices": option.choices} if option.choices else {}
        if option.kind is bool:
            settings["action"] = "store_true"
        else:
            settings |= {"action": "append"} if option.repeatable else {"type": option.kind}
        group.addoption(option.flag, **settings)


def from_pytest(config: pytest.Config) -> RunConfig:
    """Read the options back. Raises UsageProblem for a command that cannot be split into words."""
    given = {option.name: getattr(config.option, option.name) for option in run_options()}
    return RunConfig(
        **given,
        command=split_command(config.option.client_command),
        invocation=["pytest", *map(str, config.invocation_params.args)],
    )


_UNITS_MS = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|)")


def duration_ms(text: str, option: str, *, positive: bool = True) -> float:
    """A time such as `200ms`, `90s`, `5m`, `1h`, or a number of seconds, in ms.

    Raises UsageProblem, which names the option, for anything else, and for zero where it has to be `positive`.
    """
    found = _DURATION.fullmatch(text.strip())
    duration = float(found[1]) * _UNITS_MS[found[2]] if found else -1.0
    if duration < 0 or (positive and duration == 0):
        raise UsageProblem(f"{option} {text!r} is no time", hint="write it as 200ms, 90s, 5m or 1h")
    return duration


def split_command(text: str) -> list[str]:
    """A driver's command as words: a JSON array, or a line with the quoting of a POSIX shell."""
    if not text:
        return []
    try:
        return msgspec.convert(json.loads(text), list[str]) if text.startswith("[") else shlex.split(text)
    except (ValueError, msgspec.ValidationError) as error:
        raise UsageProblem(
            f"the driver command {text!r} cannot be read: {error}", hint="quote it like a shell"
        ) from error
