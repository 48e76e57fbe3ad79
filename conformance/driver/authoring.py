"""Tools for authors of drivers: `driver new` writes a skeleton, `driver check` tests a driver.

The check tests a driver from the handshake to a worker and shows the next step. It answers "does my driver work?", not
"is the client conformant?". Each answer of the driver is compared with Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from conformance.driver import smoke
from conformance.driver.connection import DriverConnection
from conformance.driver.errors import (
    DriverBroken,
    EventTimeout,
    OperationFailed,
    OperationIndeterminate,
    OperationUnsupported,
)
from conformance.driver.messages import Capability, Ready
from conformance.driver.ops import REGISTRY
from conformance.driver.ops.lifecycle import RedisAddress
from conformance.problems import EnvironmentProblem, UsageProblem

TEMPLATES = Path(str(files("conformance.driver"))) / "templates"

SUFFIX = ".tmpl"
"""Ending of template files, so that linters and build tools of the kit ignore them."""

Start = Callable[[], DriverConnection]
LIFECYCLE_OPS = ("open", "close", "reset")

CAPABILITY_OPS = {
    "manual-worker": ("worker.getNextJob", "worker.moveToCompleted", "worker.moveToFailed", "worker.extendLock"),
    "managed-worker": ("resolve",),
}

KNOWN_CAPABILITIES = frozenset(get_args(Capability))


@dataclass(frozen=True)
class DriverSkeleton:
    """A driver skeleton in one language. `build`, then `command` start the driver inside its folder.

    `server`: the kit's implementation of the protocol in this language, and its file name in the skeleton. It is
    copied, because the driver must run in environments without the kit.
    """

    language: str
    command: tuple[str, ...]
    build: tuple[str, ...] = ()
    server: tuple[str, str] | None = None


SKELETONS = {
    skeleton.language: skeleton
    for skeleton in (
        DriverSkeleton("python", ("python", "driver.py"), server=("serve.py", "driver_server.py")),
        DriverSkeleton("node", ("node", "driver.mjs")),
        DriverSkeleton("go", ("./driver",), build=("go", "build", "-o", "driver", ".")),
        DriverSkeleton(
            "rust",
            ("target/release/driver",),
            build=("cargo", "build", "--release"),
            server=("serve.rs", "serve.rs"),
        ),
        DriverSkeleton(
            "java",
            ("java", "-cp", "out:lib/*", "Driver"),
            build=("javac", "-cp", "lib/*", "-d", "out", "Driver.java", "Json.java"),
        ),
        DriverSkeleton("php", ("php", "driver.php")),
        DriverSkeleton("ruby", ("ruby", "driver.rb")),
        DriverSkeleton("csharp", ("dotnet", "out/Driver.dll"), build=("dotnet", "build", "-c", "Release", "-o", "out")),
        DriverSkeleton("elixir", ("elixir", "driver.exs")),
    )
}


def write_skeleton(language: str, folder: Path) -> list[Path]:
    """Write the skeleton into the folder, creating it if needed, and return the files.

    Raises UsageProblem for an unknown language or if one of the files exists, EnvironmentProblem if writing fails.
    """
    if language not in SKELETONS:
        raise UsageProblem(f"there is no skeleton for {language!r}", hint=f"use one of {', '.join(SKELETONS)}")
    # Read completely first: nothing is written if one of the files exists.
    contents = dict(_contents(language))
    existing = [name for name in contents if (folder / name).exists()]
    if existing:
        raise UsageProblem(f"{folder / existing[0]} already exists", hint="choose another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (folder / name).write_text(content, "utf-8")
    except OSError as error:
        raise EnvironmentProblem(f"cannot write to {folder}: {error.strerror}") from error
    return [folder / name for name in contents]


def _contents(language: str) -> Iterator[tuple[str, str]]:
    """Yield file names and contents."""
    for template in sorted((TEMPLATES / language).glob(f"*{SUFFIX}")):
        yield template.name.removesuffix(SUFFIX), template.read_text("utf-8")
    if server := SKELETONS[language].server:
        ours, theirs = server
        yield theirs, (TEMPLATES.parent / ours).read_text("utf-8")


@dataclass(frozen=True, kw_only=True)
class CheckStep:
    """The result of one step of the check. `detail`: the observation; `hint`: what to do next.

    `broken`: the driver became unusable, so this is the last step. Not `tried`: the driver does not declare the
    operations of the step; that is not a failure.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""
    broken: bool = False
    tried: bool = True
    took_ms: float = 0.0


def check_driver(start: Start, *, address: RedisAddress, redis: Any, prefix: str, seed: int) -> list[CheckStep]:
    """Start the driver, run all steps, and end it.

    `redis` is the kit's own connection to the same Redis; `prefix` is unique to this check, and the caller deletes its
    keys. A bad driver raises nothing: the last step reports the problem.
    """
    try:
        connection = start()
    except DriverBroken as problem:
        return [_broken("handshake", problem, 0.0)]
    try:
        steps = [_handshake(connection.ready), *_smoke(connection, address, redis, prefix, seed)]
        # A broken driver is dead already, so its exit proves nothing.
        return steps if steps[-1].broken else [*steps, _exit(connection)]
    finally:
        # Also after a good exit: an exception in a step must not leave the process running.
        connection.kill()


def _handshake(ready: Ready) -> CheckStep:
    """Report the client and peculiarities of its declaration. Only missing basic operations are a failure."""
    client = ready.client
    who = f"{client.name} {client.version} ({client.language}) for BullMQ {client.targets}"
    detail = f"{who}; {len(set(ready.ops) & set(REGISTRY))} of {len(REGISTRY)} operations"
    missing = [op for op in LIFECYCLE_OPS if op not in ready.ops]
    if missing:
        hint = f"declare {', '.join(missing)}: the kit needs them for everything else"
        return CheckStep(name="handshake", ok=False, detail=detail, hint=hint)
    return CheckStep(name="handshake", ok=True, detail=detail, hint="; ".join(_peculiarities(ready)))


def _peculiarities(ready: Ready) -> list[str]:
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
    """Run the smoke steps until one is broken. A step whose operations are not declared only gives its hint."""
    test = smoke.SmokeTest(connection, address, redis, prefix, seed)
    steps: list[CheckStep] = []
    for step in smoke.SMOKE_STEPS:
        passed = {earlier.name for earlier in steps if earlier.ok and earlier.tried}
        steps.append(_run_step(step, test, passed))
        if steps[-1].broken:
            break
    return steps


def _run_step(step: smoke.SmokeStep, test: smoke.SmokeTest, passed: AbstractSet[str]) -> CheckStep:
    missing = ", ".join(step.not_declared(test.connection.ready))
    if missing:
        return _not_tried(step, f"{missing} not declared", f"next: declare {missing}: {step.hint}")
    if step.after and step.after not in passed:
        return _not_tried(step, f"{step.after} does not work", "")
    started = time.perf_counter()
    try:
        detail, ok, hint = step.run(test), True, ""
    except smoke.OpeningUnsupported as refusal:
        return _not_tried(step, str(refusal), f"next: {step.hint}")
    except DriverBroken as problem:
        return _broken(step.name, problem, _since(started))
    except (
        smoke.SmokeMismatch,
        OperationFailed,
        OperationIndeterminate,
        OperationUnsupported,
        EventTimeout,
    ) as refusal:
        detail, ok = str(refusal), False
        # An error that the client returned came through the driver as it should.
        of_client = isinstance(refusal, OperationFailed) or getattr(refusal, "of_client", False)
        hint = f"fix it in the {'client' if of_client else 'driver'}: {getattr(refusal, 'hint', '') or step.hint}"
    return CheckStep(name=step.name, ok=ok, detail=detail, hint=hint, took_ms=_since(started))


def _not_tried(step: smoke.SmokeStep, reason: str, hint: str) -> CheckStep:
    return CheckStep(name=step.name, ok=True, tried=False, detail=f"not tried: {reason}", hint=hint)


def _exit(connection: DriverConnection) -> CheckStep:
    started = time.perf_counter()
    if connection.close():
        return CheckStep(name="end", ok=True, detail="it exited when its stdin ended", took_ms=_since(started))
    return CheckStep(
        name="end",
        ok=False,
        detail="it did not exit when its stdin ended, and was killed",
        hint="exit as soon as stdin ends, even with open connections: it means that the kit has stopped or died",
        took_ms=_since(started),
    )


def _broken(name: str, problem: DriverBroken, took_ms: float) -> CheckStep:
    log = "".join(f"\n| {line}" for line in problem.log)
    return CheckStep(name=name, ok=False, detail=problem.what + log, hint=problem.hint, broken=True, took_ms=took_ms)


def _since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
