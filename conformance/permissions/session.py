"""Learns the permissions of a client from a run, proves them with another, and removes each in turn."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from conformance.gate.records import ScenarioRecord, decode
from conformance.gate.separate_run import RUN_FILE, read_records, start_run
from conformance.permissions.monitor import monitored, now_s
from conformance.permissions.rules import PermissionSet, PermissionUses, key_pattern, set_of
from conformance.problems import EnvironmentProblem
from conformance.servers.connection import connect_node, send
from conformance.servers.opening import RedisInstance, open_server

Announce = Callable[[str], None]

USER = "kit-client"
LOGIN_VARIABLE = "BULLMQ_CONFORMANCE_CLIENT_USER"
ALL = "~* &* +@all"
LIMIT_S = 3600.0
MOST_EXTENSIONS = 6
"""Runs that may each show a missing permission, after the one that learns."""

CANDIDATES = 3
"""Scenarios that must show that a permission is needed, before the whole selection is run without it."""

LOADING = frozenset({"eval", "script|load", "script|exists"})
"""Commands with which clients load scripts. The oracle has loaded the same scripts, which hides the need."""

FLUSH_EVERY_S = 0.2
LOG_LENGTH = 10_000
BAD = frozenset({"fail", "error", "warn"})


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: verdicts by scenario, and the rules that Redis denied to the client."""

    verdicts: dict[str, str]
    denied: list[str] = []

    def worse_than(self, other: Outcome) -> list[str]:
        """Scenarios that are bad here and not there, or do not decide here what they decide there."""
        return [
            name
            for name, verdict in self.verdicts.items()
            if verdict != other.verdicts.get(name) and (verdict in BAD or other.verdicts.get(name) == "pass")
        ]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The scenarios of each run: words of `run`, and the driver's command after `--`."""

    words: Sequence[str]
    command: Sequence[str] = ()
    redis: str = ""

    def line(self, *more: str) -> list[str]:
        """The words of one run."""
        return [*self.words, *more, *(["--", *self.command] if self.command else [])]


@dataclass
class ScenarioTimes:
    """When scenarios ran (Unix s), as the growing run file shows it; `spans`: start and end by id."""

    spans: dict[str, tuple[float, float]] = field(default_factory=dict)

    def during(self, times: Sequence[float]) -> list[str]:
        """The scenarios that ran at these times, those with the most of them and the shortest first."""
        hits = {
            name: (-sum(start <= at <= end for at in times), end - start) for name, (start, end) in self.spans.items()
        }
        return sorted((name for name, (number, _) in hits.items() if number), key=hits.__getitem__)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """The result of the first run."""

    outcome: Outcome
    uses: PermissionUses
    times: ScenarioTimes


class PermissionSession:
    """Runs a selection with users of more and fewer permissions, each on a new Redis of its own."""

    def __init__(self, selection: Selection, folder: Path, announce: Announce) -> None:
        self._selection = selection
        self._folder = folder
        self._announce = announce
        self._password = secrets.token_hex(12)
        self._runs = 0

    def learn(self) -> Learned:
        """Run with a user who may do everything, and note what the client does. Raises Problems."""
        uses, times = PermissionUses(), ScenarioTimes()
        with self._server() as server, monitored(server, uses.note):
            outcome = self._run(server, ALL.split(), times=times)
        if not uses.counts:
            raise EnvironmentProblem(
                "the client never logged in, so nothing was learned",
                hint="its driver must use username and password of the address in `open`",
            )
        return Learned(outcome=outcome, uses=uses, times=times)

    def prove(self, permissions: PermissionSet, expected: Outcome) -> tuple[PermissionSet, Outcome]:
        """Run with exactly these permissions; what Redis denies is added if a scenario is worse than expected.

        Returns the sufficient permissions, and the outcome with them. MONITOR hides commands of administrators, so the
        first run may not have shown them.
        """
        for _ in range(MOST_EXTENSIONS):
            # A client that loaded no script itself must do so here.
            outcome = self.attempt(permissions, flush=not permissions.commands & LOADING)
            worse = outcome.worse_than(expected)
            missing = set_of(outcome.denied)
            if not worse or permissions.union(missing) == permissions:
                return permissions, outcome
            self._announce(f"denied, and {len(worse)} scenarios are worse: {', '.join(outcome.denied)}")
            permissions = permissions.union(missing)
        return permissions, outcome

    def attempt(self, permissions: PermissionSet, *select: str, flush: bool = False) -> Outcome:
        """Run with exactly these permissions. `select`: only these scenarios. `flush`: Redis forgets scripts."""
        with self._server() as server, _forgetting_scripts(server) if flush else nullcontext():
            return self._run(server, permissions.rules(self._password)[3:], select)

    def is_needed(self, permission: str, permissions: PermissionSet, learned: Learned) -> str:
        """A scenario that fails without a permission; empty if all of them hold."""
        less = permissions.without(permission)
        likely = learned.times.during(learned.uses.times.get(permission, []))[:CANDIDATES]
        # The likely ones first, because a whole run takes minutes.
        for select in [likely, []] if likely else [[]]:
            outcome = self.attempt(less, *select, flush=permission[1:] in LOADING)
            if worse := outcome.worse_than(learned.outcome):
                return worse[0]
        return ""

    @contextmanager
    def _server(self) -> Iterator[RedisInstance]:
        with open_server(self._selection.redis or None, announce=self._announce) as server:
            yield server

    def _run(
        self,
        server: RedisInstance,
        rules: Sequence[str],
        select: Sequence[str] = (),
        times: ScenarioTimes | None = None,
    ) -> Outcome:
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        # Of an earlier call: a part of its run must not be read as this one.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        chosen = [word for name in select for word in ("--select", name)]
        words = ["--redis", server.url, "--client-user", f"env:{LOGIN_VARIABLE}", "--no-known", *chosen]
        with connect_node(server, server.nodes[0]) as client, _variable(LOGIN_VARIABLE, f"{USER}:{self._password}"):
            untyped: Any = client
            untyped.config_set("acllog-max-len", LOG_LENGTH)
            send(client, "ACL", "SETUSER", USER, "reset", "on", f">{self._password}", *rules)
            with _timed(folder / RUN_FILE, times):
                how = start_run(self._selection.line(*words), folder, within_s=LIMIT_S)
            if how.problem:
                raise EnvironmentProblem(how.problem, hint=f"what the run printed is in {folder}")
            # Unparsed: redis-py fails at names of connections that contain `=`, as all of BullMQ do.
            denied = _denied(send(client, "ACL", "LOG", LOG_LENGTH))
        records = [record for record in read_records(folder) if isinstance(record, ScenarioRecord)]
        return Outcome(verdicts={record.id: record.verdict for record in records}, denied=denied)


def _denied(entries: Sequence[Sequence[Any]]) -> list[str]:
    """The rules that would have allowed what was denied to the client."""
    found = set()
    for entry in entries:
        facts = dict(zip(entry[::2], entry[1::2], strict=True))
        if facts.get(b"username") != USER.encode():
            continue
        what = bytes(facts[b"object"])
        text = what.decode("utf-8", "replace")
        match facts.get(b"reason"):
            case b"command":
                found.add(f"+{text.lower()}")
            case b"key":
                found.add(f"~{key_pattern(what)}")
            case b"channel":
                found.add(f"&{text}")
    return sorted(found)


@contextmanager
def _forgetting_scripts(server: RedisInstance) -> Iterator[None]:
    """Empty the cache of scripts again and again during the block."""
    ended = threading.Event()

    def flush() -> None:
        with connect_node(server, server.nodes[0]) as client:
            while not ended.wait(FLUSH_EVERY_S):
                send(client, "SCRIPT", "FLUSH")

    thread = threading.Thread(target=flush, name="script flush", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """An environment variable for the processes started in the block: a password is not put on a command line."""
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@contextmanager
def _timed(run_file: Path, times: ScenarioTimes | None) -> Iterator[None]:
    """Note in the block when the records of scenarios appear in a run file."""
    if times is None:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(run_file, times, ended), name="scenario times", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


WATCH_EVERY_S = 0.05


def _watch(run_file: Path, times: ScenarioTimes, ended: threading.Event) -> None:
    position, rest = 0, b""
    while not ended.is_set():
        time.sleep(WATCH_EVERY_S)
        if not run_file.exists():
            continue
        at_s = now_s()
        with run_file.open("rb") as file:
            file.seek(position)
            data = file.read()
        position += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            record = decode(line)
            if isinstance(record, ScenarioRecord):
                times.spans[record.id] = (at_s - record.timings_ms.get("total", 0.0) / 1000 - WATCH_EVERY_S * 4, at_s)
