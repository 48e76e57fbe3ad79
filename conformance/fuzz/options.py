"""The options of `fuzz` and `replay`. Does not import Hypothesis, which takes long to load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from conformance.environment.prepare import EnvironmentOptions
from conformance.fuzz.target import Mode
from conformance.gate.options import ClientName, NodeProgram, OracleVersion, Packages, PartnerClient, SingleRedis
from conformance.options import DurationMs, Option


class FuzzConfig(EnvironmentOptions, frozen=True, kw_only=True):
    """All options of `fuzz`."""

    client: ClientName = ""
    packages: Packages = ()
    oracle: OracleVersion = ""
    partner: PartnerClient = ""
    node: NodeProgram = ""
    mode: Annotated[Mode, Option("How the client is compared with the oracle.")] = "differential"
    budget_ms: Annotated[DurationMs, Option("Time for the search: 90s, 5m, 1h.", "--budget", positive=True)] = (
        DurationMs(300_000)
    )
    seed: Annotated[int, Option("Chooses the sequences.")] = 0
    out: Annotated[str, Option("Folder for findings, examples and coverage.")] = "fuzz-out"
    redis: SingleRedis = ""
    ignore: Annotated[
        Sequence[str], Option("Glob over places (`job.opts.*`, `meta*`) whose differences do not count; repeatable.")
    ] = ()
    without: Annotated[Sequence[str], Option("Glob over operations (`queue.pause`) not to call; repeatable.")] = ()


class ReplayConfig(EnvironmentOptions, frozen=True, kw_only=True):
    """All options of `replay`; an empty one is taken from the replay file."""

    client: Annotated[str, Option("Client to use instead of the one in the file: reference, node, ...")] = ""
    redis: SingleRedis = ""
    packages: Packages = ()
    oracle: OracleVersion = ""
    partner: PartnerClient = ""
    node: NodeProgram = ""
