"""`driver check`: goes through a driver from the handshake to a worker and says what to do next.

It answers "does my driver work?", not "is the client conformant?". Every claim is compared with what Redis holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.driver import smoke
from conformance.driver.connection import DriverConnection
from conformance.driver.errors import (
    DriverBroken,
    EventTimeout,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.messages import Ready, RedisAddress
from conformance.driver.ops import REGISTRY

Start = Callable[[], DriverConnection]

LIFECYCLE_OPS = ("open", "close", "reset")
CAPABILITY_OPS = {
    "manual-worker": ("worker.getNextJob", "worker.moveToCompleted", "worker.moveToFailed", "worker.extendLock"),
    "managed-worker": ("resolve",),
}
KNOWN_CAPABILITIES = {"clock", "manual-worker", "managed-worker", "cluster", "raw-data"}


@dataclass(frozen=True, kw_only=True)
class CheckStep:
    """One step: what was tried, whether it went well, what was seen, and what to do next.

    `broken`: the driver itself cannot be used any further; nothing was tried after this step. Not `tried`: the driver
    does not declare what the step needs, which is no failure.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""
    broken: bool = False
    tried: bool = True
    took_ms: float = 0.0


def check_driver(start: Start, *, address: RedisAddress, redis: Any, prefix: str, seed: int) -> list[CheckStep]:
    """Start the driver, try it, and end it.

    `redis` is a client of the kit's own for the same Redis, `prefix` one that nobody else uses; its keys are left to
    the caller. Raises nothing for a bad driver: the last step says it.
    """
    try:
        connection = start()
    except DriverBroken as problem:
        return [_broken("handshake", problem, 0.0)]
    try:
        steps = [_handshake(connection.ready), *_smoke(connection, address, redis, prefix, seed)]
        return steps if steps[-1].broken else [*steps, _leaving(connection)]
    finally:
        connection.kill()


def _handshake(ready: Ready) -> CheckStep:
    """Say who answered, and what is odd about the declaration. Oddities are no failure, except missing basics."""
    client = ready.client
    who = f"{client.name} {client.version} ({client.language}) for BullMQ {client.targets}"
    detail = f"{who}; {len(set(ready.ops) & set(REGISTRY))} of {len(REGISTRY)} operations"
    missing = [op for op in LIFECYCLE_OPS if op not in ready.ops]
    if missing:
        hint = f"declare {', '.join(missing)}: without them the kit can use nothing else"
        return CheckStep(name="handshake", ok=False, detail=detail, hint=hint)
    return CheckStep(name="handshake", ok=True, detail=detail, hint="; ".join(_oddities(ready)))


def _oddities(ready: Ready) -> list[str]:
    unknown_ops = sorted(set(ready.ops) - set(REGISTRY))
    unknown_capabilities = sorted(set(ready.capabilities) - KNOWN_CAPABILITIES)
    notes = [f"this kit does not know the operations {', '.join(unknown_ops)}"] if unknown_ops else []
    if unknown_capabilities:
        notes.append(f"this kit does not know the capabilities {', '.join(unknown_capabilities)}")
    for capability, ops in CAPABILITY_OPS.items():
        missing = [op for op in ops if op not in ready.ops]
        if capability in ready.capabilities and missing:
            notes.append(f"{capability} is declared without {', '.join(missing)}")
    return notes


def _smoke(connection: DriverConnection, address: RedisAddress, redis: Any, prefix: str, seed: int) -> list[CheckStep]:
    """Run the smoke set until something is broken; a step that needs what is not declared only gives its hint."""
    bench = smoke.Bench(connection, address, redis, prefix, seed)
    steps: list[CheckStep] = []
    for trial in smoke.TRIALS:
        steps.append(_try(trial, bench))
        if steps[-1].broken:
            break
    return steps


def _try(trial: smoke.Trial, bench: smoke.Bench) -> CheckStep:
    reason = trial.not_declared(bench.connection.ready)
    if reason:
        return _not_tried(trial, reason)
    started = time.perf_counter()
    try:
        detail, ok = trial.run(bench), True
    except smoke.RoleUnsupported as refusal:
        return _not_tried(trial, str(refusal))
    except DriverBroken as problem:
        return _broken(trial.name, problem, _since(started))
    except (
        smoke.NotSeen,
        OperationFailed,
        OperationIndeterminate,
        OperationUnsupported,
        EventTimeout,
    ) as refusal:
        detail, ok = str(refusal), False
    hint = "" if ok else trial.hint
    return CheckStep(name=trial.name, ok=ok, detail=detail, hint=hint, took_ms=_since(started))


def _not_tried(trial: smoke.Trial, reason: str) -> CheckStep:
    return CheckStep(name=trial.name, ok=True, tried=False, detail=f"not tried: {reason}", hint=f"next: {trial.hint}")


def _leaving(connection: DriverConnection) -> CheckStep:
    started = time.perf_counter()
    if connection.close():
        return CheckStep(name="end", ok=True, detail="it left when its stdin ended", took_ms=_since(started))
    return CheckStep(
        name="end",
        ok=False,
        detail="it did not leave when its stdin ended, and was killed",
        hint="end the process as soon as stdin ends, whatever is still open: so a driver learns that the kit died",
        took_ms=_since(started),
    )


def _broken(name: str, problem: DriverBroken, took_ms: float) -> CheckStep:
    log = "".join(f"\n| {line}" for line in problem.log)
    return CheckStep(name=name, ok=False, detail=problem.what + log, hint=problem.hint, broken=True, took_ms=took_ms)


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
