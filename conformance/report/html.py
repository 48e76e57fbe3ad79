"""The report for a browser: one self-contained page that asks for nothing on the network.

Foreign text is escaped by Jinja2. Should an escape ever be missing, the content security policy still lets no script
run but the page's own, which it names by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from conformance.report.facts import run_facts
from conformance.report.summary import RequirementSummary, Summary
from conformance.report.text import count, duration, visible
from conformance.report.verdicts import MEANING, SHOWN, SYMBOLS

_SAFE_ANCHOR = re.compile(r"[A-Za-z0-9._-]+")


def render(summary: Summary) -> str:
    """Render the page."""
    script = _asset("report.js")
    return (
        _environment()
        .get_template("report.html")
        .render(
            summary=summary,
            facts=run_facts(summary.run),
            anchors=_anchors(summary.requirements),
            script=script,
            style=_asset("report.css"),
            script_hash=_hash(script),
            shown_words=[word for word in SHOWN if word in summary.counts],
            symbols=SYMBOLS,
            meaning=MEANING,
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("conformance.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.filters["duration"] = duration
    environment.globals["count"] = count
    environment.globals["short_name"] = _short_name
    return environment


def _asset(name: str) -> str:
    return files("conformance.report").joinpath("templates", name).read_text("utf-8")


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _anchors(requirements: tuple[RequirementSummary, ...]) -> dict[str, str]:
    """Give each requirement a fragment that can be linked to; an id that is no plain name gets a number."""
    return dict(zip((one.id for one in requirements), _fragments(requirements), strict=True))


def _fragments(requirements: tuple[RequirementSummary, ...]) -> Iterator[str]:
    for number, requirement in enumerate(requirements):
        yield requirement.id if _SAFE_ANCHOR.fullmatch(requirement.id) else f"requirement-{number}"


def _short_name(requirement: RequirementSummary) -> str:
    """Drop the area from an id, because the row of the matrix already says it."""
    return requirement.id.removeprefix(f"{requirement.area}.") or requirement.id
