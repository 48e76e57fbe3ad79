"""A whole campaign: the chosen faults, one run each (or all in one), and the crash points; results as they come."""

from __future__ import annotations

import os
import platform
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.crash_attempt import crash
from chaos.crash_points import CrashBench, points_of
from chaos.equipment import Equipment
from chaos.faults.registry import Fault
from chaos.report.render import render_all
from chaos.report.results import FILE, Result, ResultsFile, ResultsHeader, crash_result_of, result_of
from chaos.runner import Spec, run_chaos
from chaos.segments import SEGMENTS
from chaos.topologies.base import TopologyName
from conformance.environment.clients import Launch


@dataclass(frozen=True, kw_only=True)
class Campaign:
    """What to do.

    `together`: all faults in one run, by the seed, for `duration_ms` (a soak); else one run for each. `hold_ms`: how
    long each fault is kept on; None for its own wish. `crash_points`: also break every script at its three points.
    `partner`: the client of the last worker. `out`: folder of the results, None for nowhere.
    """

    client: Launch
    faults: Sequence[Fault]
    topology: TopologyName = "single"
    duration_ms: float = 0
    hold_ms: float | None = None
    seed: int = 0
    redis: str = ""
    out: Path | None = None
    together: bool = False
    crash_points: bool = False
    partner: Launch | None = None
    command: Sequence[str] = ()


def run_campaign(campaign: Campaign, equipment: Equipment, tell: Callable[[Result], None]) -> list[Result]:
    """Run everything; `tell` is told each result. Raises a Problem where something cannot be run at all."""
    results: list[Result] = []
    file = ResultsFile(campaign.out / FILE, _header(campaign, equipment)) if campaign.out is not None else None
    for result in _all_results(campaign, equipment):
        results.append(result)
        if file is not None:
            file.put(result)
        tell(result)
    if file is not None and campaign.out is not None:
        file.finish()
        render_all(campaign.out)
    return results


def _header(campaign: Campaign, equipment: Equipment) -> ResultsHeader:
    node = equipment.toolbox.node
    return ResultsHeader(
        started=time.strftime("%Y-%m-%d %H:%M:%S %Z"),
        command=shlex.join(campaign.command),
        environment={
            "node": node.version,
            "bullmq": equipment.toolbox.package.version,
            "redis": equipment.binary.source,
            "python": platform.python_version(),
            "cpus": str(os.cpu_count()),
        },
    )


def _all_results(campaign: Campaign, equipment: Equipment) -> Iterator[Result]:
    groups = [list(campaign.faults)] if campaign.together or not campaign.faults else [[one] for one in campaign.faults]
    for faults in groups if not (campaign.crash_points and not campaign.faults) else []:
        yield _run(campaign, equipment, faults)
    if campaign.crash_points:
        yield from _crash_points(campaign, equipment)


def _run(campaign: Campaign, equipment: Equipment, faults: Sequence[Fault]) -> Result:
    begun = time.monotonic()
    name = "together" if len(faults) > 1 else faults[0].name if faults else "no-fault"
    topology = topology_for(campaign.topology, faults)
    spec = Spec(
        client=campaign.client,
        faults=faults,
        topology=topology,
        duration_ms=campaign.duration_ms,
        hold_ms=campaign.hold_ms,
        seed=campaign.seed,
        redis=campaign.redis,
        out=campaign.out / name if campaign.out is not None else None,
        reproduce=reproduce_line(campaign.client, faults, topology, campaign),
        texts=equipment.texts,
        partner=campaign.partner,
    )
    return result_of(run_chaos(spec), seconds=time.monotonic() - begun)


def topology_for(wanted: TopologyName, faults: Sequence[Fault]) -> TopologyName:
    """The topology that was asked for, unless a fault has another home."""
    for one in faults:
        if wanted not in one.topologies:
            return one.topologies[0]
    return wanted


def reproduce_line(client: Launch, faults: Sequence[Fault], topology: TopologyName, campaign: Campaign) -> str:
    """The command that runs the same once more."""
    words = ["bullmq-conformance", "chaos", "--faults", ",".join(one.name for one in faults) or "none"]
    words += ["--topology", topology, "--seed", str(campaign.seed)]
    words += ["--together"] if campaign.together else []
    words += ["--duration", f"{campaign.duration_ms / 1000:g}s"] if campaign.duration_ms else []
    words += ["--hold", f"{campaign.hold_ms / 1000:g}s"] if campaign.hold_ms is not None else []
    words += ["--redis", campaign.redis] if campaign.redis else []
    words += ["--partner", campaign.partner.name] if campaign.partner is not None else []
    named = client.name in {"reference", "node"} or not client.command
    return shlex.join([*words, "--client", client.name] if named else [*words, "--", *client.command])


def _crash_points(campaign: Campaign, equipment: Equipment) -> Iterator[Result]:
    line = shlex.join(["bullmq-conformance", "chaos", "--crash-points", "--client", campaign.client.name])
    with CrashBench(campaign.client, equipment.binary, equipment.texts) as bench:
        for segment in SEGMENTS:
            for where in points_of(segment):
                begun = time.monotonic()
                found = crash(bench, where)
                seconds = time.monotonic() - begun
                yield crash_result_of(found, client=campaign.client.name, seconds=seconds, reproduce=line)
