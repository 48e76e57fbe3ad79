"""`check` and `history`: check one store, or the history of a chaos run."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from rich.console import Console

from conformance.environment.prepare import announce
from conformance.problems import Undecidable
from reports.check.looks import LooksAgain, look_again
from reports.check.server_facts import store_facts
from reports.check.store_check import CheckedSnapshot, check_snapshot
from reports.check.summary import summarise_checks
from reports.distribution import Distribution, InProcesses, InThreads, kept_processes
from reports.history import check_jobs, has_jobs, header_of, result_of
from reports.options import CheckConfig, HistoryConfig
from reports.progress import shown
from reports.snapshot.folders import folder_at
from reports.snapshot.format import open_snapshot_folder
from reports.snapshot.plan import RedisSource, keys_of
from reports.snapshot.reading import others_use
from reports.store_address import store_addresses
from reports.store_pages import print_checks, print_history, write_check_reports, write_history_reports
from reports.verbs.places import place_of
from reports.verbs.store_readings import demand_content, output_folder, store_readings

FEWEST_KEYS_TO_THROTTLE = 5000
"""Fewer are read and checked in less time than a process takes to start."""


def check_store(config: CheckConfig, store: str) -> int:
    """Check one store, print the outcome, write reports; returns the exit code. Raises Problems."""
    (address,) = store_addresses(store, queue=config.queue, keys_per_s=config.max_rate)
    address.prove()
    source = address.source
    live = source if isinstance(source, RedisSource) else None
    out = None if config.out is None else folder_at(config.out)
    with output_folder(out) as reports:
        with ExitStack() as opened:
            place = opened.enter_context(place_of(config)) or _place_beside_others(live)
            (kept,) = opened.enter_context(store_readings([address], ("snapshot",), reports.out, place))
            facts = None if live is None else store_facts(live)
            found = check_snapshot(kept, config.queue, place, shown, facts)
            again = None if live is None else _looks_again(live, found, config, place)
            summary = summarise_checks(kept.name, kept.manifest, found.tally, again)
            if not summary.total:
                demand_content(config.queue, kept.manifest)
        # Written first: the terminal may be gone, or refuse the text.
        written = write_check_reports(reports.local, summary) if out is not None else ()
        print_checks(summary, Console())
        for name in reports.addresses_of(written):
            announce(name)
    return 1 if summary.damages else 0


def _place_beside_others(source: RedisSource | None) -> Distribution | None:
    """A throttled process where other clients use a live store; None where they do not, or need not be spared."""
    if source is None or source.keys_per_s is not None or keys_of(source.address) < FEWEST_KEYS_TO_THROTTLE:
        return None
    if not others_use(source):
        return None
    announce("other clients are using this Redis: check works for 5 % of the time (--max-rate 0: at full speed)")
    return InProcesses(last=True, throttled=True)


def _looks_again(
    source: RedisSource, found: CheckedSnapshot, config: CheckConfig, place: Distribution | None
) -> LooksAgain:
    act = partial(look_again, source, settle_ms=config.settle_ms)
    (outcome,) = (place or InThreads()).run(act, [found])
    return outcome


def check_history(config: HistoryConfig, history: Path) -> int:
    """Check a history job by job, print the outcome, write reports; returns the exit code. Raises Problems."""
    snapshot, out = (None if named is None else folder_at(named) for named in (config.snapshot, config.out))
    # Both files are read first, so that a wrong name is reported at once.
    header_of(history)
    if not has_jobs(history):
        raise Undecidable(f"no job ran in {history}, so nothing can be checked", hint="record a longer chaos run")
    kept = None if snapshot is None else open_snapshot_folder(snapshot)
    with output_folder(out) as reports:
        with kept_processes():
            result = result_of(check_jobs(history, kept, watch=shown), str(history), str(snapshot or ""))
        written = write_history_reports(reports.local, result) if out is not None else ()
        print_history(result, Console())
        for address in reports.addresses_of(written):
            announce(address)
    return 1 if result.total else 0
