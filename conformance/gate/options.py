"""The options of a run, and those that several verbs share. How they are declared: `conformance.options`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from conformance.environment.clients import client_folders
from conformance.environment.prepare import EnvironmentOptions
from conformance.gate.client_language import FILE, language_file, language_text
from conformance.gate.known_failures import list_for, list_name
from conformance.gate.records import HIDDEN, Level, redacted
from conformance.options import Option, duration_ms, option_words, options_of
from conformance.participants.marks import Tier
from conformance.problems import UsageProblem
from conformance.protocol.scripts import BULLMQ_VERSION
from conformance.servers.setting import from_environment
from conformance.upstream.package import HARNESS
from conformance.upstream.redis_libraries import DEFAULT, RedisLibrary

if TYPE_CHECKING:  # the verbs for stores start faster without it
    import pytest

COMMAND_FLAG = "--client-command"
"""How `pytest conformance/` is given the command of a driver; `bullmq-conformance run` takes it after `--`."""

ClientName = Annotated[str, Option("Client under test: reference, node, python-official, or another name.")]
Packages = Annotated[
    Sequence[str],
    Option(
        "PACKAGE==VERSION for the client's environment, such as redis==7.4.1; repeatable.", "--with", reproduce=True
    ),
]
ChosenLibrary = Annotated[
    RedisLibrary,
    Option("Library through which Node's BullMQ (5.77 and newer) speaks to Redis.", "--with-driver", reproduce=True),
]
OracleVersion = Annotated[
    str,
    Option("BullMQ version to compare against: 5.81.5, newest-5, newest; default: 5.62.0.", reproduce=True),
]
PartnerClient = Annotated[
    str,
    Option("Second client of hand-overs: NAME[@VERSION] or a driver's command; default: the oracle.", reproduce=True),
]
AnyRedis = Annotated[
    str,
    Option(
        "URL, binary:PATH, bundled, container[:IMAGE], cluster[:N], container-cluster[:N[:IMAGE]] or env:VARIABLE; "
        "default: local.",
        reproduce=True,
    ),
]
SingleRedis = Annotated[
    str, Option("URL, binary:PATH, bundled, container[:IMAGE] or env:VARIABLE; default: local.", reproduce=True)
]
NodeProgram = Annotated[str, Option("Node.js binary (>= 18) for the oracle.", reproduce=True)]
ChosenTier = Annotated[Tier, Option("How much to run.")]


def known_folder(library: RedisLibrary) -> Path:
    """The folder with the lists of what Node's BullMQ is known to do differently with this library."""
    return HARNESS / "known" / library.replace("-", "_")


class RunConfig(EnvironmentOptions, frozen=True, kw_only=True):
    """All options of a run. A new one is also an option of `pytest conformance/` and in the run file's header."""

    client: ClientName = "reference"
    command: Sequence[str] = ()
    packages: Packages = ()
    library: ChosenLibrary = DEFAULT
    declare: Annotated[
        Sequence[str],
        Option("Operation or capability of the driver that counts as declared, instead of all; repeatable."),
    ] = ()
    client_user: Annotated[
        str, Option("Redis user of the client alone: USER:PASSWORD, or env:VARIABLE.", metavar="USER:PASSWORD")
    ] = ""
    oracle: OracleVersion = ""
    partner: PartnerClient = ""
    redis: AnyRedis = ""
    node: NodeProgram = ""
    seed: Annotated[int, Option("Seed of everything random.", reproduce=True)] = 0
    tier: ChosenTier = "core"
    level: Annotated[Level, Option("Lowest level to run.")] = "MAY"
    select: Annotated[Sequence[str], Option("Glob over requirement ids, areas or scenario ids; repeatable.")] = ()
    handovers: Annotated[
        bool, Option("Only hand-overs: scenarios in which two clients share a queue, in every assignment of roles.")
    ] = False
    profile: Annotated[
        Sequence[str], Option("Profile that the client must pass (`list --profiles` names them); repeatable.")
    ] = ()
    min_decided: Annotated[str, Option("Lowest share of the requirements that must be decided, such as 30%.")] = ""
    no_rule: Annotated[
        Sequence[str],
        Option("Canonical rule to switch off (`list --rules` names them); repeatable.", reproduce=True),
    ] = ()
    known: Annotated[
        str, Option("known.toml with the expected failures, or its folder; default: the named client's own list.")
    ] = ""
    no_known: Annotated[bool, Option("Excuse nothing: ignore every known.toml.")] = False
    write_known: Annotated[
        str, Option("known.toml to update, or its folder: adds the failures, removes the entries that pass.")
    ] = ""
    budget: Annotated[str, Option("Time for the run (90s, 5m); after it no further scenario starts.")] = ""
    fail_fast: Annotated[bool, Option("Start no further scenario after the first failure.")] = False
    out: Annotated[str, Option("Folder for the run file and the reports.")] = ""
    format: Annotated[Sequence[str], Option("Report to write to --out; repeatable, default: all.")] = ()
    reproduction: Annotated[
        str,
        Option("reproduction.toml for the scripts of bug reports, or its folder; default: the one next to the driver."),
    ] = ""
    invocation: Sequence[str] = ()
    """The command line."""

    @property
    def oracle_version(self) -> str:
        """The exact version of the oracle; a word such as `newest` must have been resolved by `settled`."""
        return self.oracle or BULLMQ_VERSION

    @property
    def known_path(self) -> Path | None:
        """The list of known failures to use: that of this run's oracle, None if there is none.

        Raises UsageProblem if --known and --no-known are both given, and for the list of another oracle.
        """
        if self.known and self.no_known:
            raise UsageProblem("--known and --no-known contradict each other", hint="give one of them")
        if self.known:
            return list_for(Path(self.known), self.oracle_version, "--known")
        of_client = client_folders().get(self.client) if self.library == DEFAULT else known_folder(self.library)
        folder = None if self.no_known or self.command else of_client
        own = folder / list_name(self.oracle_version) if folder else None
        return own if own and own.exists() else None

    @property
    def reproduction_text(self) -> str:
        """The text of the client's `reproduction.toml`, empty without one. Raises UsageProblem for an invalid file."""
        path = Path(self.reproduction) if self.reproduction else language_file(self.command) if self.command else None
        if path is None and not self.command and (folder := client_folders().get(self.client.partition("@")[0])):
            path = folder / FILE if (folder / FILE).is_file() else None
        return language_text(path) if path else ""

    @property
    def written_list(self) -> Path | None:
        """The known.toml to write, if any. Raises UsageProblem for the list of another oracle."""
        return list_for(Path(self.write_known), self.oracle_version, "--write-known") if self.write_known else None

    @property
    def client_login(self) -> tuple[str, str] | None:
        """User and password of the client alone, if it has its own. Raises UsageProblem without a colon."""
        text = from_environment(self.client_user)
        user, colon, password = text.partition(":")
        if text and not (user and colon and password):
            raise UsageProblem("invalid --client-user: not USER:PASSWORD", hint="as in --client-user env:CLIENT_USER")
        return (user, password) if text else None

    @property
    def is_narrowed(self) -> bool:
        """Whether the options leave out scenarios of the tier."""
        return bool(self.select or self.profile or self.handovers) or self.level != "MAY"

    @property
    def budget_ms(self) -> float | None:
        """The time for the run in ms, None for no limit. Raises UsageProblem for an invalid duration."""
        return duration_ms(self.budget, "--budget") if self.budget else None


def recorded(config: RunConfig) -> dict[str, Any]:
    """The options that differ from their defaults, for the header of the run file; passwords are left out."""
    given = {option.name: getattr(config, option.name) for option in options_of(RunConfig)}
    given["client_user"] = HIDDEN if given["client_user"] else ""
    return {
        option.name: redacted(given[option.name]) if option.repeatable else redacted([str(given[option.name])])[0]
        for option in options_of(RunConfig)
        if given[option.name] not in (option.default, [])
    }


def words_of(config: RunConfig) -> list[str]:
    """The run as words for pytest, which passes them on to its xdist workers."""
    return option_words(config) + ([COMMAND_FLAG, json.dumps(config.command)] if config.command else [])


def add_options(parser: pytest.Parser) -> None:
    """The options of `pytest conformance/`."""
    group = parser.getgroup("bullmq-conformance", "BullMQ conformance")
    group.addoption(COMMAND_FLAG, default="", help=pytest_help("Command of your driver, instead of --client."))
    for option in options_of(RunConfig):
        settings: dict[str, Any] = {"dest": option.name, "default": option.default, "help": pytest_help(option.help)}
        settings |= {"choices": option.choices} if option.choices else {}
        if option.kind is bool:
            settings["action"] = "store_true"
        else:
            # argparse appends to a copy of the default, so that cannot be a tuple.
            settings |= {"action": "append", "default": []} if option.repeatable else {"type": option.kind}
        group.addoption(option.flag, **settings)


def pytest_help(text: str) -> str:
    """A help text for argparse, which takes `%` for the start of a placeholder."""
    return text.replace("%", "%%")


def from_pytest(config: pytest.Config) -> RunConfig:
    """Read the options back. Raises UsageProblem for a command that cannot be split into words."""
    given = {option.name: getattr(config.option, option.name) for option in options_of(RunConfig)}
    return RunConfig(
        **given,
        command=split_command(config.option.client_command),
        invocation=["pytest", *map(str, config.invocation_params.args)],
    )


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
