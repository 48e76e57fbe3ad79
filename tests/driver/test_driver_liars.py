"""Every way in which a driver can be broken is caught, within its deadline, with a message of its own.

For any bytes that it writes, the kit gets a message or a DriverBroken, and never hangs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from conformance.driver import transports
from conformance.driver.errors import (
    ConnectionClosed,
    DriverBroken,
    DriverCrashed,
    DriverHung,
    DriverNotFound,
    HandshakeFailed,
    NotJson,
    OversizedLine,
    SchemaViolation,
    StdoutClosed,
    StdoutPollution,
    WrongId,
)
from conformance.driver.messages import MAX_LINE_BYTES, DriverEvent, Ready, Result, decode
from conformance.driver.ops import queue
from conformance.driver.ops.lifecycle import EVENT_ARGS
from conformance.driver.transports import ChildProcess, InProcess

HANG_MS = 700
DEADLINE_MS = 120_000
PROMPT_SECONDS = 60.0
"""On a busy machine; what is measured is that no deadline of 120 s was waited for."""


@dataclass(frozen=True)
class BrokenDriverCase:
    """A broken driver, what it must be called, and words of the message."""

    name: str
    body: str
    problem: type[DriverBroken]
    words: str
    deadline_ms: int = DEADLINE_MS


AT_START = [
    BrokenDriverCase("exits at once", "sys.exit(3)", DriverCrashed, r"ended \(exit code 3\) during the handshake"),
    BrokenDriverCase(
        "killed at start", "os.kill(os.getpid(), 9)", DriverCrashed, r"ended \(signal SIGKILL\) during the handshake"
    ),
    BrokenDriverCase(
        "says nothing", "hang()", HandshakeFailed, r"did not answer `hello` within 700 ms and was killed", HANG_MS
    ),
    BrokenDriverCase("says garbage", r"os.write(1, b'{\x22type\n'); hang()", NotJson, r"not JSON \(.*\): '\{\"type'"),
    BrokenDriverCase("says nothing on a line", r"os.write(1, b'\n'); hang()", NotJson, "the line is empty"),
    BrokenDriverCase("says a number", r"os.write(1, b'42\n'); hang()", NotJson, "not an object"),
    BrokenDriverCase("says bytes", r"os.write(1, b'\xff\xfe\n'); hang()", NotJson, "invalid UTF-8 at byte 0"),
    BrokenDriverCase(
        "prints a banner",
        r"os.write(1, b'Listening on redis://127.0.0.1\n'); hang()",
        StdoutPollution,
        r"printed text to stdout.*'Listening on redis.*stderr",
    ),
    BrokenDriverCase(
        "other version", "ready(protocol=2); hang()", HandshakeFailed, "uses version 2 .* kit uses version 1"
    ),
    BrokenDriverCase(
        "event first", "say(type='event', handle='a', name='b'); hang()", HandshakeFailed, "first line is not `ready`"
    ),
    BrokenDriverCase(
        "no client", "say(type='ready', protocol=1, ops=[], capabilities=[])", SchemaViolation, "field `client`"
    ),
    BrokenDriverCase(
        "ops is a text",
        "hear(); say(type='ready', protocol=1, client={'name':'a','language':'b','version':'c'}, ops='x')\nhang()",
        SchemaViolation,
        r"line of type `ready`.*Expected `array`, got `str` - at `\$\.ops`",
    ),
    BrokenDriverCase("unknown type", "say(type='log', level=30); hang()", SchemaViolation, "Invalid value 'log'"),
    BrokenDriverCase(
        "closes stdout", "hear(); os.close(1); hang()", StdoutClosed, "closed its stdout during the handshake"
    ),
    BrokenDriverCase(
        "unfinished", 'os.write(1, b\'{"type":"rea\'); sys.exit(1)', DriverCrashed, r"not finished: '\{\"type\":\"rea'"
    ),
]

AT_CALL = [
    BrokenDriverCase(
        "never answers", "ready(); hang()", DriverHung, "did not answer queue.add within 700 ms and was killed", HANG_MS
    ),
    BrokenDriverCase("never reads", "ready()\nhang()", DriverHung, "did not answer queue.add", HANG_MS),
    BrokenDriverCase(
        "crashes", "ready(); hear(); sys.exit(7)", DriverCrashed, r"ended \(exit code 7\) during queue.add"
    ),
    BrokenDriverCase(
        "crashes loudly",
        "ready(); hear(); raise RuntimeError('out of cheese')",
        DriverCrashed,
        r"(?s)exit code 1.*last lines of its stderr.*out of cheese",
    ),
    BrokenDriverCase("killed", "ready(); hear(); os.kill(os.getpid(), 15)", DriverCrashed, "signal SIGTERM"),
    BrokenDriverCase(
        "closes stdout",
        "ready(); hear(); os.close(1); hang()",
        StdoutClosed,
        "during queue.add, but its process is still running",
    ),
    BrokenDriverCase(
        "prints", r"ready(); hear(); os.write(1, b'[info] adding job\n'); hang()", StdoutPollution, "adding job"
    ),
    BrokenDriverCase(
        "prints colours", r"ready(); hear(); os.write(1, b'\x1b[31mwarn\x1b[0m\n'); hang()", StdoutPollution, "warn"
    ),
    BrokenDriverCase("garbage", r"ready(); hear(); os.write(1, b'\x00\x01\x02\n'); hang()", NotJson, "not JSON"),
    BrokenDriverCase(
        "invalid UTF-8", r"ready(); hear(); os.write(1, b'{\x22a\x22:\x22\xc3\x28\x22}\n'); hang()", NotJson, "UTF-8 at"
    ),
    BrokenDriverCase(
        "deep", r"ready(); hear(); os.write(1, b'{\x22value\x22:' + b'[' * 100000 + b'\n'); hang()", NotJson, "JSON"
    ),
    BrokenDriverCase(
        "counts ids",
        "ready(); hear(); say(type='result', id=10**6, status='ok', value={}); hang()",
        WrongId,
        "id 1000000",
    ),
    BrokenDriverCase(
        "long line", "ready(); hear(); os.write(1, b'{' + b' ' * 2**24); hang()", OversizedLine, "longer than 16777216"
    ),
    BrokenDriverCase("ready twice", "ready(); hear(); say_ready(); hang()", HandshakeFailed, "sent `ready` twice"),
    BrokenDriverCase(
        "fail, no error",
        "ready(); say(type='result', id=hear()['id'], status='fail'); hang()",
        SchemaViolation,
        "`error`",
    ),
    BrokenDriverCase(
        "bad status",
        "ready(); say(type='result', id=hear()['id'], status='done'); hang()",
        SchemaViolation,
        r"\$\.status",
    ),
    BrokenDriverCase(
        "id as text",
        "ready(); say(type='result', id=str(hear()['id']), status='ok'); hang()",
        SchemaViolation,
        r"\$\.id",
    ),
    BrokenDriverCase(
        "bad answer",
        "ready(); ok(hear(), id=1); hang()",
        SchemaViolation,
        r"answer to queue.add.*`\$\.id`.*\{\"id\":1\}",
    ),
    BrokenDriverCase("no answer", "ready(); ok(hear()); hang()", SchemaViolation, "missing required field `id`"),
    BrokenDriverCase(
        "bad event",
        "ready(); hear(); say(type='event', handle='w', name='completed', args={'job': 1}); hang()",
        SchemaViolation,
        r"event `completed` of w.*`\$\.job`",
    ),
]


def start(script: Any, liar: BrokenDriverCase) -> ChildProcess:
    return ChildProcess.start(script(liar.body), seed=1, handshake_deadline_ms=liar.deadline_ms)


@pytest.mark.parametrize("liar", AT_START, ids=lambda liar: liar.name)
def test_a_driver_that_breaks_the_handshake(script: Any, liar: BrokenDriverCase) -> None:
    started = time.monotonic()
    with pytest.raises(liar.problem, match=liar.words) as caught:
        start(script, liar)
    assert time.monotonic() - started < PROMPT_SECONDS
    assert type(caught.value) is liar.problem
    assert "driver `" in str(caught.value)
    assert caught.value.hint
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("liar", AT_CALL, ids=lambda liar: liar.name)
def test_a_driver_that_breaks_a_call(mini: Any, liar: BrokenDriverCase) -> None:
    connection = mini(liar.body)
    started = time.monotonic()
    with pytest.raises(liar.problem, match=liar.words) as caught:
        connection.call(queue.Add(name="n"), handle="q", deadline_ms=liar.deadline_ms)
    assert time.monotonic() - started < PROMPT_SECONDS
    assert type(caught.value) is liar.problem
    assert caught.value.hint


def test_the_last_words_of_a_crash_are_waited_for(mini: Any) -> None:
    body = """
ready(); hear()
parent = os.getpid()
if os.fork() == 0:
    os.close(1)
    while os.getppid() == parent:
        pass
    os.write(2, b"last words\\n")
    os._exit(0)
sys.exit(1)
"""
    connection = mini(body)
    with pytest.raises(DriverCrashed, match="last words"):
        connection.call(queue.Add(name="n"), deadline_ms=DEADLINE_MS)


def test_a_driver_that_answers_twice(mini: Any) -> None:
    connection = mini("ready(); call = hear(); ok(call, id='1'); ok(call, id='1'); hang()")
    assert connection.call(queue.Add(name="n")).id == "1"
    with pytest.raises(WrongId, match=r"open calls are: (none|\d+) .*answer each call exactly once"):
        connection.call(queue.Add(name="n"), deadline_ms=DEADLINE_MS)


def test_a_closed_stdout_differs_from_a_hang_even_with_a_short_deadline(mini: Any, eventually: Any) -> None:
    connection = mini("ready(); hear(); os.close(1); hang()")
    connection._send(b"{}\n")
    eventually(lambda: connection._stdout_ended, seen=connection.log_tail)
    with pytest.raises(StdoutClosed):
        connection.call(queue.Add(name="n"), deadline_ms=20)


def test_a_broken_driver_is_dead_and_stays_broken(mini: Any, eventually: Any) -> None:
    connection = mini(r"ready(); hear(); os.write(1, b'oops\n'); hang()")
    with pytest.raises(StdoutPollution) as first:
        connection.call(queue.Add(name="n"))
    eventually(lambda: connection._process.poll() is not None, seen=lambda: connection._process)
    assert not connection.alive
    with pytest.raises(StdoutPollution) as second:
        connection.call(queue.Add(name="n"))
    assert second.value is first.value


def test_a_driver_that_does_not_read_its_stdin_does_not_hold_up_the_kit(mini: Any) -> None:
    connection = mini("ready(); hang()")
    with pytest.raises(DriverHung):
        connection.call(queue.Add(name="n", data_raw='"' + "x" * 2_000_000 + '"'), deadline_ms=HANG_MS)


def test_a_driver_that_ignores_the_end_of_stdin_is_killed(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = mini("ready(); signal.signal(15, signal.SIG_IGN); hang()")
    monkeypatch.setattr(transports, "CLOSE_SECONDS", 0.5)
    started = time.monotonic()
    assert connection.close() is False
    assert 0.4 < time.monotonic() - started < PROMPT_SECONDS
    assert not connection.alive


def test_a_driver_that_leaves_at_the_end_of_stdin_is_not_killed(mini: Any) -> None:
    connection = mini("ready(); hear()")
    assert connection.close() is True
    assert connection._process.returncode == 0
    with pytest.raises(ConnectionClosed, match="the kit has ended it"):
        connection.call(queue.Add(name="n"))


def test_processes_that_a_driver_started_end_with_it(mini: Any, eventually: Any, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"""
import subprocess
ready()
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
open({str(pid_file)!r} + ".part", "w").write(str(child.pid))
os.rename({str(pid_file)!r} + ".part", {str(pid_file)!r})
hang()
"""
    connection = mini(body)
    eventually(pid_file.exists, seen=connection.log_tail)
    child = Path("/proc") / pid_file.read_text()
    assert child.exists()
    connection.kill()
    eventually(lambda: not child.exists() or " Z " in (child / "stat").read_text(), seen=child.exists)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/driver"], "cannot start '/no/such/driver': No such file or directory.*not a shell command line"),
        (["/etc/passwd"], "cannot start '/etc/passwd': Permission denied"),
        ([""], "cannot start ''"),
        ([], "cannot start ''"),
    ],
)
def test_a_command_that_cannot_be_started(command: list[str], words: str) -> None:
    with pytest.raises(DriverNotFound, match=words):
        ChildProcess.start(command, seed=1)


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
        assert isinstance(message, (Ready, Result, DriverEvent))
        return
    assert problem.what
    assert problem.hint
    assert len(problem.what) < 3000


class NoiseTransport:
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


@pytest.mark.slow
@given(st.lists(LINES, max_size=4).map(b"\n".join), st.integers(1, 5))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@example(b"", 1)
@example(b"no newline", 1)
def test_a_connection_survives_any_bytes(noise: bytes, pieces: int) -> None:
    connection = InProcess.start(NoiseTransport(noise, pieces))
    try:
        with pytest.raises(DriverBroken) as caught:
            connection.call(queue.Add(name="n"), deadline_ms=50)
        assert "driver `in-process`: " in str(caught.value)
        assert not connection.alive
    finally:
        connection.kill()


def test_the_fuzzer_would_see_a_good_answer() -> None:
    """The sentinel of the test above: with the right bytes, the same call succeeds."""
    probe = InProcess.start(NoiseTransport(b"", 1), seed=5)
    expected = probe._mailbox.open_call("x")  # equal seeds choose equal ids
    probe.kill()
    line = json.dumps({"type": "result", "id": expected, "status": "ok", "value": {"id": "7"}}).encode()
    connection = InProcess.start(NoiseTransport(line + b"\n", 3), seed=5)
    assert connection.call(queue.Add(name="n"), deadline_ms=5000).id == "7"
    connection.kill()


def test_an_oversized_line_needs_no_newline_to_be_refused() -> None:
    connection = InProcess.start(NoiseTransport(b"x" * (MAX_LINE_BYTES + 1), 3))
    with pytest.raises(DriverBroken, match=f"longer than {MAX_LINE_BYTES} bytes"):
        connection.call(queue.Add(name="n"), deadline_ms=5000)
    connection.kill()


@pytest.mark.parametrize(
    "text", ["[info] started", "2026-01-02 10:00:00 ready", '"quoted"', "undefined", "\x1b[1mbold"]
)
def test_log_text_differs_from_bad_json(text: str) -> None:
    with pytest.raises(StdoutPollution):
        decode(text.encode())


def test_unknown_fields_and_events_are_from_a_newer_driver() -> None:
    line: dict[str, Any] = {"type": "event", "handle": "w", "name": "brand-new", "args": {"a": 1}, "since": "v2"}
    assert decode(json.dumps(line).encode()) == DriverEvent(handle="w", name="brand-new", args={"a": 1})


@pytest.mark.parametrize(
    ("name", "args"), [("job", {"job": {"id": "1"}, "token": "t"}), ("error", {}), ("stalled", {})]
)
def test_arguments_of_known_events_are_checked(name: str, args: dict[str, Any]) -> None:
    with pytest.raises(SchemaViolation, match=f"the event `{name}` of w does not fit the schema"):
        decode(json.dumps({"type": "event", "handle": "w", "name": name, "args": args}).encode())
