"""The sample runs of the report tests: records built with defaults, and a small ledger that never changes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from conformance.findings import Finding, RedisReading
from conformance.gate.records import (
    FORMAT,
    Level,
    Party,
    Record,
    RedisInfo,
    RunFooter,
    RunHeader,
    ScenarioRecord,
    StepRecord,
    Verdict,
    encode,
)
from conformance.ledger.profiles import Profile, ProfileTable
from conformance.report.run_file import Run
from conformance.report.summary import RequirementRows

STARTED_MS = 1_700_000_000_000


@dataclass(frozen=True)
class SampleRow:
    level: Level
    area: str
    statement: str
    source: str


SAMPLE_ROWS: RequirementRows = {
    "add.plain.waits": SampleRow(
        "MUST", "add", "A job without options is put at the end of wait.", "addStandardJob-9.lua"
    ),
    "add.id.counter": SampleRow("MUST", "add", "Ids count up from 1.", "addStandardJob-9.lua"),
    "add.options.encoding": SampleRow(
        "MUST", "add", "opts is the JSON that JSON.stringify writes.", "src/classes/job.ts"
    ),
    "add.timestamp": SampleRow("MUST", "add", "timestamp is the client's time when the job was made.", "storeJob.lua"),
    "lock.stale-token-refused": SampleRow("MUST", "lock", "Who does not own the lock is refused.", "removeLock.lua"),
    "lock.renewed": SampleRow("MUST", "lock", "A worker extends its lock before it runs out.", "extendLocks-1.lua"),
    "events.waiting": SampleRow("SHOULD", "events", "A job that enters wait is announced.", "addJobInTargetList.lua"),
    "events.metrics": SampleRow("MAY", "events", "Finished jobs are counted per minute.", "collectMetrics.lua"),
    "flow.parent-waits": SampleRow("MUST", "flow", "A parent waits for all its children.", "addParentJob-6.lua"),
    "flow.fail-parent": SampleRow("MUST", "flow", "failParentOnFailure fails the parent.", "moveToFinished-14.lua"),
    "retry.fixed-backoff": SampleRow(
        "MUST", "retry", "A fixed back-off waits the same time.", "src/classes/backoffs.ts"
    ),
    "retry.jitter": SampleRow("SHOULD", "retry", "Jitter stays within its bounds.", "src/classes/backoffs.ts"),
    "rate.limit": SampleRow("MUST", "rate", "No more than max jobs start per duration.", "moveToActive-11.lua"),
}

SAMPLE_PROFILES = ProfileTable(
    [
        Profile(name="producer", title="adds jobs", operations=("queue.add",), rows=("add.*",)),
        Profile(name="worker", title="runs jobs", operations=("worker.open",), rows=("lock.*", "rate.*", "retry.*")),
        Profile(name="events", title="reads events", operations=("queue.add", "events.open"), rows=("events.*",)),
        Profile(name="flows", title="adds families", operations=("flow.add",), rows=("flow.*",)),
    ]
)
"""One that is declared and small, one that is declared and large, one declared in part, one not at all."""


def party(**changes: Any) -> Party:
    """Build the sample client, with changes."""
    plain = Party(
        name="sample-client",
        language="python",
        version="1.4.0",
        targets="5.62.0",
        command=["python", "driver.py"],
        capabilities=["clock", "manual-worker"],
        ops=["queue.add", "worker.open"],
    )
    return msgspec.structs.replace(plain, **changes)


def header(run: str = "sample", **changes: Any) -> RunHeader:
    """Build the first record of a run, with changes."""
    plain = RunHeader(
        format=FORMAT,
        kit="0.1.0",
        run=run,
        started_ms=STARTED_MS,
        seed=17,
        tier="quick",
        command=["bullmq-conformance", "run", "--seed", "17", "--", "python", "driver.py"],
        requirement_set="5.62.0",
        client=party(),
        oracle=party(name="bullmq", language="node", version="5.62.0", command=["node", "driver.mjs"]),
        redis=RedisInfo(
            source="binary /usr/bin/redis-server",
            version="7.0.15",
            mode="standalone",
            settings={"maxmemory-policy": "noeviction"},
        ),
        environment={"python": "3.11.7", "os": "linux"},
        planned=0,
    )
    return msgspec.structs.replace(plain, **changes)


def scenario(name: str, verdict: Verdict, *requirements: str, total_ms: float = 12.5, **changes: Any) -> ScenarioRecord:
    """Build a scenario whose requirements all have its verdict, with changes. Its area is the start of its name."""
    plain = ScenarioRecord(
        id=name,
        title=name,
        area=name.partition(".")[0],
        tier="quick",
        verdict=verdict,
        requirements=dict.fromkeys(requirements, verdict),
        timings_ms={"oracle": 4.0, "client": 5.0, "observe": 2.0, "total": total_ms},
        reproduce=shlex.join(
            [
                "bullmq-conformance",
                "run",
                "--select",
                name,
                "--tier",
                "core",
                "--seed",
                "17",
                "--",
                "python",
                "driver.py",
            ]
        ),
    )
    return msgspec.structs.replace(plain, **changes)


def finding(requirement: str, where: str, expected: str, actual: str, **changes: Any) -> Finding:
    plain = Finding(
        requirement=requirement,
        source="snapshot",
        kind="wrong-value",
        severity="breaks-others",
        where=where,
        key="job 1",
        expected=expected,
        actual=actual,
        message=f"{where} is not what Node.js writes",
    )
    return msgspec.structs.replace(plain, **changes)


def footer(**changes: Any) -> RunFooter:
    """Build the last record of a run, with changes."""
    return msgspec.structs.replace(RunFooter(finished_ms=STARTED_MS, exit_code=0, verdicts={}), **changes)


def sample_run_files() -> dict[str, bytes]:
    """Build the run files of all samples, by name. One of them was cut in the middle of a record."""
    whole = {"full": _full(), "hostile": _hostile(), "empty": _empty(), "conformant": _conformant()}
    return {**{name: _encoded(run) for name, run in whole.items()}, "incomplete": _incomplete()}


def _encoded(run: Run) -> bytes:
    records: list[Record] = [run.header, *run.scenarios, *([run.footer] if run.footer else [])]
    return b"".join(encode(record) for record in records)


def _incomplete() -> bytes:
    records = (
        header("incomplete", planned=40),
        scenario("add.plain", "pass", "add.plain.waits", title="a plain job waits"),
        scenario("add.id", "pass", "add.id.counter", title="ids count up"),
    )
    torn = encode(scenario("add.options", "fail", "add.options.encoding", title=_OPTIONS_TITLE))
    cut = b'"requirements":{"'
    return b"".join(encode(record) for record in records) + torn[: torn.index(cut) + len(cut)]


_OPTIONS_IN_REDIS = RedisReading(
    command=["HGET", "<prefix>:q:1", "opts"], expected='{"attempts":3}', actual='{"attempts":"3"}'
)
_STEPS = [
    StepRecord(by="both", do="open", on="queue-1", args={"role": "queue", "queue": "q"}, oracle="{}", client="{}"),
    StepRecord(
        by="both",
        do="queue.add",
        on="queue-1",
        args={"name": "resize", "data_raw": "{}", "opts": {"attempts": 3}},
        oracle='{"id": "1"}',
        client='{"id": 1}',
    ),
    StepRecord(by="kit", do="clock", args={"ms": 50}),
    StepRecord(by="oracle", do="queue.pause", on="queue-1", oracle="{}"),
]

_OPTIONS_TITLE = "options are written as Node writes them"


def _empty() -> Run:
    return Run(header=header("empty"), scenarios=(), footer=footer(finished_ms=STARTED_MS + 500, exit_code=5))


def _conformant() -> Run:
    scenarios = (
        scenario("add.plain", "pass", "add.plain.waits", "add.id.counter", title="a plain job waits"),
        scenario("add.options", "pass", "add.options.encoding", "add.timestamp", title=_OPTIONS_TITLE),
        scenario("lock.stale", "pass", "lock.stale-token-refused", title="a stale token is refused"),
    )
    return Run(
        header=header("conformant", planned=3, not_run={"rate.limit": "in tier full"}),
        scenarios=scenarios,
        footer=footer(finished_ms=STARTED_MS + 3400, verdicts={"pass": 3}),
    )


def _full() -> Run:
    """A run with every verdict, a known and a stale failure, and a problem of the run as a whole."""
    scenarios = (*_additions(), *_locks_and_events(), *_flows_and_retries())
    return Run(
        header=header("full", planned=12, partner=party(name="go-bull", language="go", version="0.3.1")),
        scenarios=scenarios,
        footer=footer(
            finished_ms=STARTED_MS + 65_000,
            exit_code=1,
            verdicts={"pass": 4, "fail": 4, "warn": 1, "unsupported": 1, "inconclusive": 1, "error": 2},
            stale={"retry.fixed-backoff": "fails on slow machines"},
            problems=["known entry add.plain.waits (where 'job.*', message '') matches nothing in this run"],
            startup_ms={"oracle": 210.0, "client": 95.0},
        ),
    )


def _additions() -> Iterable[ScenarioRecord]:
    stamp, options = "add.timestamp", "add.options.encoding"
    written = (
        '{"_id":"1","name":"resize","attempts":3,"backoff":{"type":"exponential","delay":%s},'
        '"removeOnComplete":true,"stackTraceLimit":10}'
    )
    yield scenario("add.plain", "pass", "add.plain.waits", "add.id.counter", title="a plain job waits")
    yield scenario(
        "add.options",
        "fail",
        title=_OPTIONS_TITLE,
        total_ms=31.0,
        requirements={options: "fail", "add.plain.waits": "pass"},
        about=[options, "add.plain.waits"],
        steps=_STEPS,
        findings=[
            finding(options, "job.opts", written % "1000", written % '"1000"', redis=[_OPTIONS_IN_REDIS]),
            finding(stamp, "job.timestamp", "1700000000000", "1700000000999"),
        ],
    )
    yield scenario(
        "add.many",
        "fail",
        title="many jobs at once",
        total_ms=1250.0,
        requirements={"add.plain.waits": "pass", options: "pass", stamp: "fail"},
        findings=[
            finding(stamp, "job.timestamp", "1700000000000", "1700000000123"),
            finding(stamp, "job.timestamp", "1700000000001", "1700000000124", key="job 2"),
            finding(stamp, "job.delay", "0", "", kind="missing-field", severity="missing"),
        ],
    )


def _locks_and_events() -> Iterable[ScenarioRecord]:
    refused = finding(
        "lock.stale-token-refused",
        "answer.moveToCompleted",
        "error lock-mismatch",
        "ok",
        source="answer",
        kind="accepted",
        severity="wrong-behaviour",
        key="call 7",
        message="the driver said ok to a token that does not own the lock",
    )
    extra = finding("events.waiting", "event.waiting.prev", "", "null", source="events", kind="extra-field")
    yield scenario(
        "lock.stale",
        "fail",
        "lock.stale-token-refused",
        title="a stale token is refused",
        findings=[refused],
        log=["→ worker.open w1", "→ moveToCompleted 1 with token B", "← ok"],
    )
    yield scenario(
        "lock.renewed",
        "inconclusive",
        "lock.renewed",
        title="a lock is renewed in time",
        reason="the worker did not ask for its lock within 5000 ms; last seen: wait=1, active=0",
        repeated=["the client's driver was not let run for 812 ms, of which 655 ms close together: fail, no event"],
        total_ms=5000.0,
    )
    yield scenario(
        "events.waiting",
        "warn",
        "events.waiting",
        title="waiting is announced",
        findings=[msgspec.structs.replace(extra, severity="cosmetic", key="events stream 3-0")],
    )
    yield scenario(
        "events.metrics",
        "pass",
        "events.metrics",
        title="metrics are counted",
        findings=[finding("events.metrics", "metrics.count", "1", "0", severity="cosmetic")],
    )


def _flows_and_retries() -> Iterable[ScenarioRecord]:
    missing = finding(
        "flow.fail-parent", "membership.failed", "[1]", "[]", kind="missing-member", severity="wrong-behaviour"
    )
    yield scenario(
        "flow.children",
        "unsupported",
        "flow.parent-waits",
        title="a parent waits for its children",
        reason="the client does not declare flow.add",
        total_ms=0.0,
    )
    yield scenario(
        "flow.known",
        "fail",
        "flow.fail-parent",
        title="children of a failed parent",
        findings=[missing],
        known={"flow.fail-parent": "not built yet, see issue 12"},
    )
    yield scenario("retry.fixed", "pass", "retry.fixed-backoff", title="a fixed back-off")
    yield scenario(
        "retry.oracle",
        "error",
        "retry.jitter",
        title="the oracle stumbles",
        reason="oracle: AssertionError: expected delayed, got failed",
        log=["oracle: retries-exhausted"],
    )
    yield scenario(
        "worker.setup",
        "error",
        title="the driver does not start",
        reason="the client's driver ended with code 1 before it said ready",
        total_ms=0.0,
    )


def _hostile() -> Run:
    """A run in which everything that a client can send tries to break out of a report."""
    options, script = "add.options.encoding", "<script>id</script>"
    handler = 'a" onmouseover="alert(5)'
    injected = "{{ 7 * 7 }} {% include 'x' %} [bold red]rich markup[/bold red] `code` **bold** @everyone"
    client = party(
        name="client <img src=x onerror=alert(1)>",
        language='python" onload="x',
        version="1.0 | pipe",
        command=["python", "<script>alert('xss')</script>"],
    )
    breaking = scenario(
        "add.hostile",
        "fail",
        options,
        script,
        title="title </pre></details><script>alert(2)</script>",
        area="add|<b>pipes</b>",
        reason="::error file=x::injected\n::set-output name=a::b",
        log=["<script>log</script>", "\x1b[1mlog"],
        steps=[
            StepRecord(by="both", do="open", on="queue-1", args={"role": "queue", "queue": "</pre><script>x</script>"}),
            StepRecord(
                by="both",
                do="queue.add",
                on="queue-1",
                args={"name": "\n$(reboot)\n```\nimport os", "data_raw": "{}", "opts": {}},
                oracle="{}",
                client="'\n\u202e```</pre><script>alert(9)</script>",
            ),
        ],
        findings=[
            finding(
                options,
                "job.data",
                '{"html":"<script>alert(\'xss\')</script>","close":"</pre></textarea></script>"}',
                '{"html":"<svg onload=alert(3)>","cdata":"]]>"}',
                message=f"{injected} [link](javascript:alert(4))",
                redis=[
                    RedisReading(
                        command=["HGET", "<prefix>:q:</code><script>alert(7)</script>", "data"],
                        expected="```\n</pre><img src=x onerror=alert(8)>",
                        actual='"""\n`````\x1b[2J',
                    )
                ],
            ),
            finding(
                options,
                "job.name",
                "name\x1b[2J\x1b]0;owned\x07\x00",
                "left\u202egnp.exe\r\nset-output ::error::x",
                key="\x1b[31mkey",
            ),
            finding(script, handler, "&lt;already&gt; &amp;", "'single' \"double\" \uffff"),
        ],
    )
    table = scenario("pipe|`tick`", "pass", "add.plain.waits", title="| a | b |\n|---|---|", area="add|<b>pipes</b>")
    frame = scenario(
        "error<script>",
        "error",
        "worker.hostile",
        title="<iframe src=javascript:alert(6)>",
        area="worker",
        reason="::error file=x::injected\n::set-output name=a::b <style>*{display:none}</style>",
    )
    return Run(
        header=header("hostile <b>run</b>", client=client, planned=3),
        scenarios=(breaking, table, frame),
        footer=footer(
            finished_ms=STARTED_MS + 1000,
            exit_code=1,
            verdicts={"fail": 1, "pass": 1, "error": 1},
            problems=["<script>problem</script> [x](http://x) | y"],
        ),
    )
