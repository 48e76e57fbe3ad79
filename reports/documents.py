"""What all reports are made of: HTML and Markdown pages from templates, and JUnit XML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
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
