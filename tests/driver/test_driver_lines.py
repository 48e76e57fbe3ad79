"""Whatever bytes a driver writes: the kit gets a message or a DriverBroken, and never hangs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conformance.driver.connection import DriverBroken, SchemaViolation, StdoutPollution
from conformance.driver.inprocess import InProcess
from conformance.driver.lines import decode
from conformance.driver.messages import MAX_LINE_BYTES, Event, Ready, Result
from conformance.driver.ops import queue
from conformance.driver.ops.events import EVENT_ARGS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ALMOST_LINES = st.fixed_dictionaries(
    {"type": st.sampled_from(["ready", "result", "event", "call"]) | JSON},
    optional={
        "id": st.integers(-5, 5) | JSON,
        "status": st.sampled_from(["ok", "fail", "info", "unsupported"]) | JSON,
        "value": JSON,
        "error": st.fixed_dictionaries({"message": st.text(max_size=4)}) | JSON,
        "reason": JSON,
        "handle": st.text(max_size=3) | JSON,
        "name": st.sampled_from(sorted(EVENT_ARGS)) | JSON,
        "args": st.dictionaries(st.sampled_from(["job", "token", "message", "fields"]), JSON, max_size=3) | JSON,
        "protocol": st.just(1) | JSON,
        "client": JSON,
        "ops": st.lists(st.text(max_size=4)) | JSON,
        "capabilities": JSON,
    },
).map(lambda line: json.dumps(line).encode())
LINES = st.binary(max_size=200) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")) | ALMOST_LINES


@given(LINES)
@example(b"{" * 100_000)
@example(b'{"type":"result","id":1,"status":"ok","value":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
@example(b'{"type":"event","handle":"\\ud800","name":"x"}')
@example(b'{"type":"result","id":99999999999999999999999999,"status":"ok"}')
@example(b"[1, 2")
def test_any_bytes_are_a_message_or_a_problem(line: bytes) -> None:
    try:
        message = decode(line)
    except DriverBroken as broken:
        problem = broken
    else:
        assert isinstance(message, (Ready, Result, Event))
        return
    assert problem.what
    assert problem.hint
    assert len(problem.what) < 3000


class Babbler:
    """Shakes hands, then answers the first call with arbitrary bytes."""

    def __init__(self, noise: bytes, pieces: int) -> None:
        self.noise = noise
        self.size = max(1, len(noise) // pieces)
        self.write: Callable[[bytes], None] = print

    def attach(self, write: Callable[[bytes], None]) -> None:
        self.write = write

    def receive(self, line: bytes) -> None:
        if b'"hello"' in line:
            client = {"name": "a", "language": "b", "version": "c"}
            ready = {"type": "ready", "protocol": 1, "client": client, "ops": ["queue.add"], "capabilities": []}
            self.write(json.dumps(ready).encode() + b"\n")
        else:
            for start in range(0, len(self.noise), self.size):
                self.write(self.noise[start : start + self.size])

    def cancel(self) -> None:
        pass


@given(st.lists(LINES, max_size=4).map(b"\n".join), st.integers(1, 5))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@example(b"", 1)
@example(b"no newline", 1)
def test_a_connection_survives_any_bytes(noise: bytes, pieces: int) -> None:
    connection = InProcess.start(Babbler(noise, pieces))
    try:
        with pytest.raises(DriverBroken) as caught:
            connection.call(queue.Add(name="n"), deadline_ms=50)
        assert "driver `in-process`: " in str(caught.value)
        assert not connection.alive
    finally:
        connection.kill()


def test_the_fuzzer_would_see_a_good_answer() -> None:
    """The sentinel of the test above: with the right bytes, the same call succeeds."""
    probe = InProcess.start(Babbler(b"", 1), seed=5)
    expected = probe._mailbox.open_call("x")  # equal seeds choose equal ids
    probe.kill()
    line = json.dumps({"type": "result", "id": expected, "status": "ok", "value": {"id": "7"}}).encode()
    connection = InProcess.start(Babbler(line + b"\n", 3), seed=5)
    assert connection.call(queue.Add(name="n"), deadline_ms=5000).id == "7"
    connection.kill()


def test_an_oversized_line_needs_no_newline_to_be_refused() -> None:
    connection = InProcess.start(Babbler(b"x" * (MAX_LINE_BYTES + 1), 3))
    with pytest.raises(DriverBroken, match=f"longer than {MAX_LINE_BYTES} bytes"):
        connection.call(queue.Add(name="n"), deadline_ms=5000)
    connection.kill()


@pytest.mark.parametrize(
    "text", ["[info] started", "2026-01-02 10:00:00 ready", '"quoted"', "undefined", "\x1b[1mbold"]
)
def test_text_for_people_is_told_from_bad_json(text: str) -> None:
    with pytest.raises(StdoutPollution):
        decode(text.encode())


def test_unknown_fields_and_events_are_from_a_newer_driver() -> None:
    line: dict[str, Any] = {"type": "event", "handle": "w", "name": "brand-new", "args": {"a": 1}, "since": "v2"}
    assert decode(json.dumps(line).encode()) == Event(handle="w", name="brand-new", args={"a": 1})


@pytest.mark.parametrize(
    ("name", "args"), [("job", {"job": {"id": "1"}, "token": "t"}), ("error", {}), ("stalled", {})]
)
def test_arguments_of_known_events_are_checked(name: str, args: dict[str, Any]) -> None:
    with pytest.raises(SchemaViolation, match=f"the event `{name}` of w does not fit the schema"):
        decode(json.dumps({"type": "event", "handle": "w", "name": name, "args": args}).encode())
