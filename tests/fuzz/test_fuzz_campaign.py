"""Whole runs with small budgets: a sick client is found out, a healthy one is not, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.environment.clients import Launch
from conformance.fuzz.campaign import Campaign, Finding
from conformance.fuzz.findings import Known
from conformance.fuzz.folder import RunFolder, as_replay
from conformance.fuzz.modes import Mode
from conformance.fuzz.replay_file import read_replay
from conformance.fuzz.replaying import play_back
from conformance.fuzz.steps import calls_of
from conformance.mutants.damage import Damage
from conformance.servers import Server

from .hunting import Silence, hunt, stage_for
from .planted import PLANTED
from .sick_driver import HEALTHY

SEQUENCES = 6


def _prefixed_keys(server: Server) -> list[bytes]:
    with server.connect() as redis:
        return list(redis.scan_iter(match="bc*"))


@pytest.mark.parametrize("mode", ["differential", "interop", "model"])
def test_nothing_is_found_where_nothing_is_wrong(mode: Mode, server: Server, oracle: Launch) -> None:
    with stage_for(HEALTHY, server, oracle, mode) as stage:
        campaign = Campaign(stage, 300.0, 11, Silence(), sequences_per_round=SEQUENCES, most_rounds=1)
        findings = campaign.run()
    assert [str(finding.differences[0]) for finding in findings] == []
    assert campaign.steps > 100
    assert len(campaign.coverage.pairs) > 20
    assert _prefixed_keys(server) == []


@pytest.mark.parametrize("mode", ["differential", "interop"])
def test_a_defect_is_found_shrunk_and_written_down(mode: Mode, server: Server, oracle: Launch, tmp_path: Path) -> None:
    with stage_for(PLANTED["fifo-broken-at-third"], server, oracle, mode) as stage:
        finding, _ = hunt(stage, seed=3, budget_s=300.0)
        assert finding is not None
        path = RunFolder(tmp_path).save(finding, stage)
        replay = read_replay(path)
        assert replay == as_replay(finding, stage)
        assert play_back(stage, replay).shows(replay)
    assert finding.reproduced
    assert finding.group.where == "membership.wait.order"
    assert calls_of(list(finding.steps)) <= 3
    assert _prefixed_keys(server) == []


def test_a_known_class_is_not_found_again(server: Server, oracle: Launch) -> None:
    with stage_for(PLANTED["event-without-prev"], server, oracle) as stage:
        finding, _ = hunt(stage, seed=1, budget_s=300.0)
        assert finding is not None
        known = {finding.group, *finding.together}
        campaign = Campaign(
            stage,
            300.0,
            1,
            Silence(),
            known=Known(set(known)),
            sequences_per_round=SEQUENCES,
            most_rounds=1,
            most_findings=1,
        )
        assert not known & {one.group for one in campaign.run()}


def test_a_client_that_dies_is_a_finding(server: Server, oracle: Launch) -> None:
    def dies(damage: Damage) -> None:
        """Promoting a job takes longer than anybody waits."""
        damage.commands("addStandardJob", 'if command[1] == "LPUSH" then error("it is broken") end')

    with stage_for(HEALTHY.__class__("dies", "", (), (), (), (), dies), server, oracle) as stage:
        finding, _ = hunt(stage, seed=1, budget_s=300.0)
    assert finding is not None
    assert finding.group.kind.startswith("outcome ok, not")
    assert finding.calls == 1


def test_a_run_remembers_how_far_it_came(tmp_path: Path, server: Server, oracle: Launch) -> None:
    folder = RunFolder(tmp_path / "out")
    assert folder.rounds_done(4) == 0
    with stage_for(HEALTHY, server, oracle) as stage:
        campaign = Campaign(stage, 300.0, 4, Silence(), folder.examples, sequences_per_round=2, most_rounds=2)
        campaign.run()
        folder.note(campaign, campaign.operations)
    assert folder.rounds_done(4) == 2
    assert folder.rounds_done(5) == 0
    assert folder.replays() == {}
    assert (folder.path / "coverage.json").is_file()


class _Told(Silence):
    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)


def test_the_watcher_is_told(server: Server, oracle: Launch) -> None:
    told = _Told()
    with stage_for(PLANTED["fifo-broken-at-third"], server, oracle) as stage:
        campaign = Campaign(stage, 300.0, 3, told, most_findings=1)
        campaign.run()
    assert told.findings == campaign.findings
