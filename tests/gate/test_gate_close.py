"""Deadlines of calls: a close that never ends is a finding of its own, and large data may take longer."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from conformance.driver.errors import DriverError, DriverHung, OperationIndeterminate
from conformance.driver.ops.base import JobRef
from conformance.ledger.loader import load_ledger
from conformance.participants.expect import Mismatch
from conformance.participants.handles import ParticipantHandle, QueueHandle


def handle_that(error: Exception) -> ParticipantHandle:
    return ParticipantHandle(Mock(call=Mock(side_effect=error)), "q", "worker-1")


def undecided(code: Any) -> OperationIndeterminate:
    return OperationIndeterminate("close", DriverError(code=code, message="no answer", definite=False))


@pytest.mark.parametrize("error", [undecided("timeout"), DriverHung("close", 100)], ids=["answered", "hung"])
def test_a_close_that_never_ends_belongs_to_its_own_requirement(error: Exception) -> None:
    with pytest.raises(Mismatch) as caught:
        handle_that(error).close(within_ms=100)
    owner = load_ledger().owner_of(caught.value.where)
    assert owner is not None
    assert owner.id == "liveness.close-ends"


def test_a_close_that_loses_its_connection_stays_undecided() -> None:
    with pytest.raises(OperationIndeterminate):
        handle_that(undecided("connection-lost")).close()


def test_a_job_of_10_mb_may_take_40_s_longer() -> None:
    caller = Mock(call=Mock(return_value=JobRef(id="1")))
    for data in ("", "x" * 10_000_000):
        QueueHandle(caller, "q", "queue-1").add(raw=data)
    small_ms, large_ms = (call.kwargs["deadline_ms"] for call in caller.call.call_args_list)
    assert large_ms - small_ms == 40_000
