"""A finding without the kit: the script in the client's language, the words where there is none, and the bug report."""

from __future__ import annotations

import ast
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conformance.environment.clients import client_folders
from conformance.findings import Finding, RedisReading
from conformance.gate.records import StepRecord
from conformance.report.bug_report import bug_reports, file_name, render_bug_report
from conformance.report.causes import Cause
from conformance.report.json_summary import document
from conformance.report.reproduction import (
    SETTLE_SECONDS,
    NotWritable,
    javascript_literal,
    language_of,
    python_literal,
    reproduction_of,
    rust_literal,
)
from conformance.report.run_file import Run
from conformance.report.summary import Summary, summarise
from tests.report.recorded import summary_of
from tests.report.sample_runs import SAMPLE_ROWS, finding, footer, header, party, scenario

OPENED = StepRecord(by="both", do="open", on="queue-1", args={"role": "queue", "queue": "q", "options": {}})


def call(do: str, by: str = "both", **args: Any) -> StepRecord:
    return msgspec.convert({"by": by, "do": do, "on": "queue-1", "args": args}, StepRecord)


ADDED = call(
    "queue.add", name='it\'s "a" job', data_raw='{"n":[1,null,true]}', opts={"parent": {"queue": "<prefix>:q"}}
)
IN_REDIS = RedisReading(command=["HGET", "<prefix>:q:1", "data"], expected='{"n":1}', actual="(nil)")


def summary(*steps: StepRecord, folder: str = "python-official", **changes: Any) -> Summary:
    found: Finding = finding("add.plain.waits", "job.data", "1", "", redis=[IN_REDIS], **changes)
    record = scenario("a", "fail", "add.plain.waits", findings=[found], steps=list(steps))
    client = party(folder=folder, version="3.4.4", packages={"redis": "8.1.0"})
    return summarise(Run(header=header(client=client, planned=1), scenarios=(record,), footer=footer()), SAMPLE_ROWS)


def only(shown: Summary) -> Cause:
    (cause,) = shown.causes
    return cause


def script_of(*steps: StepRecord, folder: str = "python-official", **changes: Any) -> str:
    shown = summary(*steps, folder=folder, **changes)
    return reproduction_of(only(shown), shown.run.header).script


def test_a_script_is_in_the_language_of_the_client() -> None:
    shown = summary(OPENED, ADDED)
    written = reproduction_of(only(shown), shown.run.header)
    ast.parse(written.script)
    assert (written.language, written.run) == ("python", "venv/bin/python reproduction.py")
    assert written.prepare[1] == "venv/bin/pip install bullmq==3.4.4 redis==8.1.0"
    assert "queue_1 = opened(Queue('q', here))" in written.script
    line = """queue_1.add('it\\'s "a" job', {'n': [1, None, True]}, {'parent': {'queue': 'bullmq-repro:q'}}))"""
    assert line in written.script
    assert """await look(redis, ['HGET', 'bullmq-repro:q:1', 'data'], '{"n":1}')""" in written.script
    assert "<prefix>" not in written.script


def test_calls_of_node_alone_after_the_client_stopped_are_not_steps() -> None:
    assert "pause" not in script_of(OPENED, ADDED, call("queue.pause", by="oracle"))


def test_time_and_changes_by_the_kit_are_steps() -> None:
    waited = script_of(OPENED, StepRecord(by="kit", do="clock", args={"ms": 250}))
    assert "await asyncio.sleep(0.25)" in waited
    deleted = script_of(OPENED, StepRecord(by="kit", do="redis", args={"words": ["DEL", "<prefix>:q:1:lock"]}))
    assert "await redis.execute_command('DEL', 'bullmq-repro:q:1:lock')" in deleted


def worker_opened(processor: str) -> StepRecord:
    args = {"role": "worker", "queue": "q", "processor": processor, "processor_args": {}, "options": {}}
    return StepRecord(by="both", do="open", on="worker-2", args=args)


def test_a_worker_that_is_opened_last_is_given_time_for_what_it_does() -> None:
    waits = f"await asyncio.sleep({SETTLE_SECONDS}.0)"
    written = script_of(OPENED, worker_opened("noop"))
    assert written.index("worker_2 = opened(") < written.index(waits)
    assert waits not in script_of(OPENED, worker_opened("manual"))
    assert waits not in script_of(OPENED, worker_opened("noop"), ADDED)


ITERATION = "repeat:s:1795486835898"
SCHEDULED = msgspec.structs.replace(
    call("queue.upsertJobScheduler", id="s", repeat={"every": 9000}, name="s", data_raw="{}", opts={}),
    client=json.dumps({"job": {"id": ITERATION, "name": "s"}}),
)


WAITED = StepRecord(by="kit", do="wait", args={"what": "it is run"})


def test_a_wait_lasts_until_the_delayed_jobs_are_due() -> None:
    delayed = [call("queue.add", name="a", data_raw="{}", opts={"delay": ms}) for ms in (12_000, 3000)]
    written = script_of(OPENED, worker_opened("noop"), *delayed, WAITED, WAITED)
    assert f"await asyncio.sleep({SETTLE_SECONDS + 12.0})" in written
    assert written.count(f"await asyncio.sleep({SETTLE_SECONDS}.0)") == 1, "then they are no longer waited for"
    assert f"await asyncio.sleep({SETTLE_SECONDS + 12.0})" in script_of(OPENED, *delayed, worker_opened("noop"))


def test_a_job_that_is_due_next_week_is_not_waited_for() -> None:
    delayed = call("queue.add", name="a", data_raw="{}", opts={"delay": 604_800_000})
    assert f"await asyncio.sleep({SETTLE_SECONDS}.0)" in script_of(OPENED, delayed, WAITED)


@pytest.mark.parametrize("operation", ["queue.getJob", "job.promote"])
def test_an_id_that_contains_the_time_of_the_run_is_taken_from_the_answer(operation: str) -> None:
    written = script_of(OPENED, SCHEDULED, call(operation, job=ITERATION))
    assert ("getJob(ANSWERS[2].id)" if operation == "queue.getJob" else "on_job(queue_1, ANSWERS[2].id, ") in written


def test_where_no_script_can_take_it_from_there_the_steps_are_said_in_words() -> None:
    within = call("queue.add", name="n", data_raw="{}", opts={"jobId": ITERATION})
    assert "# With your client, " in script_of(OPENED, SCHEDULED, within)
    read = call("queue.getJob", job=ITERATION)
    assert "# With your client, " in script_of(OPENED, SCHEDULED, read, folder="rust-official")
    other = call("queue.getJob", job="repeat:t:1795486835898")
    assert "queue_1.getJob('repeat:t:1795486835898')" in script_of(OPENED, SCHEDULED, other)


def test_a_finding_about_commands_is_shown_by_the_commands() -> None:
    assert "monitor" not in script_of(OPENED, ADDED)
    written = script_of(OPENED, ADDED, source="traffic")
    ast.parse(written)
    assert written.index("ensure_future(listen(ready))") < written.index("queue_1.add(") < written.index("*(command[")


@pytest.mark.parametrize(
    "step",
    [
        call("queue.unheardOf"),
        call("queue.add", name="n", data_raw="no JSON", opts={}),
        call("queue.add", name="n", data_raw="1e999", opts={}),
        StepRecord(by="kit", do="clock", args={"ms": 3_600_000}),
        StepRecord(by="kit", do="network", args={"what": "hold moveToActive (after-execute)"}),
        StepRecord(by="both", do="open", on="worker-2", args={"role": "worker", "processor": "steps"}),
        StepRecord(by="both", do="queue.pause", on="queue-7"),  # whose opening was not kept
    ],
)
def test_what_no_script_can_do_is_said_in_words(step: StepRecord) -> None:
    written = script_of(OPENED, step)
    assert "# With your client, on the key prefix bullmq-repro:" in written
    assert '\nredis-cli HGET bullmq-repro:q:1 data\n#   expected  {"n":1}\n#   actual    (nil)' in written


@pytest.mark.parametrize("folder", ["", "no-such-client"])
def test_words_say_what_happens_between_the_client_and_redis_too(folder: str) -> None:
    held = StepRecord(by="kit", do="network", args={"what": "hold moveToActive (after-execute)"})
    assert "#   2 between the client and Redis: hold moveToActive (after-execute)\n" in script_of(
        OPENED, held, folder=folder
    )


@pytest.mark.parametrize("folder", ["", "no-such-client"])
def test_a_client_without_a_language_gets_words(folder: str) -> None:
    call_in_words = script_of(OPENED, ADDED, folder=folder).splitlines()[5]
    assert call_in_words.startswith('#   2 queue-1: queue.add(name="it')
    assert call_in_words.endswith('opts={"parent":{"queue":"bullmq-repro:q"}})')


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_a_literal_is_the_value_again_and_plain_ascii(value: Any) -> None:
    assert ast.literal_eval(python_literal(value)) == value
    assert json.loads(javascript_literal(value)) == value
    raw = rust_literal(value)
    assert json.loads(raw.removeprefix('r#"').removesuffix('"#')) == value
    assert raw.isascii()
    assert raw.count("#") == 2
    assert (python_literal(value) + javascript_literal(value)).isascii()
    assert "\n" not in python_literal(value) + javascript_literal(value)


@pytest.mark.parametrize("value", [float("inf"), [float("nan")], {"a": [-float("inf")]}])
def test_a_number_without_a_literal_is_not_written(value: Any) -> None:
    with pytest.raises(NotWritable):
        python_literal(value)


@pytest.mark.parametrize("name", client_folders())
def test_every_client_of_the_kit_says_how_its_operations_are_written(name: str) -> None:
    assert language_of(name) is not None


def fences(text: str) -> list[tuple[str, str]]:
    """Language and content of each block of code, as Markdown has it."""
    return [(token.info, token.content) for token in MarkdownIt().parse(text) if token.type == "fence"]


def test_a_bug_report_has_all_that_a_stranger_needs() -> None:
    shown = summary(OPENED, ADDED, kind="missing-field")
    text = render_bug_report(only(shown), shown)
    assert text.startswith("# job.data is missing\n")
    for part in (
        "redis 8.1.0",
        "Node.js BullMQ 5.62.0",
        "Redis 7.0.15",
        "bullmq-conformance 0.1.0",
        "addStandardJob-9.lua",
    ):
        assert part in text
    assert [language for language, _ in fences(text)] == ["", "sh", "python", "", ""]
    assert '\n  Node      {"n":1}\n  client    (nil)\n' in fences(text)[0][1]


@pytest.mark.parametrize("folder", ["python-official", ""])
def test_a_hostile_client_breaks_out_of_no_bug_report(folder: str) -> None:
    hostile = summary_of("hostile")
    client = msgspec.structs.replace(hostile.run.header.client, folder=folder)
    run = msgspec.structs.replace(hostile.run.header, client=client)
    shown = summarise(Run(header=run, scenarios=hostile.run.scenarios, footer=hostile.run.footer), SAMPLE_ROWS)
    reports = bug_reports(shown)
    assert len(reports) == len(shown.causes) == 3
    for name, text in reports.items():
        assert name.isascii()
        assert "/" not in name
        assert not any(character in text for character in "\x1b\x00\u202e\x07")
        tokens = MarkdownIt().parse(text)
        assert not [token for token in tokens if token.type == "html_block"]
        assert not [
            child
            for token in tokens
            for child in token.children or []
            if child.type in ("html_inline", "link_open", "image")
        ]
        for language, code in fences(text):
            if language == "python":
                ast.parse(code)
            if language == "sh":
                assert all(
                    line.startswith(("#", "redis-cli ", "python3 ", "venv/")) or not line for line in code.splitlines()
                )


def test_files_are_in_the_order_of_severity() -> None:
    shown = summary_of("full")
    names = list(bug_reports(shown))
    assert names == [file_name(cause) for cause in shown.causes]
    assert names[0].startswith("01-")
    assert [cause.bug_report for cause in document(shown).causes] == [f"causes/{name}" for name in names]
