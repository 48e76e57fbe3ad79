"""Converts recordings of taps to the script lines of a history: who claimed, who finished, and the replies of Redis."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgpack

from chaos.processes import ClientProcess
from chaos.recorder import HistoryRecorder
from conformance.checkers.histories.history import ScriptLine
from conformance.environment.background import BackgroundThread
from conformance.observe.tap.recording import CommandRecord
from conformance.observe.tap.resp import ProtocolViolation, decode, plain

JOB_ARGUMENT = {
    "moveToFinished": 0,
    "retryJob": 3,
    "moveToDelayed": 2,
    "moveJobFromActiveToWait": 0,
    "moveToWaitingChildren": 3,
    "extendLock": 2,
}
"""The index (from 0) of the id among the arguments."""
TOKEN_ARGUMENT = {
    "retryJob": 4,
    "moveToDelayed": 3,
    "moveJobFromActiveToWait": 1,
    "moveToWaitingChildren": 0,
    "extendLock": 0,
}
PACKED_TOKEN = {"moveToFinished": 7, "moveToActive": 2}
"""The index of the packed options that contain the token."""
EXTENDED_MS = 3
"""The index of the duration among the arguments of `extendLocks`."""
CLAIMING = frozenset({"moveToActive", "moveToFinished", "moveToDelayed", "retryJob"})
"""Newer versions of bullmq also fetch the next job when they delay one."""
RECORDED_SCRIPTS = frozenset({*JOB_ARGUMENT, *PACKED_TOKEN, "extendLocks", "moveStalledJobsToWait"})
COLLECT_PERIOD_S = 1.0
ON_THE_WAY = frozenset({"waiting", "sent"})


def script_lines(
    process: ClientProcess,
    records: Iterable[CommandRecord],
    processes: Sequence[ClientProcess],
    recorder: HistoryRecorder,
) -> Iterator[ScriptLine]:
    """The calls of scripts that claim, keep, end or recover jobs. Changed scripts (mutants) are matched by similarity.

    `processes`: all processes. Once a process has sent a script, the others call it by its digest, so only the tap of
    the first process has seen its text.
    """
    recordings = [known.tap.recording for known in (process, *processes)]
    for record in records:
        names = (recording.names.of(record.digest) for recording in recordings)
        script = next((name for name in names if name), None) if record.digest else None
        if script in RECORDED_SCRIPTS:
            yield _line(process.name, dataclasses.replace(record, script=script), recorder)


def _line(process: str, record: CommandRecord, recorder: HistoryRecorder) -> ScriptLine:
    script = record.script or ""
    reply = _reply(record)
    at_s = record.reply.at_s if record.reply is not None else record.arrived_s
    code = reply if isinstance(reply, int) and reply < 0 else 0
    return ScriptLine(
        at_ms=recorder.at_ms(at_s),
        sent_ms=recorder.at_ms(record.sent_s) if record.sent_s is not None else None,
        process=process,
        script=script,
        queue=_queue(record),
        job=_argument(record, JOB_ARGUMENT.get(script)),
        token=_token(record),
        jobs=_jobs(record, reply),
        refused=_refused(record, reply),
        claimed=_claimed(script, reply),
        lock_ms=_lock_ms(record),
        code=code,
        fate=record.fate,
        error=(record.reply.error or "") if record.reply is not None else "",
    )


def _queue(record: CommandRecord) -> str:
    """From the first key, `PREFIX:QUEUE:...`; the prefix has no colon."""
    parts = next((key for key in record.keys if key.count(b":") >= 2), b"").split(b":")
    return parts[1].decode("utf-8", "replace") if len(parts) > 2 else ""


def _argument(record: CommandRecord, index: int | None) -> str:
    if index is None or index >= len(record.argv):
        return ""
    return record.argv[index].decode("utf-8", "replace")


def _token(record: CommandRecord) -> str:
    index = PACKED_TOKEN.get(record.script or "")
    if index is None:
        return _argument(record, TOKEN_ARGUMENT.get(record.script or ""))
    packed = _unpacked(record, index)
    return str(packed.get("token", "")) if isinstance(packed, dict) else ""


def _lock_ms(record: CommandRecord) -> float | None:
    """How long the locks that a call sets live; None if it sets none, or does not say."""
    index = PACKED_TOKEN.get(record.script or "")
    packed = _unpacked(record, index) if index is not None else None
    asked = packed.get("lockDuration") if isinstance(packed, dict) else None
    if record.script == "extendLocks":
        asked = _argument(record, EXTENDED_MS)
    try:
        return float(asked) if asked else None
    except (TypeError, ValueError):
        return None


def _unpacked(record: CommandRecord, index: int) -> Any:
    try:
        return msgpack.unpackb(record.argv[index], raw=False, strict_map_key=False)
    except (IndexError, ValueError, msgpack.exceptions.UnpackException):
        return None


def _reply(record: CommandRecord) -> Any:
    """The reply of Redis; None if it was too long to be stored, an error, or missing."""
    if record.reply is None or record.reply.error or record.reply.size > len(record.reply.head):
        return None
    try:
        return plain(decode(record.reply.head))
    except ProtocolViolation:
        return None


def _claimed(script: str, reply: Any) -> str:
    """The id in a reply `[fields, id, 0, 0]`; without a job it is `[0, 0, ...]`."""
    if script in CLAIMING and isinstance(reply, list) and len(reply) > 1 and isinstance(reply[0], list):
        return _text(reply[1])
    return ""


def _jobs(record: CommandRecord, reply: Any) -> list[str]:
    """The ids of recovered jobs, or of jobs whose locks were renewed (the reply names the others)."""
    if record.script == "moveStalledJobsToWait" and isinstance(reply, list):
        return [_text(job) for job in reply]
    refused, asked = _refused(record, reply), _unpacked(record, 2)
    if record.script == "extendLocks" and isinstance(reply, list) and isinstance(asked, list):
        return [str(job) for job in asked if str(job) not in refused]
    return []


def _refused(record: CommandRecord, reply: Any) -> list[str]:
    """The ids whose locks could not be renewed: they were gone or belonged to another worker."""
    return [_text(job) for job in reply] if record.script == "extendLocks" and isinstance(reply, list) else []


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class ScriptCallCollector(BackgroundThread):
    """A context manager that collects once a second; `collect` takes the rest at the end."""

    def __init__(self, processes: Sequence[ClientProcess], recorder: HistoryRecorder) -> None:
        super().__init__()
        self._processes = processes
        self._recorder = recorder
        self._after = {process.name: 0 for process in processes}

    def collect(self, *, everything: bool) -> None:
        """Record the calls up to the first unfinished one; `everything`: also the unfinished ones."""
        for process in self._processes:
            records = process.tap.recording.commands(after=self._after[process.name])
            if not everything:
                records = tuple(takewhile(lambda record: record.fate not in ON_THE_WAY, records))
            for line in script_lines(process, records, self._processes, self._recorder):
                self._recorder.put(line)
            if records:
                self._after[process.name] = records[-1].sequence
                process.tap.forget(upto=records[-1].sequence)

    def run(self) -> None:
        """Run until stopped."""
        while not self.ended.wait(COLLECT_PERIOD_S):
            self.collect(everything=False)
