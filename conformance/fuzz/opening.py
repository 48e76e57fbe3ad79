"""Setting up a stage: Node and the pinned package, Redis, both drivers started once and shown to be honest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from conformance.environment.drivers import RestartableDriver
from conformance.environment.prepare import EnvironmentOptions, prepare
from conformance.fuzz.modes import Mode
from conformance.fuzz.stage import Stage
from conformance.problems import UsageProblem


def open_stage(
    stack: ExitStack,
    mode: Mode,
    *,
    client: str = "",
    command: Sequence[str] = (),
    redis: str = "",
    node: str = "",
    announce: Callable[[str], None],
) -> Stage:
    """A stage that ends with `stack`. Raises a Problem that says what is wrong with the options or the environment."""
    if client and command:
        raise UsageProblem("both --client and a driver's command were given", hint="give one of them")
    if mode == "model":
        client, command = "node", ()
    name = client or (Path(command[0]).name if command else "reference")
    options = EnvironmentOptions(client=name, command=list(command), redis=redis, node=node)
    prepared = prepare(options, stack, announce, prove=True)
    stage = Stage(prepared.server, RestartableDriver(prepared.oracle, 0), RestartableDriver(prepared.client, 0), mode)
    stack.callback(stage.leave)
    return stage
