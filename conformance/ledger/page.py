"""The ledger as a page for readers (`docs/requirements.md`). No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.ledger.loader import REQUIREMENT_SET, STATUSES, Ledger, Requirement

INTRODUCTION = f"""\
# Requirements

Made by `bullmq-conformance ledger page`; the source is `conformance/ledger/`, and a test says when this page is stale.

Every rule that the kit knows about clients of BullMQ {REQUIREMENT_SET}, by its stable id. `MUST` fails a run, `SHOULD`
warns, `MAY` informs. What becomes of a rule is its status:

- **tested**: a scenario looks at it.
- **disputed**: the written specification and real BullMQ say different things; both are given. Where another client can
  see it in Redis, what BullMQ does is the requirement; where only the library's user sees it, the specification is.
  `bullmq-conformance explain ID --prove` shows what BullMQ does.
- **client-only**: only the user of one library sees it, so it is not the kit's to judge.
- **untestable**: no scenario looks at it, for the reason given; `scenario missing` means that one could.

Claims are the numbered statements of the specification (`conformance/ledger/claims.txt`); each belongs to one rule.
`bullmq-conformance explain ID` takes the id of a rule or of a claim, and also names scenarios.
"""


def requirements_page(ledger: Ledger) -> str:
    """The whole page as Markdown."""
    return "\n".join([INTRODUCTION, *_contents(ledger), *_areas(ledger)]).rstrip("\n") + "\n"


def _contents(ledger: Ledger) -> Iterator[str]:
    yield "| area | rules | " + " | ".join(STATUSES) + " |"
    yield "|---|---:|" + "---:|" * len(STATUSES)
    for area, title in ledger.areas.items():
        rows = [row for row in ledger.values() if row.area == area]
        counts = [sum(row.status == status for row in rows) for status in STATUSES]
        yield f"| [{title}](#{_anchor(title)}) | {len(rows)} | " + " | ".join(map(str, counts)) + " |"
    yield ""


def _areas(ledger: Ledger) -> Iterator[str]:
    for area, title in ledger.areas.items():
        yield f"## {title}\n"
        for row in ledger.values():
            if row.area == area:
                yield from _rule(row)


def _rule(row: Requirement) -> Iterator[str]:
    yield f"### {row.id}\n"
    yield f"{row.level}, {row.status}. {row.statement}\n"
    facts = {
        "The specification": row.paper,
        f"BullMQ {REQUIREMENT_SET}": row.oracle,
        "No scenario" if row.status != "client-only" else "Not judged": row.reason,
        "Stated in": row.source,
        "Claims": ", ".join(row.claims),
    }
    yield from (f"- {name}: {text}" for name, text in facts.items() if text)
    yield ""


def _anchor(title: str) -> str:
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -")
    return kept.replace(" ", "-")
