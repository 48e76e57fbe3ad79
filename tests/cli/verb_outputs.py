"""Outputs of each verb that contain texts chosen by others: they are tried with hostile texts."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import redirect_stderr
from types import SimpleNamespace
from typing import Any

import msgspec
from rich.console import Console

from conformance.bugs.corpus import Bug
from conformance.bugs.proof import BugProof
from conformance.cli import bugs, driver, fuzz, mutants, requirements
from conformance.driver.authoring import CheckStep
from conformance.driver.ops.queue import Add
from conformance.environment.prepare import announce
from conformance.fuzz.campaign import FuzzFinding
from conformance.fuzz.comparison import StepDifference
from conformance.fuzz.replay import Replay, ReplayedStep, ReplayHeader, ReplayOutcome
from conformance.fuzz.session import _conclude
from conformance.gate.reach import Prospect, Reach
from conformance.ledger.loader import Requirement
from conformance.matrix.cell_store import StoredCell
from conformance.matrix.cells import Cell, Entrant
from conformance.mutants.generated.hunt import HuntedMutant
from conformance.mutants.generated.judgements import Judgement
from conformance.mutants.generated.outcome import JudgedMutant
from conformance.pages.page import markdown_text
from conformance.problems import EnvironmentProblem, printable
from conformance.report.adoption import render_adoption
from conformance.report.matrix import Matrix, MatrixCell, render_page
from conformance.report.mixed import render_mixed_page, render_mixed_text
from conformance.report.versions import render_version_page, render_version_text
from conformance.steps.shapes import CallStep
from conformance.versions.adoption import Adoption
from conformance.versions.changes import VersionDiff
from conformance.versions.mixed.record import MixedRecord, Row
from reports.comparison import LoadComparison
from reports.load.histograms import SHOWN
from reports.load.result import LoadResult
from reports.rendering import load_page, print_comparison
from tests.filled import filled
from tests.hostile_texts import harm_in_html, harm_in_terminal
from tests.reports.test_reports_pages import load_result

Probe = Callable[[str], list[str]]
"""The harm that a text does to a reader of an output."""
Show = Callable[[str, Console], object]
VERSIONS = {"older": "5.62.0", "newer": "6.7.0"}
"""The kit has checked them before it prints them."""


def on_console(show: Show) -> Probe:
    """The output on a terminal: also a text that rich takes for markup does harm."""

    def probe(text: str) -> list[str]:
        printed = io.StringIO()
        show(text, Console(file=printed, width=1_000_000, soft_wrap=True))
        return harm_of_printed(text, printed.getvalue())

    return probe


def harm_of_printed(text: str, shown: str) -> list[str]:
    hidden = [part for part in ("id[/x]", "[abc]kept[bold]") if part == text and part not in shown]
    return [*harm_in_terminal(shown), *hidden]


def in_text(render: Callable[[str], str]) -> Probe:
    """A text that a verb prints as it is."""
    return lambda text: harm_in_terminal(render(text))


def in_page(render: Callable[[str], str]) -> Probe:
    """A page in Markdown: outside of code there are neither elements nor other rows."""

    def probe(text: str) -> list[str]:
        page = render(text)
        words = re.sub(r"`[^`\n]*`", "", page)
        return [*harm_in_terminal(page), *harm_in_html(words), *re.findall(r"!\[image\]", words)]

    return probe


def of_record(text: str) -> str:
    """Records are read from files, which are UTF-8: a surrogate cannot be in them."""
    return text.encode("utf-8", "replace").decode()


def requirement_explained(text: str, console: Console) -> None:
    requirements._print_requirement(filled(Requirement, text, later=[], claims=[]), console)


def proof_shown(text: str, console: Console) -> None:
    result = SimpleNamespace(
        proof=SimpleNamespace(title=text), paper=text, checks=(text,), failure="", text=text, holds=True
    )
    runner: Any = SimpleNamespace(run=lambda _proof: result)
    proofs: Any = ["proof"]
    requirements._refuted(proofs, runner, console)


def driver_checked(text: str, console: Console) -> None:
    steps = [CheckStep(name=text, ok=False, detail=text, hint=text), CheckStep(name=text, ok=True, detail=text)]
    for step in steps:
        driver._print_step(console, step)
    driver._print_summary(console, steps)
    driver._print_prospects(console, Reach(1, 2, (Prospect(text, 1),)), everything=True)


def difference(text: str) -> StepDifference:
    return filled(StepDifference, text)


def finding_shown(text: str, console: Console) -> None:
    found = FuzzFinding(difference(text).group, (), (difference(text),))
    progress = SimpleNamespace(
        coverage=SimpleNamespace(never_tried=lambda _ops: [(text, text)], compared=()),
        operations=(),
        sequences=1,
        steps=1,
        elapsed_s=1.0,
    )
    campaign: Any = SimpleNamespace(progress=progress, findings=[found])
    folder: Any = SimpleNamespace(file_of=lambda _finding: text)
    _conclude(console, campaign, folder)


def replay_shown(text: str, console: Console) -> None:
    step = CallStep(text, Add(name=of_record(text), data_raw=of_record(text), opts={of_record(text): of_record(text)}))
    header = filled(ReplayHeader, text)
    replayed = ReplayedStep(step, (difference(text),), (difference(text),))
    fuzz.show(console, Replay(header, (step,), (difference(text),)), ReplayOutcome((replayed,), text))


def bug_proven(text: str, console: Console) -> None:
    bug = filled(Bug, text, id="node-1", area="other", proof=text)
    proofs = [BugProof(bug, scenario, text, "fail", "pass") for scenario in (text, "")]
    for proof in proofs:
        prover: Any = SimpleNamespace(prove=lambda _bug, proof=proof: proof)
        bugs._shown(console, prover, bug)

    def fail(_bug: Bug) -> BugProof:
        raise EnvironmentProblem(text, hint=text)

    broken: Any = SimpleNamespace(prove=fail)
    bugs._shown(console, broken, bug)


def mutants_shown(text: str, console: Console) -> None:
    session: Any = SimpleNamespace(
        mutant=lambda _key: SimpleNamespace(file=text, line=1, key=text, edit=None), text=lambda _mutant: text
    )
    for fate in ("killed", "survived", "broken"):
        hunted = filled(HuntedMutant, text, fate=fate)
        judgement = filled(Judgement, text) if fate == "survived" else None
        mutants._show(console, session, JudgedMutant(hunted, 1, judgement))


def matrix_page(text: str) -> str:
    entrant = Entrant(text, text)
    alone, pair = (
        MatrixCell(cell=cell, kept=filled(StoredCell, text, ended="broken", problem=text), summary=None)
        for cell in (Cell(entrant), Cell(entrant, entrant))
    )
    return render_page(Matrix(entrants=(entrant,), alone=(alone,), pairs=(pair,)))


def in_html(render: Callable[[str], str]) -> Probe:
    def probe(text: str) -> list[str]:
        page = render(of_record(text))
        return [*harm_in_html(page), *([] if "Content-Security-Policy" in page else ["no policy"])]

    return probe


def version_diff(text: str) -> VersionDiff:
    own = of_record(text)
    releases = {"release": "6.0.0", "last_before": "5.62.0", "releases": []}
    return filled(VersionDiff, own, **VERSIONS, **releases, tier="core", kit="1", selected=[own])


def mixed_record(text: str) -> MixedRecord:
    own = of_record(text)
    rows = [filled(Row, own, steps=[], unsupported=""), Row(feature=own, unsupported=own), Row(feature=own)]
    return MixedRecord(older="5.62.0", newer="6.7.0", clients=[own], rows=rows, absent=[own])


def adoption(text: str) -> Adoption:
    difference = version_diff(text)
    own = {"version": "6.7.0", "older": "5.62.0", "sha256": "0", "verdicts": {"pass": 1}}
    return filled(Adoption, of_record(text), **own, difference=difference)


def announced(text: str) -> list[str]:
    with redirect_stderr(io.StringIO()) as printed:
        announce(text)
    return harm_of_printed(text, printed.getvalue())


def hostile_load(text: str) -> LoadResult:
    own = of_record(text)
    changes = dict.fromkeys(("command", "producer", "redis", "prefix"), own)
    return msgspec.structs.replace(load_result(), **changes, workers=[own], clients=[own])


def load_in_markdown(text: str) -> str:
    return markdown_text(
        "reports", "load.md", result=hostile_load(text), percentiles=SHOWN, offered=1.0, notes=[of_record(text)]
    )


def load_in_page(text: str) -> list[str]:
    # Only elements do harm there, and its charts take long.
    return in_html(lambda own: load_page(hostile_load(own)))(text) if "<" in text else []


OF_VERBS: dict[str, Probe] = {
    "explain": on_console(requirement_explained),
    "explain --prove": on_console(proof_shown),
    "driver check": on_console(driver_checked),
    "fuzz": on_console(finding_shown),
    "replay": on_console(replay_shown),
    "bugs prove": on_console(bug_proven),
    "mutants": on_console(mutants_shown),
    "matrix": in_html(matrix_page),
    "versions diff": in_text(lambda text: render_version_text(version_diff(text))),
    "versions diff in Markdown": in_page(lambda text: render_version_page(version_diff(text))),
    "versions bisect": in_text(lambda text: render_version_text(version_diff(text))),
    "versions mixed": in_text(lambda text: render_mixed_text(mixed_record(text))),
    "versions mixed in Markdown": in_page(lambda text: render_mixed_page(mixed_record(text))),
    "versions adopt": in_text(lambda text: printable(render_adoption(adoption(text)))),
    "versions adopt in Markdown": in_page(lambda text: render_adoption(adoption(text))),
    "load": announced,
    "load in Markdown": in_page(load_in_markdown),
    "load in a page": load_in_page,
    "report compare": on_console(lambda text, console: print_comparison(filled(LoadComparison, text), console)),
    "snapshot": announced,
}
"""By verb, and what of it."""

OF_THE_KIT = {
    "list": "requirements, clients and scenarios are the kit's own",
    "ledger coverage": "counts of the kit's own rows",
    "ledger page": "the kit's own rows",
    "driver new": "the kit's own skeletons",
    "bugs list": "the kit's own rows",
    "bugs page": "the kit's own rows",
    "run": "its reports are those of `report render`",
    "permissions": "names of commands that Redis knows, and patterns of keys under the kit's own prefixes",
    "watch": "tests/watch/test_watch_command.py tries names of queues and workers in every output",
    "report render": "tests/report/test_hostile.py tries a whole run in every format",
}
"""Verbs that show no text of a driver, a job or Redis, or that are tested elsewhere, with the reason."""
