"""A badge: the JSON that shields.io reads from an endpoint (https://shields.io/badges/endpoint-badge)."""

from __future__ import annotations

import json

from conformance.report.summary import Summary
from conformance.report.text import visible


def render(summary: Summary) -> str:
    """Render the badge. An incomplete run never shows a verdict."""
    message, color = _message(summary)
    badge = {
        "schemaVersion": 1,
        "label": visible(f"BullMQ {summary.run.header.oracle.version}", keep_newlines=False),
        "message": message,
        "color": color,
        "isError": not summary.conclusion.conformant,
    }
    return json.dumps(badge, ensure_ascii=False, indent=2) + "\n"


def _message(summary: Summary) -> tuple[str, str]:
    if not summary.completeness.complete:
        return "incomplete run", "lightgrey"
    if summary.conclusion.state == "undecided":
        return "undecided", "lightgrey"
    if summary.conclusion.state == "not-conformant":
        return "not conformant", "red"
    return _conformant(summary)


def _conformant(summary: Summary) -> tuple[str, str]:
    """Say `conformant` with what it leaves out; only a plain pass is bright green."""
    known = summary.counts.get("expected-fail", 0)
    unsupported = summary.counts.get("unsupported", 0)
    limits = [f"{known} known failures" if known > 1 else "1 known failure"] if known else []
    limits += [f"{unsupported} unsupported"] if unsupported else []
    if summary.untested:
        limits.append(f"{len(summary.untested)} untested")
    message = ", ".join(["conformant", *limits])
    if known:
        return message, "yellow"
    return message, "green" if limits else "brightgreen"
