"""The options of `chaos` as the user writes them. Imports nothing of the rest of chaos: the help must load quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from conformance.environment.prepare import EnvironmentOptions
from conformance.gate.options import ChosenLibrary, ClientName, NodeProgram, OracleVersion, Packages
from conformance.options import DurationMs, Option
from conformance.upstream.redis_libraries import DEFAULT

TopologyName: TypeAlias = Literal["single", "replica", "sentinel", "cluster"]

MOST_AT_ONCE = 3
"""One fault each of processes, network and servers: two faults of the same kind would undo each other."""


class ChaosConfig(EnvironmentOptions, frozen=True, kw_only=True):
    """All options of `chaos`. `out`: empty for no folder. `invocation`: the command line."""

    client: ClientName = ""
    packages: Packages = ()
    library: ChosenLibrary = DEFAULT
    oracle: OracleVersion = ""
    node: NodeProgram = ""
    faults: Annotated[
        str, Option("Names and globs, comma-separated; `none` for none; default: all, and the crash points.")
    ] = ""
    topology: Annotated[TopologyName, Option("Arrangement of the Redis servers.")] = "single"
    duration_ms: Annotated[DurationMs, Option("Shortest time of each run, such as 30s or 30m.", "--duration")] = (
        DurationMs(0)
    )
    hold_ms: Annotated[
        DurationMs | None, Option("How long each fault lasts, such as 60s; default: the fault's own time.", "--hold")
    ] = None
    together: Annotated[bool, Option("Inject all faults in one run, in an order chosen by the seed (a soak test).")] = (
        False
    )
    at_once: Annotated[
        int,
        Option(
            "With --together: number of faults that overlap, of processes, network and servers.",
            at_least=1,
            at_most=MOST_AT_ONCE,
        ),
    ] = 1
    crash_points: Annotated[
        bool, Option("Break every script at its three points; alone, run only that; part of the default.")
    ] = False
    seed: Annotated[int, Option("Seed of workload and faults.")] = 0
    redis: Annotated[str, Option("binary:PATH, bundled or container[:IMAGE]; default: redis-server on PATH.")] = ""
    partner: Annotated[str, Option("Client of the last worker: NAME[@VERSION], or the command of a driver.")] = ""
    out: Annotated[str, Option("Folder for histories, results and reports.")] = ""
    only_list: Annotated[bool, Option("List all faults and exit.", "--list")] = False
    invocation: Sequence[str] = ()

    @property
    def runs_everything(self) -> bool:
        """Whether the user chose no faults, so that the default campaign runs."""
        return not (self.faults or self.crash_points or self.together)

    @property
    def fault_names(self) -> str:
        """The faults to inject, as names and globs."""
        return self.faults or ("none" if self.crash_points else "*")
