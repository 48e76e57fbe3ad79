"""`watch` as a command: output, metrics, exit codes, and its manners in a store of others."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from conformance.cli import main as cli_main
from conformance.options import DurationMs
from conformance.problems import EnvironmentProblem, Undecidable, UsageProblem
from conformance.servers import open_server
from reports.verbs.watch import watch_store
from reports.watch.metrics import WatchMetrics, metrics_place
from reports.watch.options import WatchConfig
from reports.watch.screen import PlainLines, json_line, table_of
from reports.watch.session import WatchMoment
from reports.watch.target import watch_target
from tests.hostile_texts import HOSTILE, harm_in_terminal

from .conftest import INTERVAL_S, Stage

pytestmark = pytest.mark.long(14, processes=1)

QUICK: dict[str, Any] = {"interval_ms": 100, "deaf_ms": 1000, "length_ms": 2500}


def test_a_gate_ends_at_the_first_finding_of_its_kind(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.freeze(stage.start_worker("mail"))
    stage.add("mail", 3)
    started = time.monotonic()
    config = WatchConfig(**{**QUICK, "length_ms": 60_000}, fail_on=["deaf"])
    assert watch_store(config, stage.target) == 1
    assert time.monotonic() - started < 50
    out, err = capfd.readouterr()
    assert re.search(r"deaf mail: 3 jobs waited for .* and 1 worker took none\n    127\.0\.0\.1:\d+ \(idle for ", out)
    assert "\n    repair: restart these workers\n" in out
    assert "found: deaf (1)" in err


def test_without_a_finding_that_counts_the_gate_passes(stage: Stage) -> None:
    stage.add("mail", 3)
    assert watch_store(WatchConfig(**QUICK, fail_on=["deaf"]), stage.target) == 0
    assert watch_store(WatchConfig(**QUICK), stage.target) == 1


def test_too_little_to_decide(stage: Stage) -> None:
    for config in (WatchConfig(**QUICK), WatchConfig(**QUICK, queue="absent")):
        with pytest.raises(Undecidable, match="there was no queue"):
            watch_store(config, stage.target)


def test_a_redis_that_goes_away_is_reported_and_asked_again(capfd: pytest.CaptureFixture[str]) -> None:
    with open_server(None, announce=lambda _: None) as server, server.connect() as client:
        untyped: Any = client
        shutdown = threading.Timer(1, lambda: untyped.shutdown(nosave=True))
        shutdown.start()
        with pytest.raises(Undecidable, match=r"Redis answered \d+ of \d+ looks"):
            watch_store(WatchConfig(**{**QUICK, "length_ms": 4000}), f"{server.url}#none")
        shutdown.join()
    assert "no look: " in capfd.readouterr().out


def test_json_lines(stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    stage.add("mail", 3)
    watch_store(WatchConfig(**QUICK, json=True), stage.target)
    moments = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert moments[0]["queues"]["mail"]["jobs"]["wait"] == 3
    assert [finding["kind"] for finding in moments[-1]["findings"]] == ["no-worker"]


def samples(metrics: WatchMetrics) -> dict[tuple[str, ...], float]:
    """Every number of the exposition, by the metric's name and its labels in their order."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_metrics_in_a_file_and_over_http(stage: Stage, tmp_path: Path) -> None:
    stage.add("mail", 3)
    session, path = stage.watch(), tmp_path / "bullmq.prom"
    moment = session.look()
    with metrics_place(str(path)) as metrics:
        metrics.publish(session, moment)
    text = path.read_text("utf-8")
    assert 'bullmq_watch_jobs{queue="mail",state="wait"} 3.0' in text.splitlines()
    assert 'bullmq_watch_finding{kind="deaf",queue="mail"} 0.0' in text.splitlines()
    assert 'bullmq_watch_claims_total{queue="mail"} 0.0' in text.splitlines()
    assert [each.name for each in tmp_path.iterdir()] == ["bullmq.prom"]
    port = free_port()
    with metrics_place(port) as metrics:
        metrics.publish(session, moment)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            assert reply.read().decode() == text
        metrics.publish(session, WatchMoment(error="gone"))
        assert samples(metrics) == {("bullmq_watch_up",): 0}
        with pytest.raises(EnvironmentProblem, match="cannot serve metrics"), metrics_place(port):
            pass
    with pytest.raises(UsageProblem, match="invalid port"), metrics_place("70000"):
        pass
    with pytest.raises(EnvironmentProblem, match="cannot write"), metrics_place(str(tmp_path / "no" / "f")) as metrics:
        metrics.publish(session, moment)


def free_port() -> str:
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", [name for name in HOSTILE if name not in {"long", "nul"}])
def test_names_of_queues_and_workers_harm_no_output(name: str, stage: Stage, capfd: pytest.CaptureFixture[str]) -> None:
    queue = HOSTILE[name].replace(":", ";")
    key = stage.keys(queue).key("meta").encode("utf-8", "surrogateescape")
    stage.client.hset(key, mapping={"version": "bullmq:5.62.0"})
    stage.client.lpush(stage.keys(queue).key("wait").encode("utf-8", "surrogateescape"), "1")
    session = stage.watch()
    for _ in range(15):
        moment = session.look()
        time.sleep(INTERVAL_S)
    console = Console(width=200)
    console.print(table_of(moment))
    PlainLines(console).show(moment)
    print(json_line(moment))
    out = capfd.readouterr().out
    assert harm_in_terminal(out) == []
    header = next(line for line in out.splitlines() if "taken/s" in line)
    assert header.split() == [
        "queue",
        "workers",
        "waiting",
        "active",
        "delayed",
        "added/s",
        "taken/s",
        "stalls/min",
        "findings",
    ]
    with metrics_place("") as metrics:
        metrics.publish(session, moment)
        assert samples(metrics)["bullmq_watch_jobs", queue.encode("utf-8", "backslashreplace").decode(), "wait"] == 1


OWN_USER = (
    "reset on >watch ~watched:* resetchannels -@all +info +time +client|list +scan +xrange +xrevrange +llen +zcard "
    "+hmget +hlen +pttl +get +lindex +zrange +zcount +lrange +exists +zscore"
)
"""The permissions in docs/how-to/watch-queues.md."""


def test_the_page_has_these_permissions() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/watch-queues.md").read_text("utf-8")
    (rules,) = re.findall(r"ACL SETUSER watch (on [^`]*)", page)
    assert [rule for rule in rules.split() if rule[0] in "+-"] == [rule for rule in OWN_USER.split() if rule[0] in "+-"]


def dump_of(client: Any) -> dict[bytes, Any]:
    return {key: client.dump(key) for key in client.scan_iter(count=1000)}


def test_a_user_with_few_read_permissions_is_enough_and_nothing_changes() -> None:
    with open_server(None, announce=lambda _: None) as server, server.connect() as client:
        untyped: Any = client
        untyped.execute_command("ACL", "SETUSER", "watcher", *OWN_USER.split())
        for name, member in {"wait": "1", "active": "2"}.items():
            untyped.lpush(f"watched:mail:{name}", member)
        untyped.hset("watched:mail:meta", mapping={"version": "bullmq:5.62.0"})
        untyped.zadd("watched:mail:repeat", {"s": 5})
        untyped.hset("watched:mail:repeat:s", mapping={"name": "n", "pattern": "* * * * *"})
        untyped.xadd("watched:mail:events", {"event": "active"})
        before = dump_of(untyped)
        target = server.url.replace("redis://", "redis://watcher:watch@") + "#watched"
        assert watch_store(WatchConfig(**QUICK, settle_ms=DurationMs(500)), target) == 1
        assert dump_of(untyped) == before
        untyped.execute_command("ACL", "SETUSER", "watcher", "-xrevrange")
        with pytest.raises(EnvironmentProblem, match=r"Redis cannot be read: .*xrevrange"):
            watch_store(WatchConfig(**QUICK), target)


def test_keys_of_other_types_are_not_an_error(stage: Stage) -> None:
    for name in ("wait", "delayed", "events", "marker", "repeat", "limiter", "active", "prioritized"):
        stage.client.hset(stage.keys("mail").key(name), "a", "b")
    stage.client.set(stage.keys("mail").key("meta"), "text")
    assert stage.watch().look().error == ""


def test_a_cluster() -> None:
    with open_server("cluster:3", announce=lambda _: None) as server, server.connect() as client:
        untyped: Any = client
        for queue in ("one", "two"):
            untyped.hset(f"{{w}}:{queue}:meta", mapping={"version": "bullmq:5.62.0"})
            untyped.lpush(f"{{w}}:{queue}:wait", "1")
        assert watch_store(WatchConfig(**QUICK), f"{server.url}#{{w}}") == 1
        single = f"redis://{server.nodes[0]}"
        with pytest.raises(UsageProblem, match=r"the mode of Redis at .* is cluster"):
            watch_store(WatchConfig(**QUICK), single)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bundled", "invalid address of a Redis"),
        ("redis+sentinel://127.0.0.1:1", "names no master"),
        ("http://127.0.0.1", "invalid scheme"),
    ],
)
def test_invalid_addresses(text: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        watch_target(text)


def test_options_that_contradict_each_other(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (["--interval", "50ms"], ["--deaf-after", "6s"]):
        monkeypatch.setattr(sys, "argv", ["bullmq-conformance", "watch", "redis://127.0.0.1:1", *words])
        assert cli_main.run() == 2
        assert words[0] in capfd.readouterr().err
    monkeypatch.setattr(sys, "argv", ["bullmq-conformance", "watch", "redis://127.0.0.1:1"])
    assert cli_main.run() == 3
    assert "cannot be reached" in capfd.readouterr().err


@pytest.mark.slow
def test_sentinels_lead_to_the_master(tmp_path: Path) -> None:
    with open_server(None, announce=lambda _: None) as server, server.connect() as client:
        untyped: Any = client
        untyped.lpush("bull:mail:wait", "1")
        untyped.hset("bull:mail:meta", mapping={"version": "bullmq:5.62.0"})
        port = free_port()
        host, redis_port = server.nodes[0].split(":")
        settings = tmp_path / "sentinel.conf"
        settings.write_text(f"port {port}\nbind 127.0.0.1\nsentinel monitor main {host} {redis_port} 1\n", "utf-8")
        assert server.program is not None
        sentinel = subprocess.Popen([server.program.path, str(settings), "--sentinel"], stdout=subprocess.DEVNULL)
        try:
            target = f"redis+sentinel://127.0.0.1:{port}/main"
            end = time.monotonic() + 60
            while not answers(target):
                assert time.monotonic() < end, "the sentinel never answers"
                time.sleep(0.05)
            assert watch_store(WatchConfig(**QUICK), target) == 1
            with pytest.raises(EnvironmentProblem, match="no sentinel leads to the master 'other'"):
                watch_target(f"redis+sentinel://127.0.0.1:{port}/other").address()
            with pytest.raises(UsageProblem, match="is a Redis Sentinel"):
                watch_target(f"redis://127.0.0.1:{port}").prove()
        finally:
            sentinel.kill()
            sentinel.wait()


def answers(target: str) -> bool:
    try:
        watch_target(target).prove()
    except EnvironmentProblem:
        return False
    return True
