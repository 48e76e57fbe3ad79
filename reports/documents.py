"""What all reports are made of: HTML pages, the index of all runs, and JUnit XML."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from junitparser import Failure, JUnitXml, TestCase, TestSuite

_ENVIRONMENT = Environment(
    loader=PackageLoader("reports"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _number(value: float) -> str:
    """With groups of thousands, and no decimals that say nothing."""
    if abs(value) >= 100 or float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


_ENVIRONMENT.filters["number"] = _number
_ENVIRONMENT.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]


def html_page(template: str, **values: Any) -> str:
    """A page from one of the templates."""
    style = (files("reports") / "templates" / "page.css").read_text("utf-8")
    return _ENVIRONMENT.get_template(template).render(style=style, **values)


def markdown_text(template: str, **values: Any) -> str:
    """Markdown from one of the templates; nothing is escaped."""
    return _ENVIRONMENT.overlay(autoescape=False).get_template(template).render(**values)


INDEX = "index.html"


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run that the index lists."""

    name: str
    page: str
    kind: str
    outcome: str


def write_index(folder: Path) -> Path:
    """Write the index of all runs in the folders below; returns its path."""
    path = folder / INDEX
    path.write_text(html_page("index.html", runs=list(runs_under(folder))), "utf-8")
    return path


def runs_under(folder: Path) -> Iterator[ListedRun]:
    """Every load and diff in the folders below, by name."""
    for child in sorted(folder.iterdir()):
        if (child / "load.json").is_file() and (child / "load.html").is_file():
            found = json.loads((child / "load.json").read_text("utf-8"))
            outcome = f"{found['produced']['jobs']:,} jobs added, {found['finished']['jobs']:,} finished"
            yield ListedRun(name=child.name, page=f"{child.name}/load.html", kind="load", outcome=outcome)
        if (child / "diff.json").is_file():
            total = json.loads((child / "diff.json").read_text("utf-8"))["total"]
            outcome = f"{total:,} differences" if total else "no differences"
            yield ListedRun(name=child.name, page=f"{child.name}/diff.html", kind="diff", outcome=outcome)


@dataclass(frozen=True, kw_only=True)
class JunitCase:
    """One test case. `failure` empty: it passed. `details`: what else there is to read. `seconds`: where measured."""

    name: str
    failure: str = ""
    details: str = ""
    seconds: float = 0.0


def junit_text(suite_name: str, outcomes: Iterable[JunitCase]) -> str:
    """A document with one suite."""
    suite = TestSuite(suite_name)
    for outcome in outcomes:
        case = TestCase(outcome.name, classname=suite_name, time=outcome.seconds)
        if outcome.failure:
            failure = Failure(outcome.failure, suite_name)
            failure.text = outcome.details
            case.result = [failure]
        suite.add_testcase(case)
    document: Any = JUnitXml("bullmq-conformance")
    document.add_testsuite(suite)
    document.update_statistics()
    written = document.tostring()
    return written.decode() if isinstance(written, bytes) else str(written)
