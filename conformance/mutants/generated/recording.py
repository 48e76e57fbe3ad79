"""The baseline: every case once on the healthy reference, whose Lua statements and Python lines are noted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from conformance.driver.connection import DriverConnection
from conformance.driver.serve import DriverServer
from conformance.driver.transports import InProcess
from conformance.environment.clients import Launch
from conformance.environment.drivers import RestartableDriver
from conformance.mutants.generated.case_runner import CaseRunner
from conformance.mutants.generated.catalogue import REFERENCE
from conformance.mutants.generated.driver import ChangedScript
from conformance.mutants.generated.lua_syntax import with_notes
from conformance.mutants.generated.reach import CaseReach
from conformance.mutants.matrix import ScenarioCase
from conformance.reference_impl.driver.main import DEEPEST_JSON, make_server
from conformance.reference_impl.scripts.runner import ScriptText, ScriptTexts, official_scripts

_KEY = "bullmq-conformance:passed:"
_ATTEMPTS = 3
"""A machine that is too busy may fail a healthy client; then its case runs again."""


class _NotedScripts(Mapping[str, ScriptText]):
    """The scripts with notes in them, and which of them were called."""

    def __init__(self, healthy: ScriptTexts) -> None:
        self._scripts = {
            name: ChangedScript(name, script.key_count, with_notes(script.text.encode(), _KEY + name).decode())
            for name, script in healthy.items()
        }
        self.called: set[str] = set()

    def __getitem__(self, name: str) -> ScriptText:
        self.called.add(name)
        return self._scripts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scripts)

    def __len__(self) -> int:
        return len(self._scripts)


class _LineTracer:
    """Records the lines of the reference that the thread passes in which it was started."""

    def __init__(self) -> None:
        self.passed: set[tuple[str, int]] = set()
        self._files: dict[str, str] = {
            str(path): path.relative_to(REFERENCE).as_posix() for path in REFERENCE.rglob("*.py")
        }

    def start(self) -> None:
        # Only without another tracer: coverage and debuggers use the same hook.
        if sys.gettrace() is None:
            sys.settrace(self._calls)

    def _calls(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        file = self._files.get(frame.f_code.co_filename)
        if file is None:
            return None
        passed = self.passed

        def lines(inner: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                passed.add((file, inner.f_lineno))
            return lines

        return lines


class _TracedServer:
    """A driver in this process; the thread that handles its lines is traced."""

    def __init__(self, server: DriverServer, tracer: _LineTracer) -> None:
        self._server, self._tracer = server, tracer

    def attach(self, write: Callable[[bytes], None]) -> None:
        self._server.attach(write)

    def receive(self, line: bytes) -> None:
        self._tracer.start()
        self._server.receive(line)

    def cancel(self) -> None:
        self._server.cancel()


@dataclass
class RecordedReference(RestartableDriver):
    """The healthy reference, in this process, under observation."""

    scripts: _NotedScripts = field(default_factory=lambda: _NotedScripts(official_scripts()))
    tracer: _LineTracer = field(default_factory=_LineTracer)

    def living(self) -> DriverConnection:
        """A living driver."""
        if self.connection is None or not self.connection.alive:
            server = _TracedServer(make_server(lambda: self.scripts), self.tracer)
            self.connection = InProcess.start(server, seed=self.seed, label="reference")
        return self.connection


class Recorder:
    """Records cases with one case runner."""

    def __init__(self, runner: CaseRunner) -> None:
        # As in the process of the reference's own driver.
        sys.setrecursionlimit(DEEPEST_JSON)
        self._runner = runner
        self._client = RecordedReference(Launch("reference", []), 0)

    def close(self) -> None:
        """End the client."""
        self._client.close()

    def record(self, name: str, case: ScenarioCase) -> CaseReach:
        """Run a case. Returns the code that it passed."""
        run = self._runner.run(case, self._client)
        for _ in range(_ATTEMPTS - 1):
            if not run.noticed and not run.error:
                break
            run = self._runner.run(case, self._client)
        passed, whole = self._taken()
        healthy = not run.noticed and not run.error
        return CaseReach(case=name, passed=passed, whole=whole, took_ms=run.took_ms, healthy=healthy)

    def _taken(self) -> tuple[dict[str, list[int]], list[str]]:
        """The code passed since the last call."""
        by_file: dict[str, list[int]] = {}
        lines, self._client.tracer.passed = sorted(self._client.tracer.passed), set()
        for file, line in lines:
            by_file.setdefault(file, []).append(line)
        called, self._client.scripts.called = sorted(self._client.scripts.called), set()
        redis = self._runner.redis
        for script in called:
            statements = sorted(int(member) for member in redis.smembers(_KEY + script))
            redis.delete(_KEY + script)
            if statements:
                by_file[script] = statements
        return by_file, [script for script in called if script not in by_file]
