"""The HTML page of the sample run: its structure, and that each part shows all values of the summary, in order."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from conformance.gate.outcomes import ReportedVerdict
from conformance.gate.records import ScenarioRecord
from conformance.pages.page import asset
from conformance.pages.text import clip, count, duration, split_difference, visible
from conformance.report import markup
from conformance.report.bug_report import file_name
from conformance.report.causes import WHY, Cause
from conformance.report.steps import step_lines
from conformance.report.summary import RequirementSummary, Summary, run_facts
from conformance.report.verdicts import MEANING, SYMBOLS
from tests.report import recorded

VOID = {"meta", "input", "br"}


class Tree(HTMLParser):
    """Builds the elements of a page. Fails for a tag that does not end, or ends in another one."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self._builder, self._open = ET.TreeBuilder(), list[str]()
        self.feed(page)
        self.close()
        assert self._open == []
        self.root = self._builder.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._builder.start(tag, {name: value or "" for name, value in attrs})
        if tag in VOID:
            self._builder.end(tag)
        else:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, self.getpos()
        self._builder.end(tag)

    def handle_data(self, data: str) -> None:
        if self._open:
            self._builder.data(data)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return recorded.summary_of("full")


@pytest.fixture(scope="module")
def page(summary: Summary) -> ET.Element:
    return Tree(markup.render_html(summary)).root


def said(element: ET.Element | None) -> str:
    """The text of an element, each white space as one blank."""
    assert element is not None
    return " ".join("".join(element.itertext()).split())


def texts(element: ET.Element, path: str) -> list[str]:
    return [said(found) for found in element.findall(path)]


def shown(text: str) -> str:
    return " ".join(visible(clip(text, 600)).split())


def badge(word: ReportedVerdict) -> str:
    return f"{SYMBOLS[word]} {word}"


def classed(element: ET.Element, tag: str, name: str) -> list[ET.Element]:
    return [found for found in element.iter(tag) if name in found.get("class", "").split()]


def facts_of(element: ET.Element) -> list[tuple[str, str]]:
    """The first list of facts in an element."""
    facts = classed(element, "dl", "facts")[0]
    return [(said(row.find("dt")), said(row.find("dd"))) for row in facts]


def commands(element: ET.Element) -> list[str]:
    """The commands to reproduce, each with a button that copies it."""
    rows = classed(element, "div", "reproduce")
    assert all([texts(row, "span"), texts(row, "button[@class='copy']")] == [["reproduce"], ["copy"]] for row in rows)
    return [said(row.find("code")) for row in rows]


def reproduced(*scenarios: ScenarioRecord) -> list[str]:
    return [scenario.reproduce for scenario in scenarios if scenario.reproduce]


def test_every_link_label_and_row_is_whole(page: ET.Element, summary: Summary) -> None:
    ids = [element.get("id", "") for element in page.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    links = {element.get("href", "") for element in page.iter("a")}
    reports = {f"causes/{file_name(cause)}" for cause in summary.causes}
    assert {link for link in links if not link.startswith("#")} == reports
    named = {element.get(name, "") for element in page.iter() for name in ("aria-labelledby", "data-requirement")}
    assert {link[1:] for link in links - reports} | named - {""} <= set(ids)
    assert {"#profiles-title", "#matrix-title", "#run-title"} <= links
    for table in page.iter("table"):
        assert said(table.find("caption"))
        heads = table.findall("thead/tr/th")
        assert heads
        assert all(head.get("scope") == "col" and said(head) for head in heads)
        assert {len(row) for row in table.findall("tbody/tr")} == {len(heads)}


def test_the_head_names_the_client_and_the_conclusion(page: ET.Element, summary: Summary) -> None:
    client = summary.run.header.client
    assert page.attrib == {"lang": "en"}
    assert said(page.find("head/title")) == f"{client.name}: BullMQ conformance"
    assert said(page.find(".//h1")) == f"BullMQ conformance of {client.name} {client.version}"
    (conclusion,) = classed(page, "p", "conclusion")
    assert conclusion.get("class") == f"conclusion {summary.conclusion.state}"
    assert said(conclusion) == visible(summary.conclusion.sentence)
    assert texts(page, "head/style") == [" ".join(asset("conformance.pages", "page.css").split())]
    assert texts(page, ".//script") == [" ".join(asset("conformance.report", "report.js").split())]
    assert facts_of(page.findall(".//section")[-1]) == [(name, shown(value)) for name, value in run_facts(summary.run)]


def test_an_incomplete_run_says_so_first() -> None:
    summary = recorded.summary_of("incomplete")
    warning, conclusion = Tree(markup.render_html(summary)).root.findall(".//header/p")
    assert (warning.get("class"), said(warning)) == ("incomplete", summary.completeness.sentence)
    assert conclusion.get("class") == f"conclusion {summary.conclusion.state}"


def test_every_cause_has_its_texts_facts_and_command(page: ET.Element, summary: Summary) -> None:
    sections = classed(page, "details", "finding")
    assert [section.get("id") for section in sections] == [f"cause-{cause.number}" for cause in summary.causes]
    assert ["open" in section.attrib for section in sections] == [True] + [False] * (len(sections) - 1)
    for cause, section in zip(summary.causes, sections, strict=True):
        finding, example = cause.finding, cause.example
        assert section.get("class") == f"finding {finding.severity}"
        assert texts(section, "summary/*") == [f"{badge(cause.verdict)} {cause.title}", finding.severity, cause.met]
        assert texts(section, "div/p")[0] == shown(finding.message)
        sides = section.findall(".//div[@class='sides']/div")
        values = (("expected", finding.expected), ("actual", finding.actual))
        assert [said(side) for side in sides] == [name + (shown(value) or "empty") for name, value in values]
        differences = [part.different for part in split_difference(finding.expected, finding.actual)]
        assert texts(section, ".//mark") == [shown(text) for text in differences if text]
        assert facts_of(section) == list(facts_of_cause(cause))
        assert {link.get("href") for link in section.findall(".//a")} == {
            f"causes/{file_name(cause)}",
            *(f"#{name}" for name in cause.requirements),
        }
        blocks = [("steps", "\n".join(step_lines(example))), ("log", "\n".join(example.log))]
        folds = section.findall("div/details")
        unfolded = [(said(fold.find("summary")).split()[0], said(fold.find("pre"))) for fold in folds]
        assert unfolded == [(name, shown(text)) for name, text in blocks if text]
        assert commands(section) == reproduced(example)


def facts_of_cause(cause: Cause) -> Iterator[tuple[str, str]]:
    finding = cause.finding
    first, *others = cause.requirements
    yield f"requirement{'s' if others else ''}", ", ".join([f"{first} ({cause.level})", *others])
    at = f", at {shown(finding.key)}" if finding.key else ""
    yield "where", f"{shown(finding.where)} {finding.kind}, seen by {finding.source}{at}"
    yield "seen", f"{cause.met}: {', '.join(cause.scenarios)}"
    for reading in finding.redis:
        node = f"Node: {reading.expected}" if reading.expected else ""
        yield "Redis", f"{' '.join(reading.command)}{node}client: {reading.actual}"


def test_every_profile_has_a_row(page: ET.Element, summary: Summary) -> None:
    (table,) = classed(page, "table", "profiles")
    rows = table.findall("tbody/tr")
    for status, row in zip(summary.conclusion.profiles, rows, strict=True):
        failing = f": {', '.join(status.failing)}" if status.failing else ""
        folded = "".join(f"{len(ids)} {reason}{' '.join(ids)} " for reason, ids in status.open.items()).strip()
        assert row.get("class") == status.state
        assert [said(cell) for cell in row] == [
            status.name,
            f"{visible(status.remark)}{failing}",
            f"{status.decided} of {status.requirements}",
            folded,
        ]
        assert row[0].get("title") == status.title


def test_totals_filters_and_legends_have_every_verdict(page: ET.Element, summary: Summary) -> None:
    (totals,) = classed(page, "ul", "totals")
    counts = [f"{badge(word)} {number}" for word, number in summary.counts.items()]
    assert texts(totals, "li") == [*counts, f"all {len(summary.requirements)}"]
    options = [[(option.get("value"), said(option)) for option in choice] for choice in page.iter("select")]
    words = [(word, f"{word} ({number})") for word, number in summary.counts.items()]
    areas = [(area.name, area.name) for area in summary.areas]
    assert options == [[("", "all"), ("trouble", "all but pass"), *words], [("", "all"), *areas]]
    severities, verdicts = ([(said(row[0]), said(row[1])) for row in dl] for dl in classed(page, "dl", "legend"))
    assert severities == list(WHY.items())
    assert verdicts == [(badge(word), MEANING[word]) for word in summary.counts]


def test_problems_of_the_run_and_of_whole_scenarios_are_listed(page: ET.Element, summary: Summary) -> None:
    headings = texts(page, "body/main/section/h2")
    section = page.findall("body/main/section")[headings.index("Problems of the run")]
    assert texts(section, "ul/li") == [visible(problem) for problem in summary.problems]
    articles = classed(page, "article", "scenario-problem")
    for scenario, article in zip((whole.record for whole in summary.unattributed), articles, strict=True):
        assert texts(article, "*")[:3] == [
            f"{badge(scenario.verdict)} {scenario.id}",
            scenario.title,
            shown(scenario.reason),
        ]
        assert commands(article) == reproduced(scenario)
        assert texts(article, "details/pre") == ([shown("\n".join(scenario.log))] if scenario.log else [])


def test_every_requirement_is_in_the_row_of_its_area(page: ET.Element, summary: Summary) -> None:
    (matrix,) = classed(page, "table", "matrix")
    for area, row in zip(summary.areas, matrix.findall("tbody/tr"), strict=True):
        counts = " ".join(f"{number} {word}" for word, number in area.counts.items())
        assert [said(row[0]), said(row[1])] == [area.name, counts]
        chips = [(link.attrib, said(link)) for link in row[2]]
        assert chips == [(chip_of(requirement), chip_text(requirement)) for requirement in area.requirements]


def chip_of(requirement: RequirementSummary) -> dict[str, str]:
    word, anchor = requirement.reported, requirement.id
    title = f"{word}: {requirement.statement}"
    return {"class": f"chip {word}", "href": f"#{anchor}", "data-requirement": anchor, "title": title}


def chip_text(requirement: RequirementSummary) -> str:
    name = requirement.id.removeprefix(f"{requirement.area}.")
    return f"{SYMBOLS[requirement.reported]} {name} {requirement.reported}"


def test_every_requirement_has_its_details(page: ET.Element, summary: Summary) -> None:
    sections = classed(page, "details", "requirement")
    for requirement, section in zip(summary.requirements, sections, strict=True):
        word = requirement.reported
        assert section.attrib == {
            "class": f"requirement {word}",
            "id": requirement.id,
            "data-verdict": word,
            "data-area": requirement.area,
        }
        causes = f", {count(len(requirement.causes), 'cause')}" if requirement.causes else ""
        tally = f"{count(len(requirement.scenarios), 'scenario')}{causes}"
        assert texts(section, "summary/*") == [f"{badge(word)} {requirement.id}", requirement.level, tally]
        assert texts(section, "div/p[@class='statement']") == [requirement.statement]
        facts = [("known", reason) for reason in requirement.known]
        facts += [("reason", shown(reason)) for reason in requirement.reasons]
        assert facts_of(section) == [("source", requirement.source), *facts]
        links = [(link.get("href"), said(link)) for link in section.findall(".//ul/li/a")]
        assert links == [(f"#cause-{cause.number}", cause.line) for cause in requirement.causes]
        rows = section.findall(".//table/tbody/tr")
        verdicts = {
            scenario.id: scenario.requirements.get(requirement.id, "fail") for scenario in requirement.scenarios
        }
        assert [said(row[1].find("code")) for row in rows] == sorted(
            verdicts, key=lambda name: verdicts[name] == "pass"
        )
        by_id = {scenario.id: scenario for scenario in requirement.scenarios}
        for row in rows:
            scenario = by_id[said(row[1].find("code"))]
            verdict = verdicts[scenario.id]
            repeated = reproduced(scenario) if verdict != "pass" and not requirement.causes else []
            time = duration(scenario.timings_ms["total"]) if "total" in scenario.timings_ms else ""
            assert commands(row) == repeated
            assert [said(row[0]), said(row[2])] == [badge(verdict), time]
            assert said(row[1]).startswith(f"{scenario.id}{scenario.title}")
