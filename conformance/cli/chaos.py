"""`chaos`: hurt a client, Redis and the network between them, and account for every job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from conformance.cli.options import Duration, run_options_of
from conformance.environment.prepare import EnvironmentOptions, announce, client_under_test, prepare
from conformance.out_folder import prove_writable
from conformance.problems import EnvironmentProblem, printable

if TYPE_CHECKING:
    from chaos.results import ResultRow

TOPOLOGIES = ("single", "replica", "sentinel", "cluster")


@click.command()
@run_options_of("client", "packages", "oracle", "node")
@click.option(
    "--faults",
    default="",
    help="Names and globs, comma-separated; `none` for none; default: all, and the crash points.",
)
@click.option("--topology", type=click.Choice(TOPOLOGIES), default="single", show_default=True)
@click.option(
    "--duration",
    "duration_ms",
    type=Duration(),
    default="0s",
    show_default=True,
    help="Least time of each run, such as 30s or 30m.",
)
@click.option(
    "--hold",
    "hold_ms",
    type=Duration(),
    default=None,
    help="How long each fault is kept on, such as 60s; default: its own time.",
)
@click.option("--together", is_flag=True, help="All faults in one run, chosen by the seed (a soak).")
@click.option(
    "--at-once",
    type=click.IntRange(1, 3),
    default=1,
    show_default=True,
    help="With --together: so many faults overlap, of processes, network and servers.",
)
@click.option(
    "--crash-points",
    is_flag=True,
    help="Break every script at its three points; alone, only that; part of the default.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of workload and nemesis.")
@click.option("--redis", default="", help="binary:PATH or container[:IMAGE]; default: redis-server on PATH.")
@click.option("--partner", default="", help="Client of the last worker: NAME[@VERSION], or the command of a driver.")
@click.option("--out", default="", help="Folder for histories, results and reports.")
@click.option("--list", "only_list", is_flag=True, help="Show all faults and end.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def chaos(command: tuple[str, ...], only_list: bool, **options: Any) -> int:
    """Run faults against a client: a named one, or the driver started by COMMAND (after `--`)."""
    # Only here: no other verb pays for it.
    from chaos.faults.base import FAULTS, select_faults  # noqa: PLC0415
    from chaos.options import ChaosOptions  # noqa: PLC0415
    from chaos.results import any_failed, stale_of  # noqa: PLC0415
    from chaos.runner import run_suite  # noqa: PLC0415

    if only_list:
        for fault in FAULTS.values():
            click.echo(f"{fault.name:32} {fault.what.splitlines()[0]}")
        return 0
    wanted = EnvironmentOptions(
        client=client_under_test(options["client"], command),
        command=command,
        packages=options["packages"],
        oracle=options["oracle"],
        redis=options["redis"],
        node=options["node"],
    )
    out = Path(options["out"]) if options["out"] else None
    if out is not None:
        prove_writable(out)
    everything = not (options["faults"] or options["crash_points"] or options["together"])
    faults = select_faults(options["faults"] or ("none" if options["crash_points"] else "*"))
    with prepare(wanted, redis="program") as environment:
        chosen = ChaosOptions(
            client=environment.client,
            faults=_possible(faults, options["redis"]),
            topology=options["topology"],
            duration_ms=options["duration_ms"],
            hold_ms=options["hold_ms"],
            seed=options["seed"],
            redis=options["redis"],
            out=out,
            together=options["together"],
            at_once=options["at_once"],
            alone=everything,
            crash_points=options["crash_points"] or everything,
            oracle=environment.toolchain.package.version if options["oracle"] else "",
            partner=environment.toolchain.partner(options["partner"]) if options["partner"] else None,
            command=["bullmq-conformance", *sys.argv[1:]],
        )
        results = run_suite(chosen, environment, _show)
    for stale in stale_of(results):
        Console(soft_wrap=True, highlight=False, markup=False).print(f"unused explanation: {stale}")
    failed, broken = any_failed(results), [result.name for result in results if result.kit_troubles]
    said = (
        "something does not hold" if failed else "not everything could be played" if broken else "every invariant holds"
    )
    Console().print(f"{len(results)} runs, {said}")
    if failed:
        return 1
    return EnvironmentProblem.exit_code if broken else 0


def _possible(faults: list[Any], redis: str) -> list[Any]:
    """In a container some faults are impossible, and outside of one others are: those are named."""
    inside = redis.startswith("container")
    left_out = [fault.name for fault in faults if not (fault.containers if inside else not fault.only_containers)]
    if left_out:
        where = "Redis is in a container" if inside else "Redis is no container"
        announce(f"not run, because {where}: {', '.join(left_out)}")
    return [fault for fault in faults if fault.name not in left_out]


def _show(result: ResultRow) -> None:
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    wrong = result.failed or result.unproven or result.kit_troubles or (["never reached"] if result.missed else [])
    explained = [name for name, cell in result.cells.items() if cell.verdict == "explained"]
    as_node = f" (as Node: {', '.join(explained)})" if explained else ""
    mark = "✗" if result.failed else "?" if wrong else "·" if result.lacks else "✓"
    line = f"{mark} {result.client} {result.name} [{result.topology}] {result.seconds:.1f} s{as_node}"
    console.print(line, style="bold red" if wrong else None)
    for trouble in result.troubles:
        console.print(f"    {'calls' if trouble.culprit == 'client' else 'not run'}: {printable(str(trouble))}")
    for process, much in result.growth.items():
        console.print(f"    memory: {process} grew from {much}")
    for name in filter(result.cells.get, result.failed):
        for found in result.cells[name].findings[:3]:
            console.print(f"    {name}: {found.job} {printable(found.message)}")
    for name in result.unproven:
        console.print(f"    {name}: unknown: {'; '.join(result.cells[name].reasons[:3])}")
    if result.lacks:
        console.print(f"    not run: the client has no {result.lacks}")
    if result.missed and result.why:
        console.print(f"    never reached: {result.why}")
    if wrong and result.reproduce:
        console.print(f"    reproduce: {result.reproduce}")
