"""`chaos`: inject faults into a client, Redis and the network between them, and account for every job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console

from chaos.config import ChaosConfig
from conformance.cli.options import configured
from conformance.environment.out_folder import prove_writable
from conformance.environment.prepare import Environment, announce, client_under_test, prepare
from conformance.pages.terminal import terminal_line, terminal_text
from conformance.problems import EnvironmentProblem, NothingSelected, Undecidable

if TYPE_CHECKING:
    from chaos.faults.base import Fault
    from chaos.options import ChaosOptions
    from chaos.results import ResultRow


@click.command()
@configured(ChaosConfig)
def chaos(config: ChaosConfig) -> int:
    """Run faults against a client: a named one, or the driver started by COMMAND (after `--`)."""
    # Imported here, so that no other verb waits for it.
    from chaos.faults.base import FAULTS, select_faults  # noqa: PLC0415
    from chaos.runner import run_suite  # noqa: PLC0415
    from chaos.terminal import print_result  # noqa: PLC0415

    if config.only_list:
        for fault in FAULTS.values():
            click.echo(terminal_line(f"{fault.name:32} {fault.what.splitlines()[0]}"))
        return 0
    # The client is looked up before Redis and the oracle are prepared, which takes longer.
    config = msgspec.structs.replace(config, client=client_under_test(config.client, config.command))
    if config.out:
        # Proved now, because a run that cannot be recorded would be lost.
        prove_writable(Path(config.out))
    faults = possible_faults(select_faults(config.fault_names), config.redis)
    with prepare(config, redis="program") as environment:
        results = run_suite(_options(config, faults, environment), environment, print_result)
    return conclude(results)


def _options(config: ChaosConfig, faults: Sequence[Fault], environment: Environment) -> ChaosOptions:
    from chaos.options import ChaosOptions  # noqa: PLC0415

    return ChaosOptions(
        client=environment.client,
        faults=faults,
        topology=config.topology,
        duration_ms=config.duration_ms,
        hold_ms=config.hold_ms,
        seed=config.seed,
        redis=config.redis,
        out=Path(config.out) if config.out else None,
        together=config.together,
        at_once=config.at_once,
        alone=config.runs_everything,
        crash_points=config.crash_points or config.runs_everything,
        oracle=environment.toolchain.package.version if config.oracle else "",
        partner=environment.toolchain.partner(config.partner) if config.partner else None,
        command=config.invocation,
    )


def possible_faults(faults: Iterable[Fault], redis: str) -> list[Fault]:
    """The faults that are possible where Redis runs: in a container, or not; the others are announced.

    Raises NothingSelected if none of them is.
    """
    in_container = redis.startswith("container")
    possible = {
        fault.name: fault for fault in faults if (fault.containers if in_container else not fault.only_containers)
    }
    left_out = [fault.name for fault in faults if fault.name not in possible]
    if left_out:
        reason = "Redis runs in a container" if in_container else "Redis does not run in a container"
        announce(f"not run, because {reason}: {', '.join(left_out)}")
    if left_out and not possible:
        raise NothingSelected("no selected fault can run", hint="choose others, or another --redis (`chaos --list`)")
    return list(possible.values())


def conclude(results: Sequence[ResultRow]) -> int:
    """Print the outcome of all runs, and return the exit code."""
    from chaos.results import any_failed, is_any_examined, stale_of  # noqa: PLC0415

    for stale in stale_of(results):
        Console(soft_wrap=True, highlight=False, markup=False).print(terminal_text(f"unused explanation: {stale}"))
    # A failure counts even if other runs are incomplete.
    failed, incomplete = any_failed(results), any(result.kit_troubles for result in results)
    outcome, code = "every invariant holds", 0
    if failed:
        outcome, code = "an invariant is violated", 1
    elif incomplete:
        outcome, code = "some runs are incomplete", EnvironmentProblem.exit_code
    elif not is_any_examined(results):
        outcome, code = "UNDECIDED: nothing was examined", Undecidable.exit_code
    Console().print(terminal_text(f"{len(results)} runs, {outcome}"))
    return code
