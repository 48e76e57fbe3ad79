"""A result of `chaos` on the terminal: one line, and details for everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from chaos.results import ResultRow
from conformance.pages.terminal import terminal_text

MOST_FINDINGS = 3
"""Per invariant; the reports have all of them."""


def print_result(result: ResultRow) -> None:
    """Print the line of a run, and its details."""
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    console.print(terminal_text(_summary(result), style="bold red" if _is_wrong(result) else ""))
    for line in (*_findings(result), *_gaps(result)):
        console.print(terminal_text(f"    {line}"))
    if _is_wrong(result) and result.reproduce:
        console.print(terminal_text(f"    reproduce: {result.reproduce}"))


def _is_wrong(result: ResultRow) -> bool:
    return bool(result.failed or result.unproven or result.kit_troubles or result.missed)


def _summary(result: ResultRow) -> str:
    explained = [name for name, cell in result.cells.items() if cell.verdict == "explained"]
    as_node = f" (as Node: {', '.join(explained)})" if explained else ""
    mark = "✗" if result.failed else "?" if _is_wrong(result) else "·" if result.lacks else "✓"
    return f"{mark} {result.client} {result.name} [{result.topology}] {result.seconds:.1f} s{as_node}"


def _findings(result: ResultRow) -> Iterator[str]:
    """Failed calls, growing memory, and violated invariants."""
    for trouble in result.troubles:
        yield f"{'calls' if trouble.culprit == 'client' else 'not run'}: {trouble}"
    for process, size in result.growth.items():
        yield f"memory: {process} grew from {size}"
    for name in filter(result.cells.get, result.failed):
        for finding in result.cells[name].findings[:MOST_FINDINGS]:
            yield f"{name}: {finding.job} {finding.message}"


def _gaps(result: ResultRow) -> Iterator[str]:
    """All that the run could not decide, and why."""
    for name in result.unproven:
        yield f"{name}: unknown: {'; '.join(result.cells[name].reasons[:MOST_FINDINGS])}"
    if result.lacks:
        yield f"not run: the client has no {result.lacks}"
    if result.missed and result.why:
        yield f"never reached: {result.why}"
