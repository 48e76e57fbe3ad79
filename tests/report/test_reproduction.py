"""A finding without the kit: the script in the client's language, the words where there is none, and the bug report."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from conformance.driver.authoring import SKELETONS, write_skeleton
from conformance.driver.ops import REGISTRY
from conformance.environment.clients import client_folders
from conformance.findings import Finding, RedisReading
from conformance.gate.client_language import language_text, read_language
from conformance.gate.records import StepRecord
from conformance.report.bug_report import bug_reports, file_name, render_bug_report
from conformance.report.causes import Cause
from conformance.report.json_summary import document
from conformance.report.literals import NotWritable, javascript_literal, python_literal, rust_literal
from conformance.report.reproduction import SETTLE_SECONDS, reproduction_of
from conformance.report.run_file import Run
from conformance.report.steps import step_line
from conformance.report.summary import Summary, summarise
from tests.report.recorded import summary_of
from tests.report.sample_runs import SAMPLE_ROWS, SampleRow, finding, footer, header, party, scenario

OPENED = StepRecord(by="both", do="open", on="queue-1", args={"role": "queue", "queue": "q", "options": {}})


def call(do: str, by: str = "both", **args: Any) -> StepRecord:
    return msgspec.convert({"by": by, "do": do, "on": "queue-1", "args": args}, StepRecord)


ADDED = call(
    "queue.add", name='it\'s "a" job', data_raw='{"n":[1,null,true]}', opts={"parent": {"queue": "<prefix>:q"}}
)
IN_REDIS = RedisReading(command=["HGET", "<prefix>:q:1", "data"], expected='{"n":1}', actual="(nil)")


def templates_of(client: str) -> str:
    return language_text(client_folders()[client]) if client else ""


def summary(*steps: StepRecord, templates: str | None = None, ops: Iterable[str] = REGISTRY, **changes: Any) -> Summary:
    """A run with one finding. `templates`: a `reproduction.toml`, by default that of the official Python client."""
    found: Finding = finding("add.plain.waits", "job.data", "1", "", redis=[IN_REDIS], **changes)
    record = scenario("a", "fail", "add.plain.waits", findings=[found], steps=list(steps))
    client = party(version="3.4.4", packages={"redis": "8.1.0"}, ops=list(ops))
    text = templates_of("python-official") if templates is None else templates
    run = header(client=client, planned=1, reproduction=text)
    return summarise(Run(header=run, scenarios=(record,), footer=footer()), SAMPLE_ROWS)


def only(shown: Summary) -> Cause:
    (cause,) = shown.causes
    return cause


def script_of(*steps: StepRecord, **changes: Any) -> str:
    shown = summary(*steps, **changes)
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


def test_steps_that_no_script_can_repeat_are_described_in_words() -> None:
    within = call("queue.add", name="n", data_raw="{}", opts={"jobId": ITERATION})
    assert "# With your client, " in script_of(OPENED, SCHEDULED, within)
    read = call("queue.getJob", job=ITERATION)
    by_driver = script_of(OPENED, SCHEDULED, read, templates=templates_of("rust-official"))
    assert """'queue.getJob', 'queue_1', { 'job': ANSWERS[2]['job']['id'] }""" in by_driver
    other = call("queue.getJob", job="repeat:t:1795486835898")
    assert "queue_1.getJob('repeat:t:1795486835898')" in script_of(OPENED, SCHEDULED, other)


def test_a_loop_in_place_of_a_manual_worker_is_a_worker_with_a_processor() -> None:
    answer = '{"job": {"id": "1"}}'
    claim = call("worker.getNextJob", token="t", queue="q", options={"lockDuration": 500})
    claimed = msgspec.structs.replace(claim, on="", client=answer)
    nothing = msgspec.structs.replace(claimed, client='{"job": null}')
    done = call("worker.moveToCompleted", job="1", token="t", value_raw="[1]", fetch_next=False)
    failed = call("worker.moveToFailed", job="1", token="t", message="no", unrecoverable=True)
    ops = ["open", "close", "queue.add", "resolve"]
    script = script_of(OPENED, ADDED, claimed, done, claimed, failed, nothing, ops=ops)
    ast.parse(script)
    assert "loop_1 = opened(Worker('q', processing('ask', {}), { **{'lockDuration': 500}, **here }))" in script
    assert "resolve('1', 'complete', [1])" in script
    assert "resolve('1', 'unrecoverable', 'no')" in script
    assert "loop_3.close()" in script, "a worker that found no job takes none of the next steps"
    # The queue is the only one in a run file of an older version, and unknown if there are two.
    older = msgspec.structs.replace(claimed, args={"token": "t"})
    assert "loop_1 = opened(Worker('q'," in script_of(OPENED, ADDED, older, ops=ops)
    second = msgspec.structs.replace(OPENED, on="queue-2", args={**OPENED.args, "queue": "other"})
    assert "the queue of its worker was not recorded" in script_obstacle(OPENED, second, older, ops=ops)
    assert "worker.getNextJob" in script_obstacle(OPENED, claimed, ops=["open", "queue.add"]), "no loop that asks"


def script_obstacle(*steps: StepRecord, **changes: Any) -> str:
    shown = summary(*steps, **changes)
    return reproduction_of(only(shown), shown.run.header).obstacle


def test_arguments_at_their_defaults_are_not_printed() -> None:
    usual = call("worker.moveToCompleted", job="1", token="t", value_raw="1", fetch_next=False)
    assert step_line(usual) == 'queue-1: worker.moveToCompleted(job="1", token="t", value_raw="1")'
    other = msgspec.structs.replace(usual, args={**usual.args, "fetch_next": True})
    assert step_line(other).endswith("fetch_next=true)")


def test_only_operations_that_the_driver_declares_are_in_a_script() -> None:
    paused = call("queue.pause")
    declared = ["open", "queue.add"]
    assert "queue_1.pause()" in script_of(OPENED, paused, ops=[*declared, "queue.pause"])
    by_stand_in = msgspec.structs.replace(paused, stand_in=True)
    # Also if it is declared: a driver may refuse single arguments.
    for step, ops in ((paused, declared), (by_stand_in, [*declared, "queue.pause"])):
        shown = summary(OPENED, ADDED, step, ops=ops)
        text = render_bug_report(only(shown), shown)
        assert "No script: the driver does not declare `queue.pause`, so Node.js does it." in text
    assert "queue-1 (Node in place of the client): queue.pause()" in script_of(OPENED, by_stand_in)


@pytest.mark.parametrize("templates", ["", "no TOML", templates_of("rust-official")])
def test_calls_that_the_templates_of_a_client_lack_are_sent_to_its_driver(templates: str) -> None:
    shown = summary(OPENED, call("queue.getMetrics"), templates=templates)
    text = render_bug_report(only(shown), shown)
    assert "Save this as `reproduction.py` and run `python3 reproduction.py python driver.py`:" in text
    script = script_of(OPENED, call("queue.getMetrics"), templates=templates)
    ast.parse(script)
    assert "step(2, 'queue-1: queue.getMetrics()', 'queue.getMetrics', 'queue_1', {" in script


@pytest.mark.parametrize(
    "template",
    ["{{ on.__class__ }}", "{{ 'a' * 100000 * 100000 }}", "{{ on | unheard_of }}", "{% if %}", "{{ 1 // 0 }}"],
)
def test_a_template_that_cannot_be_filled_in_or_must_not_be_is_not_used(template: str) -> None:
    given = templates_of("python-official").replace(
        '"queue.pause" = "{{ on }}.pause()"', f'"queue.pause" = "{template}"'
    )
    assert template in given
    assert "'queue.pause', 'queue_1', {" in script_of(OPENED, call("queue.pause"), templates=given)


EXAMPLE = re.compile(r'^# (?=queue = |"queue\.add" = )', re.MULTILINE)
"""The lines of a skeleton's templates that its author uncomments."""


@pytest.mark.parametrize("language", list(SKELETONS))
def test_the_templates_of_a_skeleton_make_a_script(language: str, tmp_path: Path) -> None:
    [path] = [path for path in write_skeleton(language, tmp_path) if path.name == "reproduction.toml"]
    shown = summary(OPENED, ADDED, templates=path.read_text("utf-8"))
    assert reproduction_of(only(shown), shown.run.header).run.startswith("python3 reproduction.py"), "by its driver"
    uncommented, lines = EXAMPLE.subn("", path.read_text("utf-8"))
    assert lines == 2
    awkward = call("queue.add", name='"q" \\ $a #{b} é 😀 \x01\n', data_raw='{"n":[1,1.5,"#{x} $y"]}', opts={})
    changed = StepRecord(by="kit", do="redis", args={"words": ["DEL", "<prefix>:q:1:lock", 5]})
    passed = StepRecord(by="kit", do="clock", args={"ms": 250})
    shown = summary(OPENED, ADDED, awkward, changed, passed, templates=uncommented)
    written = reproduction_of(only(shown), shown.run.header)
    assert written.obstacle == ""
    assert "redis-cli HGET bullmq-repro:q:1 data" in written.look
    assert "bullmq-repro:q:1:lock" in written.script
    assert "Then read Redis:" in render_bug_report(only(shown), shown)
    (tmp_path / written.file).parent.mkdir(exist_ok=True)
    (tmp_path / written.file).write_text(written.script, "utf-8")
    assert syntax_errors(language, tmp_path, written.file) == []


PARSERS = {
    "python": ["python3", "-m", "py_compile"],
    "node": ["node", "--check"],
    "go": ["gofmt", "-e"],
    "rust": ["rustfmt", "--edition", "2021", "--check"],
    "java": ["javac", "-proc:none", "-d", "out"],
    "php": ["php", "-l"],
    "ruby": ["ruby", "-c"],
}
"""Commands that read a program without running it. C# and Elixir have none."""


def syntax_errors(language: str, folder: Path, file: str) -> list[str]:
    """The errors of the language's own parser; none without it on this machine."""
    command = PARSERS.get(language)
    if command is None or shutil.which(command[0]) is None:
        return []
    done = subprocess.run([*command, file], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    errors = [line for line in (done.stderr + done.stdout).splitlines() if "rror" in line]
    # The client's own names are not installed here; its author's examples are the only unknown symbols.
    return [line for line in errors if done.returncode and "cannot find symbol" not in line and line[0].isalpha()]


def test_a_finding_about_commands_is_shown_by_the_commands() -> None:
    assert "monitor" not in script_of(OPENED, ADDED)
    written = script_of(OPENED, ADDED, source="traffic")
    ast.parse(written)
    assert written.index("ensure_future(listen(ready))") < written.index("queue_1.add(") < written.index("*(command[")


@pytest.mark.parametrize(
    "step",
    [
        call("queue.unheardOf"),
        StepRecord(by="kit", do="clock", args={"ms": 3_600_000}),
        StepRecord(by="kit", do="network", args={"what": "hold moveToActive (after-execute)"}),
        StepRecord(by="both", do="queue.pause", on="queue-7"),  # whose opening was not kept
    ],
)
def test_a_cause_that_no_script_can_show_is_described_in_words(step: StepRecord) -> None:
    written = script_of(OPENED, step)
    assert "# With your client, on the key prefix bullmq-repro:" in written
    assert '\nredis-cli HGET bullmq-repro:q:1 data\n#   expected  {"n":1}\n#   actual    (nil)' in written


def test_words_say_what_happens_between_the_client_and_redis_too() -> None:
    held = StepRecord(by="kit", do="network", args={"what": "hold moveToActive (after-execute)"})
    written = script_of(OPENED, ADDED, held)
    assert "#   3 between the client and Redis: hold moveToActive (after-execute)\n" in written
    call_in_words = written.splitlines()[5]
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
    assert "queue.add" in read_language(templates_of(name)).calls


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


def test_nodes_state_is_shown_also_if_the_client_stopped_before_the_end() -> None:
    reading = RedisReading(command=["HGETALL", "<prefix>:q:meta"], at_end='{"paused": "1"}', actual="{}")
    shown = summary(OPENED, ADDED, source="assertion")
    cause = dataclasses.replace(only(shown), finding=finding("add.plain.waits", "x", "1", "", redis=[reading]))
    text = render_bug_report(cause, shown)
    assert 'HGETALL bullmq-repro:q:meta\n  Node      {"paused": "1"}\n  client    {}\n' in text
    assert "Node's state is from the end of the scenario" in text


def test_words_of_the_kit_keep_their_markdown_and_foreign_words_do_not() -> None:
    message = "the answer `0` is `<i>` and *not* <b>"
    rows = {"add.plain.waits": SampleRow("MUST", "add", "Keys `q:*` of *one* queue.", "a_b.lua")}
    found = finding("add.plain.waits", "x", "1", "", source="assertion", message=message)
    run = Run(
        header=header(planned=1),
        scenarios=(scenario("a", "fail", "add.plain.waits", findings=[found]),),
        footer=footer(),
    )
    [text] = bug_reports(summarise(run, rows)).values()
    assert "Keys `q:*` of *one* queue. (MUST, a_b.lua)" in text
    assert text.startswith("# does not hold: the answer `0` is `<i>` and &#42;not&#42; &#60;b&#62;\n")


def test_no_folder_of_this_machine_is_in_a_bug_report() -> None:
    found = finding("add.plain.waits", "x", "1", "at /home/me/secret-client/queue.py:7", message="it fails")
    record = scenario(
        "a",
        "fail",
        "add.plain.waits",
        findings=[found],
        reproduce="bullmq-conformance run --redis binary:../../srv/redis-server -- python ../secret-client/driver.py",
    )
    client = party(command=["/usr/bin/python3", "/home/me/secret-client/driver.py"])
    run = Run(header=header(client=client, planned=1), scenarios=(record,), footer=footer())
    [text] = bug_reports(summarise(run, SAMPLE_ROWS)).values()
    assert "secret" not in text
    assert "/home" not in text
    assert "at path/to/queue.py:7" in text
    assert "--redis binary:path/to/redis-server -- python path/to/driver.py" in text


@pytest.mark.parametrize("client", ["python-official", ""])
def test_a_hostile_client_breaks_out_of_no_bug_report(client: str) -> None:
    hostile = summary_of("hostile")
    party = msgspec.structs.replace(hostile.run.header.client, ops=list(REGISTRY))
    run = msgspec.structs.replace(hostile.run.header, client=party, reproduction=templates_of(client))
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
