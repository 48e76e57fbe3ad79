"""The limited driver in this process: hundreds of starts of Python take longer than what they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from conformance.driver.connection import DriverConnection
from conformance.driver.transports import InProcess
from conformance.environment.drivers import RestartableDriver
from conformance.mutants.damage import Damage
from conformance.reference_impl.driver.main import make_server
from conformance.reference_impl.scripts.runner import ScriptTexts, official_scripts

from .limited_driver import limited, parser


@dataclass
class LimitedDriver(RestartableDriver):
    """The reference in this process, with limits and Lua damage. None of the limits may end the process."""

    limits: tuple[str, ...] = ()
    filters: tuple[tuple[str, str], ...] = ()

    def living(self) -> DriverConnection:
        if self.connection is None or not self.connection.alive:
            damage = Damage("limited")
            for script, body in self.filters:
                damage.commands(script, body)
            scripts: ScriptTexts = damage.scripts(_texts())
            server = limited(make_server(lambda: scripts), parser().parse_args(list(self.limits)))
            self.connection = InProcess.start(server, seed=self.seed, label=self.launch.name)
        return self.connection


@cache
def _texts() -> ScriptTexts:
    return official_scripts()
