"""The highest rate of each client: jobs/s at which the p99 latency of a job stays under a bound.

    python -m benchmarks.highest_rates [--bound 'p99<50ms'] [--trial 10s] [--out /tmp/rates] [--keep]

`load --find-rate` with Node, the reference and the official Python client, each adding and processing the jobs,
with the commands that users type. `--keep` writes the data of the sample (`website/samples/find-rate.json`). Exit
code 1: a search finds no rate. It needs a quiet machine: on a busy one the searches end when the harness is late. An
interrupted run continues with the next client if it gets the same --out.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.headline import Step, carried_out
from reports.load.rate_search import RateSearch, search_sentence
from website.samples import RATES, RatesSample, write_sample

CLIENTS: Final = ("node", "reference", "python-official")
DONE: Final = "step.json"
"""The file that marks a finished search, next to its pages."""


def main() -> None:
    """Search for each client, print the rates, and keep the pages."""
    options = _options()
    steps = {client: _search(options, client) for client in CLIENTS}
    broken = [client for client, step in steps.items() if step.code not in {0, 1}]
    if broken:
        sys.exit(f"no search could be made with {', '.join(broken)}: see above")
    searches = {client: _found(options.out, client) for client in CLIENTS}
    for client, search in searches.items():
        print(f"{client}: {search_sentence(search)}")
    if options.keep:
        commands = {client: step.measured for client, step in steps.items()}
        cores = os.cpu_count() or 1
        sample = RatesSample(
            bound=options.bound, trial=options.trial, cores=cores, commands=commands, searches=searches
        )
        write_sample(RATES, sample)
    sys.exit(int(not all(search.kept for search in searches.values())))


def _search(options: argparse.Namespace, client: str) -> Step:
    """Search for one client, unless an earlier run into the same folder has; a search takes a quarter of an hour."""
    done: Path = options.out / client / DONE
    if done.is_file():
        return msgspec.json.decode(done.read_bytes(), type=Step)
    words = ["load", "--find-rate", options.bound, "--trial", options.trial, "--producer", client, "--worker", client]
    step = carried_out([*words, "--out", str(options.out / client)])
    if step.code in {0, 1}:
        done.write_bytes(msgspec.json.encode(step))
    return step


def _found(out: Path, client: str) -> RateSearch:
    return msgspec.json.decode((out / client / "find-rate.json").read_bytes(), type=RateSearch)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bound", default="p99<50ms", help="the threshold that must hold (%(default)s)")
    parser.add_argument("--trial", default="10s", help="length of each load (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("/tmp/rates"), help="folder for everything (%(default)s)")  # noqa: S108
    parser.add_argument("--keep", action="store_true", help="write the data of the sample")
    return parser.parse_args()


if __name__ == "__main__":
    main()
