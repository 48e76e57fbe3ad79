"""`fuzz`: look for differences in sequences that nobody wrote."""

from __future__ import annotations

import re
from pathlib import Path

import click
from rich.console import Console

from conformance.fuzz.modes import MODES, Mode
from conformance.problems import UsageProblem

NOTHING, FINDINGS = 0, 1
UNITS_S = {"s": 1, "m": 60, "h": 3600}


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--client", default="", help="Client under test: reference, node, python-official or another by name.")
@click.option("--mode", type=click.Choice(MODES), default="differential", show_default=True, help="How to play.")
@click.option("--budget", default="5m", show_default=True, help="How long: 90s, 5m, 1h.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses the sequences.")
@click.option("--out", default="fuzz-out", show_default=True, help="Folder for findings, examples and coverage.")
@click.option("--redis", default="", help="URL, binary:PATH, bundled or container[:IMAGE]; default: local.")
@click.option("--node", default="", help="Node.js binary (>= 18) for the oracle.")
@click.option(
    "--ignore", multiple=True, help="Glob over places (`job.opts.*`, `meta*`) that are no findings; repeatable."
)
@click.option("--without", multiple=True, help="Glob over operations (`queue.pause`) that are not called; repeatable.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def fuzz(  # noqa: PLR0917 - click passes every option by name
    client: str,
    mode: Mode,
    budget: str,
    seed: int,
    out: str,
    redis: str,
    node: str,
    ignore: tuple[str, ...],
    without: tuple[str, ...],
    command: tuple[str, ...],
) -> int:
    """Look for differences between a client, named or started by COMMAND (after `--`), and the oracle.

    Exit codes: 0 none found, 1 findings, 2 wrong usage, 3 environment or driver broken. Run it again with the same
    --out to go on where it ended.
    """
    # Only here: Hypothesis takes its time to load, and no other verb needs it.
    from conformance.fuzz.session import Wish, run_session  # noqa: PLC0415

    wish = Wish(mode, seconds(budget), seed, Path(out), client, command, redis, node, ignore, without)
    return FINDINGS if run_session(wish, Console(highlight=False)) else NOTHING


def seconds(text: str) -> float:
    """A time such as `90s`, `5m`, `1h`, or a number of seconds. Raises UsageProblem for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if found is None or float(found[1]) <= 0:
        raise UsageProblem(f"--budget {text!r} is no time", hint="write it as 90s, 5m or 1h")
    return float(found[1]) * UNITS_S[found[2] or "s"]
