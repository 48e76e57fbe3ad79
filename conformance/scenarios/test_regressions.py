"""Sequences that the fuzzer found and shrunk: one scenario per file in `regressions/`, run forever, on every client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from conformance.driver.errors import OperationFailed
from conformance.driver.ops import lifecycle
from conformance.fuzz.replay import Replay, read_replay
from conformance.participants.marks import scenario
from conformance.participants.participant import Participant
from conformance.steps.records import step_line
from conformance.steps.shapes import NOWHERE, CallStep, ClockStep, CounterStep, FaultStep, Step, addressed

REGRESSIONS = Path(__file__).parent / "regressions"


def _scenario_of(replay: Replay) -> Callable[[Participant], None]:
    """The steps of a file, as a scenario: what the calls return and what they leave is compared with the oracle's."""

    def test(client: Participant) -> None:
        handles: dict[str, str] = {}
        for step in replay.steps:
            _run_step(client, step, handles)

    test.__doc__ = replay.header.title
    return test


def _run_step(client: Participant, step: Step, handles: dict[str, str]) -> None:
    match step:
        case ClockStep(clock_ms):
            client.pass_time(clock_ms)
        case CounterStep(job=""):
            client.redis(step.queue).set_string(step.counter, str(step.value))
        case CounterStep():
            if client.redis(step.queue).exists(step.job):
                client.redis(step.queue).set_field(step.job, step.counter, str(step.value))
        case FaultStep(lost_key=str(key)) if key:
            client.redis(step.queue).delete(key)
        case FaultStep(fault="disconnect"):
            client.tap.disconnect()
        case CallStep(op=lifecycle.Open() as op):
            handles[step.handle] = client.open(op.role, op.queue, processor=op.processor, **op.options)
        case CallStep(cut=""):
            # A refusal is a result like any other: the transcript keeps it.
            with suppress(OperationFailed):
                client.call(addressed(step.op, client.prefix, NOWHERE), handle=handles[step.handle])
        case _:
            raise ValueError(
                f"no scenario can hold {step_line(step)}: others use the same Redis, and Node would be cut, too"
            )


for _path in sorted(REGRESSIONS.glob("*.jsonl")):
    _replay = read_replay(_path)
    _test = _scenario_of(_replay)
    _test.__name__ = f"test_{_path.stem.replace('-', '_').replace('.', '_')}"
    _test.__module__ = __name__
    globals()[_test.__name__] = scenario(_replay.header.requirement, without=_replay.header.without)(_test)
