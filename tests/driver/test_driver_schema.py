"""The published schema is current, real lines fit it, and its types are built before several threads use them."""

from __future__ import annotations

import copy
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from conformance.driver import schema
from conformance.driver.errors import OperationFailed
from conformance.driver.messages import Call, Capability, DriverEvent, Hello, Result
from conformance.driver.ops import REGISTRY, lifecycle, queue, worker
from conformance.driver.ops.base import JobView
from conformance.driver.serve import DriverServer, OpError
from conformance.driver.transports import InProcess

Validator: Any = importlib.import_module("jsonschema").Draft202012Validator  # it has no types


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema.SCHEMA_FILE.read_text("utf-8"))
    return loaded


def part(published: dict[str, Any], reference: dict[str, Any]) -> Any:
    """A validator for something that refers into the published schema."""
    return Validator({"$defs": published["$defs"], **reference})


def test_the_files_in_the_tree_are_current() -> None:
    assert schema.schema_is_current()
    assert schema.page_is_current()


def test_the_protocols_page_explains_every_capability() -> None:
    page = (schema.PAGE.parent / "driver-protocol.md").read_text("utf-8").split("### Capabilities")[1].split("\n\n")[1]
    explained = {name for row in page.splitlines()[2:] for name in re.findall(r"`([\w-]+)`", row.split("|")[1])}
    assert explained == set(get_args(Capability))
    assert schema.main([]) == 0


def test_a_changed_operation_makes_the_files_stale(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    registry = dict(REGISTRY)
    registry["queue.extra"] = registry["queue.add"]
    monkeypatch.setattr(schema, "REGISTRY", registry)
    monkeypatch.setattr(schema, "REGISTRY", {"queue.add": registry["queue.add"]})
    assert not schema.schema_is_current() or not schema.page_is_current()
    assert schema.main([]) == 1
    assert "--write" in capsys.readouterr().err


def test_an_unknown_argument_is_wrong_usage() -> None:
    assert schema.main(["--help-me"]) == 2


def test_the_schema_is_a_schema_and_knows_every_operation(published: dict[str, Any]) -> None:
    Validator.check_schema(published)
    assert set(published["operations"]) == set(REGISTRY)
    assert published["operations"]["queue.add"]["on"] == "queue"


class Recorder:
    """Stands between the kit and a server and keeps all lines."""

    def __init__(self, server: DriverServer) -> None:
        self.server = server
        self.lines: list[bytes] = []

    def attach(self, write: Callable[[bytes], None]) -> None:
        def record(line: bytes) -> None:
            self.lines.append(line)
            write(line)

        self.server.attach(record)

    def receive(self, line: bytes) -> None:
        self.lines.append(line)
        self.server.receive(line)

    def cancel(self) -> None:
        self.server.cancel()


def test_real_lines_fit(published: dict[str, Any]) -> None:
    async def add(handle: str | None, _args: dict[str, Any]) -> dict[str, Any]:
        server.emit(handle or "", "completed", {"job": "1"})
        return {"id": "1"}

    async def fail(_handle: str | None, _args: dict[str, Any]) -> None:
        raise OpError("missing-job", "none")

    server = DriverServer(
        client={"name": "a", "language": "b", "version": "c"}, capabilities=[], ops={"queue.add": add, "reset": fail}
    )
    recorder = Recorder(server)
    connection = InProcess.start(recorder)
    connection.call(queue.Add(name="n"), handle="q")
    connection.call_raw("queue.unknown", {"any": "thing"})
    with pytest.raises(OperationFailed):
        connection.call(lifecycle.Reset())
    connection.kill()
    kinds = []
    for line in recorder.lines:
        decoded = json.loads(line)
        kinds.append(decoded["type"])
        Validator(published).validate(decoded)
    assert sorted(kinds) == ["call"] * 3 + ["event", "hello", "ready"] + ["result"] * 3


@pytest.mark.parametrize(
    "line",
    [
        {"type": "call", "id": 1, "op": "queue.add", "args": {"data_raw": "{}"}},
        {"type": "call", "id": "1", "op": "queue.pause", "args": {}},
        {"type": "hello", "protocol": 1},
        {"type": "ready", "protocol": 1, "client": {"name": "a"}, "ops": [], "capabilities": []},
        {"type": "result", "id": 1, "status": "done"},
        {"type": "event", "handle": "w", "name": "completed", "args": {"job": 1}},
        {"type": "other"},
    ],
    ids=str,
)
def test_wrong_lines_do_not(published: dict[str, Any], line: dict[str, Any]) -> None:
    assert not Validator(published).is_valid(line)


def test_answers_are_described(published: dict[str, Any]) -> None:
    view = msgspec.to_builtins(JobView(id="1", name="n", data_raw="{}"))
    claim = part(published, published["operations"][worker.GetNextJob.op]["answer"])
    claim.validate({"job": view})
    claim.validate({"job": None})
    broken = copy.deepcopy(view)
    broken["attempts_made"] = "1"
    assert not claim.is_valid({"job": broken})
    event = part(published, published["events"]["job"])
    assert event.is_valid({"job": view, "token": "t"})
    assert not event.is_valid({"job": view})


def test_lines_that_the_kit_builds_fit_its_published_schema(published: dict[str, Any]) -> None:
    lines = [
        Hello(protocol=1, seed=1),
        Call(id=1, op="queue.pause", args={}, now_ms=5, deadline_ms=1),
        Result(id=1, status="unsupported", reason="x"),
        DriverEvent(handle="h", name="brand-new", args={"x": 1}),
    ]
    for line in lines:
        Validator(published).validate(msgspec.to_builtins(line))


FIRST_USES = """
import sys
import msgspec
from conformance.driver.ops import REGISTRY, lifecycle, queue

built = []

def note(frame, event, _argument):
    if event == "call" and frame.f_code.co_name == "get_class_annotations":
        built.append(frame.f_locals["obj"].__name__)

def uses(types):
    for wanted in types:
        try:
            msgspec.convert({}, wanted)
        except msgspec.ValidationError:
            pass

class Unknown(msgspec.Struct):
    inner: int

sys.setprofile(note)
uses([*REGISTRY.values(), *(op.answer for op in REGISTRY.values()), *lifecycle.EVENT_ARGS.values()])
print("protocol", *built)
uses([Unknown])
print("control", *built)
"""


def test_no_type_of_the_protocol_is_built_at_its_first_use() -> None:
    """msgspec 0.22.0 kills the process when a second thread uses a type that is half built; seen once in chaos."""
    done = subprocess.run([sys.executable, "-c", FIRST_USES], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["protocol", "control Unknown", ""]
