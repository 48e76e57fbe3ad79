"""Sample reports of real runs: each is kept as one data file, and rendered for the site and for the pictures in docs/.

    python -m website.samples [FOLDER]

FOLDER is where `website.assembly` has written the pages; without it, the pictures in `docs/pictures/` are written.
`samples/matrix.json` is what the page of a matrix shows, `samples/load.json` comes from `benchmarks.headline`, and
`samples/find-rate.json` from `benchmarks.highest_rates`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from conformance.pages.compact_json import compact_json
from conformance.report.matrix import CellPart, MatrixParts, render_parts
from reports.charts import backlog_chart, search_chart
from reports.diff.summary import DiffSummary
from reports.load.rate_search import RateSearch, search_sentence
from reports.load.result import LoadResult, write_result
from reports.rendering import write_load_reports, write_search_reports
from reports.store_pages import write_diff_reports
from website.site_map import ROOT

SAMPLES: Final = Path(__file__).parent / "samples"
MATRIX, LOAD, RATES = "matrix.json", "load.json", "find-rate.json"
PICTURES: Final = ROOT / "docs" / "pictures"
_DEPTH: Final = {MATRIX: 2, LOAD: 3, RATES: 3}
_COLOURS: Final = {"conformant": "#cfe8d5", "holds": "#cfe8d5", "not-conformant": "#f5cfcf"}

Sample = TypeVar("Sample", bound=msgspec.Struct)


class MeasuredCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was run: how long it took (s), and the load of the machine (1 min) before and after it."""

    command: str
    seconds: float
    load_before: float
    load_after: float

    @property
    def measured(self) -> MeasuredCommand:
        """The same without what a subclass adds."""
        return MeasuredCommand(
            command=self.command, seconds=self.seconds, load_before=self.load_before, load_after=self.load_after
        )

    @property
    def row(self) -> str:
        """Two cells of a table: the seconds, and the load of the machine."""
        return f"{self.seconds:.0f} s | {self.load_before:.1f} to {self.load_after:.1f}"


class LoadSample(msgspec.Struct, frozen=True, kw_only=True):
    """One workload through two clients, once each way round (`loads`, by folder), and the diff of the final states."""

    jobs: int
    cores: int
    commands: list[MeasuredCommand]
    loads: dict[str, LoadResult]
    diff: DiffSummary


class RatesSample(msgspec.Struct, frozen=True, kw_only=True):
    """Searches for the highest rate that keeps the threshold `bound`, in loads of `trial`; by client."""

    bound: str
    trial: str
    cores: int
    commands: dict[str, MeasuredCommand]
    searches: dict[str, RateSearch]


def read_sample(name: str, kind: type[Sample]) -> Sample:
    """Read a data file. Raises msgspec.ValidationError if it is not of this kit."""
    return msgspec.json.decode((SAMPLES / name).read_bytes(), type=kind)


def write_sample(name: str, sample: msgspec.Struct) -> Path:
    """Write a data file, one record per line; returns its path."""
    path = SAMPLES / name
    path.write_text(compact_json(msgspec.to_builtins(sample), depth=_DEPTH[name]), "utf-8")
    return path


def write_pages(folder: Path) -> None:
    """Write the reports of all samples, and a page about each, into the folder with the pages of the site."""
    matrix, load, rates = (folder / f"sample-{name}" for name in ("matrix", "report", "rates"))
    matrix.mkdir(parents=True)
    (matrix / "index.html").write_text(render_parts(read_sample(MATRIX, MatrixParts)), "utf-8")
    sample = read_sample(LOAD, LoadSample)
    for name, result in sample.loads.items():
        (load / name).mkdir(parents=True)
        write_result(load / name, result)
        write_load_reports(load / name, result)
    (load / "diff").mkdir()
    write_diff_reports(load / "diff", sample.diff)
    # mkdocs would turn each report in Markdown into a page that the navigation does not have.
    for report in load.glob("*/*.md"):
        report.unlink()
    (load / "about.md").write_text(page_of_loads(sample), "utf-8")
    found = read_sample(RATES, RatesSample)
    for client, search in found.searches.items():
        (rates / client).mkdir(parents=True)
        write_search_reports(
            rates / client, search, f"{client} → {client}", found.commands[client].command, linked=False
        )
    (rates / "about.md").write_text(page_of_rates(found), "utf-8")


def page_of_loads(sample: LoadSample) -> str:
    """Write the page about the loads and their diff, in Markdown."""
    commands = "\n".join(step.command for step in sample.commands)
    rows = "\n".join(
        f"| added by {result.producer}, worked off by {_workers(result)} | {_phases(result)} | {step.row} |"
        for result, step in zip(sample.loads.values(), sample.commands, strict=False)
    )
    total = sample.diff.total
    differences = f"{total:,} differences" if total else "no differences"
    return f"""# Sample reports of a load

Real output of `python -m benchmarks.headline --jobs {sample.jobs}`: one workload of {sample.jobs:,} jobs on
{sample.cores} cores with Redis on the same machine. One client adds the jobs and the other works them off, then the
other way round. `diff` compares the two final states: {differences}.
[All reports](index.html).

```text
{commands}
```

| run | added | finished | whole command | load of the machine |
|---|---|---|---|---|
{rows}
| diff | | | {sample.commands[-1].row} |

{_LOAD_OF_MACHINE} the times say nothing about speed.
"""


_LOAD_OF_MACHINE: Final = """\
The load of the machine is what `uptime` shows for the minute before and after the command. The run itself adds 2 to 3
on two cores; above that,"""


def _workers(result: LoadResult) -> str:
    """Only the names: `1 x node, concurrency 100` is `node`."""
    return ", ".join(workers.partition(" x ")[2].partition(",")[0] for workers in result.workers)


def _phases(result: LoadResult) -> str:
    return " | ".join(f"{phase.jobs:,} in {phase.seconds:.1f} s" for phase in (result.produced, result.finished))


def page_of_rates(sample: RatesSample) -> str:
    """Write the page about all searches, in Markdown."""
    commands = "\n".join(step.command for step in sample.commands.values())
    rows = "\n".join(
        f"| [{client}]({client}/find-rate.html) | {search_sentence(search)} | {sample.commands[client].row} |"
        for client, search in sample.searches.items()
    )
    return f"""# The highest rate of three clients

Real output of `python -m benchmarks.highest_rates` on {sample.cores} cores with Redis on the same machine. Each client
adds the jobs and works them off, in loads of {sample.trial}. The search ends at the highest rate, known to a tenth, at
which `{sample.bound}` holds for the time from the scheduled instant of a job to its end.

```text
{commands}
```

| client | result | whole command | load of the machine |
|---|---|---|---|
{rows}

The reference adds its jobs inside Spark's executors, the others in their drivers. Both take time of the same two cores,
so these are rates of whole loads as users run them. To compare clients alone, use `bullmq-conformance bench`.

{_LOAD_OF_MACHINE} the rates say nothing about the clients.
"""


def pictures() -> Mapping[str, str]:
    """Draw the picture of each sample: SVG by file name."""
    loads, rates = read_sample(LOAD, LoadSample), read_sample(RATES, RatesSample)
    return {
        "matrix.svg": matrix_picture(read_sample(MATRIX, MatrixParts)),
        "load.svg": _on_few_lines(backlog_chart(loads.loads["reference-node"].series)),
        "find-rate.svg": _on_few_lines(search_chart(rates.searches["node"], rates.bound)),
    }


def _on_few_lines(svg: str) -> str:
    """Matplotlib writes a line for each point; a line for each group is enough."""
    joined = re.sub(r"\s*\n\s*", " ", svg).replace("> <", "><")
    return joined.replace('<g id="', '\n<g id="') + "\n"


def matrix_picture(matrix: MatrixParts) -> str:
    """Draw the pairs of a matrix as coloured squares: the number of failing causes, and whether jobs are lost."""
    left, top, wide, high = 190, 40, 118, 30
    size = left + wide * len(matrix.clients), top + high * len(matrix.clients)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" role="img">',
        "<title>Which clients work together</title>",
        f'<rect width="{size[0]}" height="{size[1]}" fill="#fff"/><g font-family="sans-serif" font-size="12">',
    ]
    for column, partner in enumerate(matrix.clients):
        lines.append(f'<text x="{left + wide * (column + 0.5)}" y="25" text-anchor="middle">{_short(partner)}</text>')
    for row, client in enumerate(matrix.clients):
        y = top + high * row
        lines.append(f'<text x="{left - 10}" y="{y + 20}" text-anchor="end">{client}</text>')
        for column, partner in enumerate(matrix.clients):
            cell = matrix.pairs.get((client, partner))
            if cell is not None:
                lines.append(_square(cell, left + wide * column, y, wide, high))
    return "\n".join([*lines, "</g></svg>"]) + "\n"


def _short(client: str) -> str:
    return client.replace("python-official", "python-off.")


def _square(cell: CellPart, x: int, y: int, wide: int, high: int) -> str:
    words = f"{cell.failures} fail" + ", jobs lost" * cell.lost if cell.failures else cell.state
    colour = _COLOURS.get(cell.state, "#e5e5e5")
    return (
        f'<rect x="{x + 1}" y="{y + 1}" width="{wide - 2}" height="{high - 2}" '
        f'fill="{colour}"/>'
        f'<text x="{x + wide / 2}" y="{y + 20}" text-anchor="middle">{words}</text>'
    )


def main() -> None:
    """Write the pages into the folder that the command line names, or else the pictures."""
    if len(sys.argv) == 2:
        write_pages(Path(sys.argv[1]))
        return
    PICTURES.mkdir(exist_ok=True)
    for name, svg in pictures().items():
        (PICTURES / name).write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
