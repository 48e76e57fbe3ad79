"""Everything that a run was asked for, in one frozen value, and the pytest options that it is read from."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from conformance.gate.scenario import TIERS, Tier
from conformance.problems import UsageProblem

REQUIRE_VARIABLE = "BULLMQ_CONFORMANCE_REQUIRE"
"""Prerequisites that must not be missing, separated by commas: what CI sets."""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bullmq-conformance run`, which documents them."""

    client: str = "reference"
    command: list[str] = []
    redis: str = ""
    node: str = ""
    tier: Tier = "core"
    level: Literal["MUST", "SHOULD", "MAY"] = "MAY"
    select: list[str] = []
    no_rule: list[str] = []
    known: str = ""
    out: str = ""
    formats: list[str] = []
    seed: int = 0
    invocation: list[str] = []

    @property
    def known_path(self) -> Path | None:
        """The known.toml to use, None if there is none."""
        return Path(self.known) if self.known else None


def add_options(parser: pytest.Parser) -> None:
    """The options of `pytest conformance/`."""
    group = parser.getgroup("bullmq-conformance", "BullMQ conformance")
    group.addoption("--client", default="reference", help="client under test: reference, node, python-official, ...")
    group.addoption("--client-command", default="", help="command of your driver, instead of --client")
    group.addoption(
        "--redis", default="", help="URL, binary:PATH, bundled, container[:IMAGE], cluster[:N]; default: local"
    )
    group.addoption("--node", default="", help="Node.js binary (>= 18) for the oracle")
    group.addoption("--tier", default="core", choices=TIERS, help="how much to run")
    group.addoption("--level", default="MAY", choices=("MUST", "SHOULD", "MAY"), help="lowest level to run")
    group.addoption("--select", action="append", default=[], help="glob over requirement ids, areas or scenario ids")
    group.addoption("--no-rule", action="append", default=[], help="canonical rule to switch off, by name")
    group.addoption("--known", default="", help="known.toml with failures that are expected")
    group.addoption("--out", default="", help="folder for the run file and the reports")
    group.addoption("--format", action="append", default=[], dest="formats", help="report formats to write to --out")
    group.addoption("--seed", type=int, default=0, help="seed of everything random")


def from_pytest(config: pytest.Config) -> RunConfig:
    """Read the options back. Raises UsageProblem for a command that cannot be split into words."""
    option: Any = config.option
    return RunConfig(
        client=option.client,
        command=split_command(option.client_command),
        redis=option.redis,
        node=option.node,
        tier=option.tier,
        level=option.level,
        select=option.select,
        no_rule=option.no_rule,
        known=option.known,
        out=option.out,
        formats=option.formats,
        seed=option.seed,
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
