"""`run`: check a client against the oracle."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from rich.console import Console

from conformance.gate.preparing.prerequisites import insist, required_names
from conformance.gate.preparing.setup import prepare
from conformance.gate.run.config import RunConfig
from conformance.gate.run.plugin import GatePlugin, nothing_selected
from conformance.gate.run.quiet import QuietPytest
from conformance.gate.scenario import TIERS
from conformance.problems import EnvironmentProblem, UsageProblem
from conformance.report.listening import listeners_for

PACKAGE = Path(str(files("conformance")))
MOST_JOBS = 8


@click.command()
@click.option("--client", default="", help="Client under test: reference, node, python-official or another by name.")
@click.option("--select", multiple=True, help="Glob over requirement ids, areas or scenario ids; repeatable.")
@click.option("--level", type=click.Choice(["MUST", "SHOULD", "MAY"]), default="MAY", help="Lowest level to run.")
@click.option("--tier", type=click.Choice(TIERS), default="core", show_default=True, help="How much to run.")
@click.option("--no-rule", multiple=True, help="Canonical rule to switch off (`list --rules` names them); repeatable.")
@click.option("--known", default="", help="known.toml: failures that are expected, with reasons.")
@click.option(
    "--redis", default="", help="URL, binary:PATH, bundled, container[:IMAGE] or cluster[:N]; default: local."
)
@click.option("--node", default="", help="Node.js binary (>= 18) for the oracle.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes that run scenarios; default: cores.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of everything random.")
@click.option("--out", default="", help="Folder for the run file and the reports.")
@click.option("--format", "formats", multiple=True, help="Reports to write to --out; default: all.")
@click.option("--require", default="", help="Prerequisites that must not be missing, e.g. docker,java,node.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(client: str, command: tuple[str, ...], jobs: int | None, require: str, **options: Any) -> int:
    """Check a client: a named one, or the driver started by COMMAND (after `--`)."""
    if client and command:
        raise UsageProblem("both --client and a driver's command were given", hint="give one of them")
    insist(required_names(require), node=str(options["node"]))
    name = client or (Path(command[0]).name if command else "reference")
    config = msgspec.convert(
        {"client": name, "command": command, "invocation": ["bullmq-conformance", *sys.argv[1:]], **options}, RunConfig
    )
    return run_gate(config, jobs or min(os.cpu_count() or 1, MOST_JOBS))


def run_gate(config: RunConfig, jobs: int) -> int:
    """Run the scenarios that the configuration selects in so many processes, show them, and return the exit code.

    Raises a Problem for whatever is wrong with the options or the environment.
    """
    listeners = listeners_for(Path(config.out) if config.out else None, config.formats, live=True)
    with ExitStack() as stack:
        plugin = GatePlugin(config, listeners, _announce)
        plugin.use(*prepare(config, stack, _announce))
        quiet = QuietPytest()
        stack.callback(_show_cursor)
        code = pytest.main(_arguments(config, jobs), plugins=[plugin, quiet])
    if code == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if plugin.exit_code is not None:
        return plugin.exit_code
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise nothing_selected(config)
    raise EnvironmentProblem(f"the run broke off (pytest ended with {code}):\n{quiet.output.getvalue()}")


def _arguments(config: RunConfig, jobs: int) -> list[str]:
    """What pytest is told; xdist hands the same words to its workers."""
    words = [str(PACKAGE / "scenarios"), "--rootdir", str(PACKAGE), "-c", os.devnull]
    words += ["-p", "no:cacheprovider", "--import-mode=importlib", "--strict-markers"]
    words += ["-n", str(jobs), "--dist", "worksteal"] if jobs > 1 else ["-p", "no:xdist"]
    for name in ("client", "redis", "node", "tier", "level", "known"):
        value = getattr(config, name)
        words += [f"--{name}", value] if value else []
    words += [word for pattern in config.select for word in ("--select", pattern)]
    words += [word for rule in config.no_rule for word in ("--no-rule", rule)]
    words += ["--client-command", json.dumps(config.command)] if config.command else []
    return [*words, "--seed", str(config.seed)]


def _show_cursor() -> None:
    """Give the terminal its cursor back: a live view that was interrupted has hidden it."""
    Console(stderr=True).show_cursor(show=True)


def _announce(text: str) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(text)
