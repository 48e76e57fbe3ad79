"""JUnit XML for CI systems: the one builder behind every report that has test cases."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from junitparser import Element, Error, Failure, JUnitXml, Properties, Property, Skipped, TestCase, TestSuite

from conformance.pages.text import visible

JunitResult = type[Failure] | type[Error] | type[Skipped]

# junitparser leaves these without annotations, which `mypy --strict` refuses to call directly.
_new_document: Any = JUnitXml
_new_properties: Any = Properties


@dataclass(frozen=True, kw_only=True)
class JunitProblem:
    """Why a test case did not pass. `kind`: the `type` attribute; empty for the name of the suite."""

    result: JunitResult = Failure
    message: str
    kind: str = ""
    details: str = ""


@dataclass(frozen=True, kw_only=True)
class JunitCase:
    """One test case; it passed if it has no `problem`. `class_name`: empty for the name of the suite."""

    name: str
    problem: JunitProblem | None = None
    class_name: str = ""
    seconds: float = 0.0
    properties: Sequence[tuple[str, str]] = ()
    output: str = ""
    log: str = ""


@dataclass(frozen=True, kw_only=True)
class JunitSuite:
    """A suite of test cases, and facts about it as properties."""

    name: str
    cases: Sequence[JunitCase]
    properties: Sequence[tuple[str, str]] = ()


def junit_check(name: str, *, failure: str = "", details: str = "", seconds: float = 0.0) -> JunitCase:
    """Return the case of a check that passed if `failure` is empty."""
    problem = JunitProblem(message=failure, details=details) if failure else None
    return JunitCase(name=name, problem=problem, seconds=seconds)


def junit_document(suites: Iterable[JunitSuite], name: str = "bullmq-conformance") -> str:
    """Return a document; invisible characters in names and texts are written out, because XML forbids some of them."""
    document = _new_document(_attribute(name))
    _attach(document, map(_suite, suites))
    document.update_statistics()
    written = io.BytesIO()
    document.write(written, pretty=True)
    return written.getvalue().decode("utf-8")


def _attach(parent: Any, children: Iterable[Element]) -> None:
    """Append children. `add_testcase` would recount the whole suite for every case: quadratic."""
    parent.extend(children)


def _suite(described: JunitSuite) -> TestSuite:
    suite = TestSuite(_attribute(described.name))
    for name, value in described.properties:
        suite.add_property(name, _attribute(value))
    _attach(suite, [_case(case, described.name) for case in described.cases])
    return suite


def _case(described: JunitCase, suite_name: str) -> TestCase:
    case = TestCase(_attribute(described.name), _attribute(described.class_name or suite_name), described.seconds)
    if described.properties:
        properties: Properties = _new_properties()
        for name, value in described.properties:
            properties.add_property(Property(_attribute(name), _attribute(value).strip()))
        _attach(case, [properties])
    if described.problem is not None:
        case.result = [_result(described.problem, suite_name)]
    if described.output:
        case.system_out = visible(described.output)
    if described.log:
        case.system_err = visible(described.log)
    return case


def _result(problem: JunitProblem, suite_name: str) -> Failure | Error | Skipped:
    result = problem.result(_attribute(problem.message), _attribute(problem.kind or suite_name))
    if problem.details:
        result.text = visible(problem.details)
    return result


def _attribute(text: str) -> str:
    """XML readers turn newlines in attributes into spaces, so newlines are written out."""
    return visible(text, keep_newlines=False)
