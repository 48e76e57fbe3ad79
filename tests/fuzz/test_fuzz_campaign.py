"""Campaigns with small budgets, and the verbs as a user calls them: a sick client is found out, no healthy one is."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from conformance.cli.fuzz import fuzz, replay
from conformance.environment.clients import Launch
from conformance.fuzz import campaign
from conformance.fuzz.campaign import Campaign, CampaignListener, CampaignOptions, FuzzFinding
from conformance.fuzz.comparison import KnownDifferences
from conformance.fuzz.replay import read_replay, run_replay
from conformance.fuzz.session import FuzzFolder, as_replay
from conformance.fuzz.shrinking import LONGEST_FACTOR, PROCESSOR_SHARE, TimeAllowance
from conformance.fuzz.strategies.exploring import CallCombination, legal_pairs
from conformance.fuzz.target import Mode
from conformance.mutants.damage import Damage
from conformance.problems import EnvironmentProblem, Problem, UsageProblem
from conformance.servers import RedisInstance
from conformance.steps.shapes import calls_of

from .hunting import REPLAYS, hunt, target_for
from .planted import HEALTHY, PLANTED

pytestmark = [pytest.mark.long(5), pytest.mark.slow]


class HandmadeClocks:
    """The wall clock and the processor time of this process, set by hand (s)."""

    wall = busy = 100.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "monotonic", lambda: self.wall)
        monkeypatch.setattr(time, "process_time", lambda: self.busy)

    def go_on(self, seconds: float, *, share: float) -> None:
        self.wall += seconds
        self.busy += seconds * share


def _allowance(clocks: HandmadeClocks, seconds: float) -> TimeAllowance:
    return TimeAllowance(seconds, clocks.wall, clocks.busy)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> HandmadeClocks:
    return HandmadeClocks(monkeypatch)


def test_on_an_idle_machine_it_ends_when_the_time_is_up(clocks: HandmadeClocks) -> None:
    allowance = _allowance(clocks, 10.0)
    clocks.go_on(9.9, share=0.6)
    assert not allowance.over
    clocks.go_on(0.2, share=0.6)
    assert allowance.over


def test_on_a_busy_machine_it_lasts_until_the_work_is_done(clocks: HandmadeClocks) -> None:
    allowance = _allowance(clocks, 10.0)
    clocks.go_on(30.0, share=0.08)
    assert not allowance.over
    clocks.go_on(20.0, share=PROCESSOR_SHARE)
    assert allowance.over


def test_it_does_not_last_for_ever(clocks: HandmadeClocks) -> None:
    allowance = _allowance(clocks, 10.0)
    clocks.go_on(10.0 * LONGEST_FACTOR, share=0.0)
    assert not allowance.over
    clocks.go_on(0.1, share=0.0)
    assert allowance.over


SEQUENCES = 6


def _prefixed_keys(server: RedisInstance) -> list[bytes]:
    with server.connect() as redis:
        return list(redis.scan_iter(match="bc*"))


@pytest.mark.parametrize("mode", ["differential", "interop", "model"])
def test_nothing_is_found_where_nothing_is_wrong(mode: Mode, server: RedisInstance, oracle: Launch) -> None:
    with target_for(HEALTHY, server, oracle, mode) as target:
        campaign = Campaign(target, CampaignOptions(300.0, 11, sequences_per_round=SEQUENCES, most_rounds=1))
        findings = campaign.run()
    assert [str(finding.differences[0]) for finding in findings] == []
    assert campaign.progress.steps > 100
    assert len(campaign.progress.coverage.pairs) > 20
    assert _prefixed_keys(server) == []


@pytest.mark.parametrize("mode", ["differential", "interop"])
def test_a_defect_is_found_shrunk_and_written_down(
    mode: Mode, server: RedisInstance, oracle: Launch, tmp_path: Path
) -> None:
    with target_for(PLANTED["fifo-broken-at-third"], server, oracle, mode) as target:
        finding, _ = hunt(target, seed=3, budget_s=300.0)
        assert finding is not None
        path = FuzzFolder(tmp_path).save(finding, target)
        replay = read_replay(path)
        assert replay == as_replay(finding, target)
        assert run_replay(target, replay).shows(replay)
    assert finding.reproduced
    assert finding.group.where == "membership.wait.order"
    assert calls_of(finding.steps) <= 3
    assert _prefixed_keys(server) == []


def test_a_known_class_is_not_found_again(server: RedisInstance, oracle: Launch) -> None:
    with target_for(PLANTED["event-without-prev"], server, oracle) as target:
        finding, _ = hunt(target, seed=1, budget_s=300.0)
        assert finding is not None
        known = {finding.group, *finding.together}
        options = CampaignOptions(300.0, 1, sequences_per_round=SEQUENCES, most_rounds=1, most_findings=1)
        campaign = Campaign(target, options, known=KnownDifferences(set(known)))
        assert not known & {finding.group for finding in campaign.run()}


def test_a_client_that_dies_is_a_finding(server: RedisInstance, oracle: Launch) -> None:
    def dies(damage: Damage) -> None:
        """Promoting a job takes longer than any deadline."""
        damage.commands("addStandardJob", 'if command[1] == "LPUSH" then error("it is broken") end')

    with target_for(HEALTHY.__class__("dies", "", (), dies), server, oracle) as target:
        finding, _ = hunt(target, seed=1, budget_s=300.0)
    assert finding is not None
    assert finding.group.kind.startswith("outcome ok, not")
    assert finding.calls == 1


def test_a_run_remembers_how_far_it_came(tmp_path: Path, server: RedisInstance, oracle: Launch) -> None:
    folder = FuzzFolder(tmp_path / "out")
    assert folder.rounds_done(4) == 0
    with target_for(HEALTHY, server, oracle) as target:
        options = CampaignOptions(300.0, 4, database=folder.examples, sequences_per_round=2, most_rounds=2)
        campaign = Campaign(target, options)
        campaign.run()
        folder.note(campaign)
    assert folder.rounds_done(4) == 2
    assert folder.rounds_done(5) == 0
    assert folder.replays() == {}
    assert (folder.path / "coverage.json").is_file()


class _RecordingListener(CampaignListener):
    def __init__(self) -> None:
        self.findings: list[FuzzFinding] = []

    def found(self, finding: FuzzFinding) -> None:
        self.findings.append(finding)


def test_the_listener_is_notified(server: RedisInstance, oracle: Launch) -> None:
    listener = _RecordingListener()
    with target_for(PLANTED["fifo-broken-at-third"], server, oracle) as target:
        campaign = Campaign(target, CampaignOptions(300.0, 3, most_findings=1), listener)
        campaign.run()
    assert listener.findings == campaign.findings


FIFO = REPLAYS / "fifo-broken-at-third.jsonl"
SICK = [sys.executable, "-m", "tests.fuzz.planted", "fifo-broken-at-third"]
ROOT = Path(__file__).parents[2]


def _call(*words: str | Path) -> tuple[int, str]:
    """In a process of its own, as the driver of a client would be started from a shell."""
    command = [sys.executable, "-m", "conformance", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--budget", "soon"], "invalid duration"),
        (["--client", "no-such-client", "--budget", "1s"], "unknown client 'no-such-client'"),
        (["--client", "node", "--budget", "1s", "--", "./driver"], "give only one of them"),
        (["--redis", "cluster:3", "--budget", "1s", "--client", "node"], "fuzz needs a single Redis"),
    ],
)
def test_mistakes_are_problems_with_a_hint(words: list[str], says: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(fuzz, ["--out", str(tmp_path / "out"), *words], standalone_mode=False)
    assert isinstance(result.exception, Problem)
    assert says in str(result.exception)
    assert result.exception.exit_code == 2


def test_a_file_that_is_none_is_a_usage_problem(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("{}\n", "utf-8")
    result = CliRunner().invoke(replay, [str(path)], standalone_mode=False)
    assert isinstance(result.exception, UsageProblem)
    assert str(path) in str(result.exception)


def test_a_client_without_the_operation_cannot_run_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rare.jsonl"
    lines = FIFO.read_text("utf-8").splitlines()
    step = {"call": "job.waitUntilFinished", "on": "queue-1", "args": {"job": "1", "events": "none"}}
    path.write_text("\n".join([lines[0], json.dumps(step)]) + "\n", "utf-8")
    driver = [sys.executable, "-m", "tests.fuzz.planted", "healthy", "job.waitUntilFinished"]
    result = CliRunner().invoke(replay, [str(path), "--", *driver], standalone_mode=False)
    assert isinstance(result.exception, EnvironmentProblem)
    assert "says nothing about this client" in str(result.exception)


def test_a_file_still_fails_on_the_sick_client_and_is_fixed_on_the_healthy_one() -> None:
    code, text = _call("replay", FIFO, "--", *SICK)
    assert code == 1, text
    assert "wrong-order membership.wait.order" in text
    assert "it still differs as recorded in the file" in text
    code, text = _call("replay", FIFO, "--client", "reference")
    assert code == 0, text
    assert "no difference" in text


def test_a_run_ends_with_findings_and_goes_on_from_there(tmp_path: Path) -> None:
    def hunted(budget: str) -> tuple[int, str]:
        return _call("fuzz", "--budget", budget, "--seed", "3", "--out", tmp_path, "--", *SICK)

    code, text = hunted("8s")
    assert code == 1, text
    assert "membership.wait.order" in text
    files = sorted((tmp_path / "findings").iterdir())
    assert files
    code, text = hunted("4s")  # known failures are replayed before new sequences
    assert code == 1, text
    assert f"still shows  {files[0]}" in text.replace("\n", "")
    record = json.loads((tmp_path / "coverage.json").read_text("utf-8"))
    assert record["steps"] > 0
    assert record["tried"]


def test_a_run_that_tried_too_little_is_undecided(tmp_path: Path) -> None:
    code, text = _call("fuzz", "--client", "node", "--budget", "1s", "--out", tmp_path)
    assert code == 4, text
    assert "never tried:" in text
    assert "UNDECIDED: " in text
    assert "give it more time (--budget)" in text


def test_a_run_without_findings_ends_with_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One step is enough here: what is really needed takes minutes on a busy machine.
    monkeypatch.setattr(campaign, "LEAST_STEPS", 1)
    monkeypatch.setattr(campaign, "LEAST_PAIRS", 0.0)
    words = ["--client", "node", "--budget", "15s", "--out", str(tmp_path)]
    ended = CliRunner().invoke(fuzz, words, standalone_mode=False)
    assert ended.return_value == 0, ended.output


def _progress(steps: int, share: float) -> campaign.CampaignProgress:
    """A campaign of that many steps that compared this share of all pairs."""
    operations = frozenset({"queue.add", "queue.pause", "job.remove", "job.promote"})
    pairs = legal_pairs(operations)
    progress = campaign.CampaignProgress(steps=steps, operations=operations)
    progress.coverage.count_compared([CallCombination(*pair, "none") for pair in pairs[: round(share * len(pairs))]])
    return progress


@pytest.mark.parametrize(
    ("steps", "share", "shortage"),
    [(1, 1.0, "1 steps are too few"), (1000, 0.4, "half of them are needed"), (1000, 0.6, ""), (50_000, 1.0, "")],
)
def test_a_campaign_needs_steps_and_different_ones(steps: int, share: float, shortage: str) -> None:
    assert shortage in _progress(steps, share).shortage
    assert bool(shortage) is bool(_progress(steps, share).shortage)
