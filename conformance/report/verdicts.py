"""How reports show verdicts: symbols and meanings."""

from __future__ import annotations

from conformance.gate.outcomes import ReportedVerdict

SYMBOLS: dict[ReportedVerdict, str] = {
    "fail": "✗",
    "error": "!",
    "stale": "⚑",
    "inconclusive": "?",
    "changed": "≠",
    "warn": "▲",
    "info": "i",
    "expected-fail": "≈",
    "unchecked": "…",
    "pass": "✓",
    "unsupported": "-",
}

MEANING: dict[ReportedVerdict, str] = {
    "fail": "does not do what the requirement says",
    "error": "the kit, the oracle or the set-up broke; this shows nothing about the client",
    "stale": "listed in known.toml, but passes now: remove it from the list",
    "inconclusive": "a deadline or an unknown outcome left the question open",
    "changed": "the oracle has an unsupported version and differs from the scenario; both sides were still compared",
    "warn": "does not do what it SHOULD do",
    "info": "does not do what it MAY do, which is optional",
    "expected-fail": "listed in known.toml and fails as listed",
    "unchecked": "a failure of another requirement ended the scenario before this one was checked",
    "pass": "does what the requirement says",
    "unsupported": "not run: the client does not declare the operation or capability",
}
