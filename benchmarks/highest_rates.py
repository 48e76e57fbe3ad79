"""The highest rate of each client: jobs/s at which the way of a job, p99, stays under a bound.

    python -m benchmarks.highest_rates [--bound 'p99<50ms'] [--trial 10s] [--out /tmp/rates] [--keep docs/sample-rates]

`load --find-rate` with Node, the reference and the official Python client, each adding the jobs and working them off,
with the very commands that users type. `--keep` takes over the pages and writes one about all of them. Ends with 1
where a search finds no rate. It needs a quiet machine: on a busy one the searches end where the harness is late. Broken
off, it goes on with the next client when it is called with the same --out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.headline import Step, carried_out, took
from reports.load.rate_search import RateSearch, said_of_search

CLIENTS: Final = ("node", "reference", "python-official")
DONE: Final = "step.json"
"""Left beside the pages of a search that came to its end."""

PAGES: Final = ("find-rate.html", "find-rate.json")


def main() -> None:
    """Search for each client, print what was found, and keep the pages."""
    options = _options()
    steps = {client: _search(options, client) for client in CLIENTS}
    broken = [client for client, step in steps.items() if step.code not in {0, 1}]
    if broken:
        sys.exit(f"no search could be made with {', '.join(broken)}: see above")
    searches = {client: _found(options.out, client) for client in CLIENTS}
    for client, search in searches.items():
        print(f"{client}: {said_of_search(search)}")
    if options.keep is not None:
        _keep(options.out, options.keep)
        (options.keep / "README.md").write_text(page(options.bound, options.trial, steps, searches), "utf-8")
    sys.exit(int(not all(search.kept for search in searches.values())))


def _search(options: argparse.Namespace, client: str) -> Step:
    """Search for one client, unless an earlier run into the same folder has: all of them take a quarter of an hour."""
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


def _keep(out: Path, keep: Path) -> None:
    """Take over the pages of all searches, and those of the trials that they lead to."""
    for client in CLIENTS:
        for path in [out / client / name for name in PAGES] + sorted((out / client).glob("rate-*/load.html")):
            place = keep / path.relative_to(out)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)


def page(bound: str, trial: str, steps: Mapping[str, Step], searches: Mapping[str, RateSearch]) -> str:
    """The page about all searches, from what they have left."""
    commands = "\n".join(step.command for step in steps.values())
    rows = "\n".join(
        f"| [{client}]({client}/find-rate.html) | {said_of_search(searches[client])} | {took(steps[client])} |"
        for client in steps
    )
    return f"""# The highest rate of three clients

Real output of `python -m benchmarks.highest_rates` on {os.cpu_count()} cores with Redis on the same machine: each
client adds the jobs and works them off, in loads of {trial}, and the rate is looked for at which `{bound}` still holds
for the way of a job from the instant for which it was scheduled to its end. Known to a tenth.

```text
{commands}
```

| client | found | whole command | load of the machine |
|---|---|---|---|
{rows}

The reference adds its jobs inside Spark's executors, the others behind their drivers, which takes time of the same two
cores: the rates are those of whole loads as users run them, and no comparison of the clients alone (that is
`bullmq-conformance bench`).

The load of the machine is what `uptime` showed for one minute before and after; the run itself makes 2 to 3 of it on
two cores. With more, the rates say nothing about the clients.
"""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bound", default="p99<50ms", help="the threshold that must hold (%(default)s)")
    parser.add_argument("--trial", default="10s", help="length of each load (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("/tmp/rates"), help="folder for everything (%(default)s)")  # noqa: S108
    parser.add_argument("--keep", type=Path, default=None, help="folder that takes over the pages")
    return parser.parse_args()


if __name__ == "__main__":
    main()
