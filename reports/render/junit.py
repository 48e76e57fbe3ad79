"""JUnit XML, which every CI reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from junitparser import Failure, JUnitXml, TestCase, TestSuite


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One test case. `failure` empty: it passed. `details`: what else there is to read. `seconds`: where measured."""

    name: str
    failure: str = ""
    details: str = ""
    seconds: float = 0.0


def junit_text(suite_name: str, outcomes: Iterable[Outcome]) -> str:
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
