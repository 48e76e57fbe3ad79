"""Records of a scenario with findings: the steps of both sides, and what Redis holds at the place of each finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.findings import Finding
from conformance.gate.evidence import MOST_STEPS, RedisLook, places_of, reply_text, steps_in_order, steps_side_by_side
from conformance.gate.options import RunConfig
from conformance.gate.verdicts import reproduce_line
from conformance.participants.names import Names
from conformance.participants.transcript import RecordedCall, Transcript
from conformance.servers import RedisInstance

from .miniature_drivers import BenchOf, ChildDriver
from .small_scenarios import COUNTS, PAUSES, SHARES, MiniatureDrivers, tried


def finding(where: str, key: str, **changes: Any) -> Finding:
    values: dict[str, Any] = {
        "requirement": "",
        "source": "snapshot",
        "kind": "wrong-value",
        "severity": "missing",
        "where": where,
        "key": key,
        "expected": "",
        "actual": "",
        "message": "",
    }
    return Finding(**{**values, **changes})


# Steps.


def test_steps_of_both_sides_are_listed_side_by_side() -> None:
    oracle, client = Transcript(), Transcript()
    for transcript, prefix, answer in ((oracle, "bc1", "1"), (client, "bc2", "2")):
        transcript.record(
            RecordedCall("queue.add", "ok", {"key": f"{prefix}:q:{answer}"}, args={"name": prefix}, handle="queue-1")
        )
        transcript.record_act("clock", "50")
        transcript.record_act("DEL", f"{prefix}:q:wait")
    oracle.record(RecordedCall("queue.pause", "ok", {}, handle="queue-1"))
    added, passed, deleted, paused = steps_side_by_side(oracle, client, "bc1", "bc2")
    assert (added.by, added.oracle, added.client) == ("both", '{"key": "<prefix>:q:1"}', '{"key": "<prefix>:q:2"}')
    assert added.args == {"name": "<prefix>"}
    assert (passed.do, passed.args) == ("clock", {"ms": 50})
    assert deleted.args == {"words": ["DEL", "<prefix>:q:wait"]}
    assert (paused.by, paused.do) == ("oracle", "queue.pause")


def test_steps_on_one_queue_are_in_the_order_of_their_ends() -> None:
    oracle, client = Transcript(), Transcript()
    client.record(RecordedCall("queue.add", "ok", {"id": "1"}))
    oracle.record(RecordedCall("queue.pause", "ok", {}))
    client.record(RecordedCall("queue.resume", "missing-job", None, message="no job bc1:q:9"))
    steps = steps_in_order({"oracle": oracle, "client": client}, "bc1")
    assert [(step.by, step.do) for step in steps] == [
        ("client", "queue.add"),
        ("oracle", "queue.pause"),
        ("client", "queue.resume"),
    ]
    assert steps[2].client == "fails with missing-job: no job <prefix>:q:9"


def test_the_last_of_very_many_steps_are_kept() -> None:
    transcript = Transcript()
    for number in range(MOST_STEPS + 20):
        transcript.record(RecordedCall("queue.add", "ok", {"id": str(number)}))
    steps = steps_in_order({"client": transcript}, "bc1")
    assert (len(steps), steps[-1].client) == (MOST_STEPS, f'{{"id": "{MOST_STEPS + 19}"}}')


def test_polling_is_not_a_step() -> None:
    transcript = Transcript()
    with transcript.silent():
        transcript.record_act("wait", "it holds")
        transcript.record(RecordedCall("queue.count", "ok", {}))
    assert transcript.steps == []


def test_a_trial_without_findings_keeps_no_steps(mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    assert tried(COUNTS, bench_of(mini(), mini())).steps == []


@pytest.mark.parametrize("scenario", [COUNTS, SHARES])
def test_a_trial_with_findings_keeps_its_steps(scenario: Any, mini: MiniatureDrivers, bench_of: BenchOf) -> None:
    evidence = tried(scenario, bench_of(mini(), mini(count=2)))
    assert evidence.findings
    assert "queue.count" in [step.do for step in evidence.steps]
    assert all("redis" not in step.args for step in evidence.steps), "each side has its own address"


# Redis.


@pytest.mark.parametrize(
    ("found", "places"),
    [
        (finding("job.opts.delay", "q:1"), [("q:1", "opts")]),
        (finding("job", "q:1"), [("q:1", "")]),
        (finding("membership.wait.order", "q:wait"), [("q:wait", "")]),
        (finding("event.waiting", "q:1"), [("q:events", "")]),
        (finding("event.waiting", "q:repeat:s:1"), [("q:events", "")]),
        (finding("lock.token", "q:1"), [("q:1:lock", "")]),
        (finding("log", "q:1"), [("q:1:logs", "")]),
        (finding("dependency.processed", "q:1"), [("q:1:processed", "")]),
        (finding("meta.version", "q:meta"), [("q:meta", "version")]),
        (finding("scheduler.record", "q:repeat:s"), [("q:repeat:s", "")]),
        (finding("counter.id", "q:id"), [("q:id", "")]),
        (finding("invariant.base-marker", "q:marker", place="marker.base"), [("q:marker", "")]),
        (finding("answer.queue.count", ""), []),
        (finding("traffic.key-count.pause.keys", "q:wait", place="call.pause.keys"), []),
    ],
)
def test_a_locator_says_where_to_look(found: Finding, places: list[tuple[str, str]]) -> None:
    assert places_of(found) == places


def test_the_state_of_a_job_is_looked_for_in_every_container() -> None:
    names = [name for name, _ in places_of(finding("membership.state", "q:1"))]
    assert {"q:wait", "q:active", "q:delayed", "q:failed"} <= set(names)


def test_both_sides_of_redis_are_read(server: RedisInstance) -> None:
    with server.connect() as redis:
        expected, actual = server.fresh_prefix(), server.fresh_prefix()
        redis.hset(f"{expected}:q:meta", "version", f"bullmq:{expected}")
        redis.hset(f"{actual}:q:meta", "other", "1")
        look = RedisLook(redis, Names(expected), Names(actual))
        found, again = look.with_readings(
            [finding("meta.version", "q:meta", message=f"{actual}:q"), finding("meta.version", "q:meta")]
        )
        [reading] = found.redis
        assert reading.command == ["HGET", "<prefix>:q:meta", "version"]
        assert (reading.expected, reading.actual) == ("bullmq:<prefix>", "(nil)")
        assert found.message == "<prefix>:q"
        assert again.redis == []


def test_nodes_state_of_a_later_moment_is_not_the_expected_one(server: RedisInstance) -> None:
    with server.connect() as redis:
        oracle, client = Names(server.fresh_prefix()), Names(server.fresh_prefix())
        redis.lpush(f"{oracle.prefix}:q:wait", "1", "2")
        [found] = RedisLook(redis, oracle, client, in_step=False).with_readings(
            [finding("scenario", "", source="assertion")]
        )
    assert [(reading.expected, reading.at_end, reading.actual) for reading in found.redis] == [("", '["2", "1"]', "[]")]


def test_a_step_that_the_oracle_did_for_the_client_is_marked() -> None:
    oracle, client = Transcript(), Transcript()
    for transcript, by in ((oracle, "self"), (client, "stand-in")):
        transcript.record(RecordedCall("queue.pause", "ok", {}, {}, "queue-1", by=by))  # type: ignore[arg-type]
        transcript.record(RecordedCall("queue.count", "ok", {}, {}, "queue-1"))
    assert [step.stand_in for step in steps_side_by_side(oracle, client, "bc1", "bc2")] == [True, False]


def test_a_key_that_neither_side_has_is_not_shown(server: RedisInstance) -> None:
    with server.connect() as redis:
        look = RedisLook(redis, Names(server.fresh_prefix()), Names(server.fresh_prefix()))
        assert look.with_readings([finding("lock", "q:1")])[0].redis == []


def test_that_a_key_is_not_there_is_shown_where_that_breaks_an_invariant(server: RedisInstance) -> None:
    found = finding("invariant.base-marker", "q:marker", place="marker.base", source="invariant")
    with server.connect() as redis:
        side = Names(server.fresh_prefix())
        redis.lpush(f"{side.prefix}:q:wait", "1")
        [shown] = RedisLook(redis, None, side).with_readings([found])
        assert [(" ".join(reading.command), reading.actual) for reading in shown.redis] == [
            ("LRANGE <prefix>:q:wait 0 -1", '["1"]'),
            ("EXISTS <prefix>:q:marker", "0"),
        ]
        redis.zadd(f"{side.prefix}:q:marker", {"0": 0})
        [shown] = RedisLook(redis, None, side).with_readings([found])
        assert [reading.command[0] for reading in shown.redis] == ["ZRANGE"]


@pytest.mark.parametrize(
    ("found", "commands"),
    [
        (finding("scenario", "", source="assertion"), ["HGETALL <prefix>:q:meta", "LRANGE <prefix>:q:wait 0 -1"]),
        (finding("job.nrjid", "q:gone", source="snapshot"), ["HGETALL <prefix>:q:meta", "LRANGE <prefix>:q:wait 0 -1"]),
        (finding("scenario", "other:1", source="assertion"), []),
        (finding("answer.queue.count", "", source="answer"), []),
    ],
    ids=["of a whole scenario", "of a job that is gone", "of a queue that is not there", "of an answer"],
)
def test_a_finding_without_a_place_is_searched_in_the_whole_queue(
    found: Finding, commands: list[str], server: RedisInstance
) -> None:
    with server.connect() as redis:
        side = Names(server.fresh_prefix())
        redis.hset(f"{side.prefix}:q:meta", "other", "1")
        redis.lpush(f"{side.prefix}:q:wait", "1")
        [shown] = RedisLook(redis, None, side).with_readings([found])
    assert [" ".join(reading.command) for reading in shown.redis] == commands


def test_a_client_with_a_prefix_of_its_own_is_read_under_it(server: RedisInstance) -> None:
    with server.connect() as redis:
        expected, actual = Names(server.fresh_prefix()), Names(server.fresh_prefix(), fixed_prefix="fixed")
        redis.hset(f"{expected.prefix}:q:1", "parentKey", f"{expected.prefix}:above:2")
        try:
            redis.hset(f"fixed:q-{actual.prefix}:1", "parentKey", f"fixed:above-{actual.prefix}:3")
            [found] = RedisLook(redis, expected, actual).with_readings([finding("job.parentKey", "q:1")])
        finally:
            redis.delete(f"fixed:q-{actual.prefix}:1")
        [reading] = found.redis
        assert reading.command == ["HGET", "<prefix>:q:1", "parentKey"]
        assert (reading.expected, reading.actual) == ("<prefix>:above:2", "<prefix>:above:3")


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (None, "(nil)"),
        (b"a\xff", "a\\xff"),
        ([b"1", [b"2"]], '["1", ["2"]]'),
        ({b"a": b"1"}, '{"a": "1"}'),
        (7, "7"),
        (["é".encode()], '["é"]'),
    ],
)
def test_replies_are_written_for_people(reply: Any, text: str) -> None:
    assert reply_text(reply) == text


def test_the_state_of_node_after_the_client_stopped_is_not_shown_as_expected(
    mini: MiniatureDrivers, bench_of: BenchOf
) -> None:
    evidence = tried(COUNTS, bench_of(mini(), mini(count=2)))
    assert not evidence.reached_end
    assert all(not reading.expected for finding in evidence.findings for reading in finding.redis)


# The message of a broken driver, and the command that repeats a scenario.


def test_all_output_of_a_crashed_driver_is_in_a_file(
    mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf, tmp_path: Path
) -> None:
    many = "[print('line', number, file=sys.stderr) for number in range(500)]"
    crashing = child(f"op == 'queue.pause' and ({many}, die(3))")
    crashing.log_file = tmp_path / "logs" / "client-main.log"
    evidence = tried(PAUSES, bench_of(mini(), crashing))
    assert evidence.findings[0].kind == "driver-broken"
    assert evidence.log[-1] == "all of it: logs/client-main.log"
    assert len(crashing.log_file.read_text().splitlines()) >= 500


def test_a_driver_that_says_nothing_leaves_no_file(
    mini: MiniatureDrivers, child: ChildDriver, bench_of: BenchOf, tmp_path: Path
) -> None:
    silent = child("")
    silent.log_file = tmp_path / "logs" / "client-main.log"
    tried(PAUSES, bench_of(mini(), silent))
    assert not silent.log_file.exists()


def test_the_line_that_repeats_a_scenario_keeps_its_parameters_and_names_no_folder_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig(
        command=["go-driver", str(tmp_path / "driver.py")],
        redis=f"binary:{tmp_path}/redis-server",
        known=str(tmp_path / "known.toml"),
        out=str(tmp_path / "out"),
    )
    line = reproduce_line("add/an_id_is_refused[a b]", config)
    assert "--select 'add/an_id_is_refused[a b]'" in line
    assert "--redis binary:redis-server" in line
    assert line.endswith(" driver.py")
    assert str(tmp_path) not in line
    assert not any(word.startswith("/") for word in line.split())
