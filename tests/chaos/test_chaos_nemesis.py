"""Which faults overlap, in what order they are healed, and that a failing fault leaves no fault unhealed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import cast

import pytest

from chaos.faults.base import FAULTS, ChaosSystem, Fault
from chaos.nemesis import DOMAINS, ORDER, injected, schedule
from chaos.run_errors import RunErrors


def system_at(now_ms: Callable[[], float], seed: int = 0) -> ChaosSystem:
    """As much of a system as a schedule asks for."""
    recorder = SimpleNamespace(now_ms=now_ms)
    return cast("ChaosSystem", SimpleNamespace(recorder=recorder, random=random.Random(seed)))


def logged(name: str, group: str, log: list[str], *, breaks: bool = False) -> Fault:
    def inject(_system: ChaosSystem) -> AbstractContextManager[None]:
        @contextmanager
        def on() -> Iterator[None]:
            log.append(f"{name} on")
            yield
            log.append(f"{name} off")
            if breaks:
                raise OSError("no such process")

        return on()

    return Fault(name, "", inject, group)


def inject_as_is(fault: Fault, system: ChaosSystem) -> AbstractContextManager[None]:
    """Without a copy of the system, which only a whole one allows."""
    return fault.inject(system)


def test_every_fault_comes_as_often_as_it_wants_and_none_meets_one_of_its_domain() -> None:
    faults = list(FAULTS.values())
    chosen = list(schedule(faults, system_at(lambda: 1.0), rounds=None, until_ms=0, at_once=3))
    injected = [fault.name for together in chosen for fault in together]
    assert sorted(injected) == sorted(fault.name for fault in faults for _ in range(fault.times))
    assert any(len(together) == 3 for together in chosen)
    for together in chosen:
        domains = [DOMAINS[fault.group] for fault in together]
        assert domains == [domain for domain in ORDER if domain in domains], together


def test_the_seed_chooses() -> None:
    faults = list(FAULTS.values())

    def names(seed: int) -> list[list[str]]:
        chosen = schedule(faults, system_at(lambda: 1.0, seed), rounds=1, until_ms=0, at_once=2)
        return [[fault.name for fault in together] for together in chosen]

    assert names(1) == names(1)
    assert names(1) != names(2)


def test_the_earliest_fault_is_healed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is killed during a failover is not started again into it."""
    log: list[str] = []
    monkeypatch.setattr(Fault, "inject_into", inject_as_is)
    with injected(
        [logged("failover", "topology", log), logged("kill", "workers", log)], system_at(lambda: 0), RunErrors()
    ):
        log.append("both")
    assert log == ["failover on", "kill on", "both", "failover off", "kill off"]


def test_a_failing_fault_leaves_no_fault_unhealed(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    monkeypatch.setattr(Fault, "inject_into", inject_as_is)
    troubles = RunErrors()
    faults = [logged("first", "topology", log, breaks=True), logged("second", "workers", log)]
    with injected(faults, system_at(lambda: 0), troubles):
        pass
    assert log[-1] == "second off"
    assert [str(trouble) for trouble in troubles.found] == ["during first: OSError: no such process"]


def test_every_group_holds_something() -> None:
    assert {fault.group for fault in FAULTS.values()} <= DOMAINS.keys()
