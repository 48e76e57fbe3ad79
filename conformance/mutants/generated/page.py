"""`docs/reference/kill-matrix.md`: the result of each sampled mutant, by place and name, without any text of Lua."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from conformance.mutants.generated.outcome import JudgedMutant, SweepOutcome
from conformance.mutants.generated.rates import KillRate

_INTRODUCTION = """\
# Kill matrix

Small changes that nobody chose are made to the official Lua scripts and to the code of the reference client; each makes
a client that is broken in some way, a mutant. The gate has to notice it. This page is written by

    {command}

A mutant is *killed* by the first case whose requirement fails (or warns) on it; *equivalent* or *unreachable* ones, of
which `conformance/mutants/generated/judgements.toml` says why nobody can see them, do not count; whatever else
survives is a hole of the gate. Rates are killed of effective mutants, with Wilson's interval of 95 %. Half of each
sample is Lua, half Python, and every operator has its turn. `bullmq-conformance mutants --list --mutant KEY` shows the
text of a change.
"""


def kill_matrix_page(outcomes: Sequence[SweepOutcome], command: str) -> str:
    """The page in Markdown."""
    return "\n".join([_INTRODUCTION.format(command=command), *_summary(outcomes), *_details(outcomes)])


_COLUMNS = (
    "seed",
    "tier",
    "mutants",
    "killed",
    "only a warning",
    "equivalent",
    "unreachable",
    "holes",
    "undecided",
    "does not start",
)


def _summary(outcomes: Sequence[SweepOutcome]) -> Iterator[str]:
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "|---" * len(_COLUMNS) + "|"
    for each in outcomes:
        judged = [len(each.judged(verdict)) for verdict in ("equivalent", "unreachable")]
        counts = [each.only_warned, *judged, len(each.holes), each.count("undecided"), each.count("broken")]
        yield f"| {_seed(each)} | {each.tier} | {len(each.mutants)} | {each.rate} | {' | '.join(map(str, counts))} |"
    yield ""


def _details(outcomes: Sequence[SweepOutcome]) -> Iterator[str]:
    for each in outcomes:
        yield f"## Seed {_seed(each)}"
        yield ""
        for title, rates in (("source", each.by_language), ("area", each.by_area), ("operator", each.by_operator)):
            yield from _rate_table(title, rates)
        yield from _table("Holes", ["mutant", "line", "cases that notice nothing"], map(_hole, each.holes))
        alive = [*each.judged("equivalent"), *each.judged("unreachable")]
        yield from _table("Judged", ["mutant", "verdict", "reason"], map(_judged, alive))
        killed = sorted((one for one in each.mutants if one.is_killed), key=lambda one: one.key)
        yield from _table("Killed", ["mutant", "scenario", "requirement"], map(_killed, killed))


def _seed(outcome: SweepOutcome) -> str:
    return "none" if outcome.seed is None else str(outcome.seed)


def _rate_table(title: str, rates: Mapping[str, KillRate]) -> Iterator[str]:
    yield f"| {title} | killed |"
    yield "|---|---|"
    yield from (f"| {name} | {rate} |" for name, rate in rates.items())
    yield ""


def _table(title: str, columns: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield f"### {title}"
        yield ""
        yield f"| {' | '.join(columns)} |"
        yield "|" + "---|" * len(columns)
        yield from lines
        yield ""


def _hole(each: JudgedMutant) -> Sequence[str]:
    return f"`{each.key}`", str(each.line), f"{each.hunted.passed} of {each.hunted.reach}"


def _judged(each: JudgedMutant) -> Sequence[str]:
    assert each.judgement is not None
    return f"`{each.key}`", each.judgement.verdict, each.judgement.reason


def _killed(each: JudgedMutant) -> Sequence[str]:
    case = each.hunted.case.replace("|", "\\|").replace("\n", " ")
    return f"`{each.key}`", f"`{case}`", f"`{each.hunted.requirement}`{' (warns)' if each.hunted.warns else ''}"
