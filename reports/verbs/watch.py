"""`watch`: read the queues of a live store every few seconds, show what is wrong, and end as a gate."""

from __future__ import annotations

from contextlib import closing

from rich.console import Console

from conformance.environment.prepare import announce
from conformance.pages.text import count, duration
from conformance.problems import EnvironmentProblem, Undecidable
from reports.watch.metrics import metrics_place
from reports.watch.options import WatchConfig
from reports.watch.screen import JsonLines, LiveTable, PlainLines, Screen
from reports.watch.session import WatchSession, paced
from reports.watch.target import watch_target


def watch_store(config: WatchConfig, text: str) -> int:
    """Watch a store until the time is over, or a finding ends it; returns the exit code. Raises Problems."""
    target = watch_target(text)
    target.prove()
    announce(f"watching {target.text} every {duration(config.interval_ms)}")
    session = WatchSession(target, config.queue, config.limits, config.reading, config.interval_ms)
    with (
        closing(session),
        metrics_place(config.prometheus) as metrics,
        closing(_screen(config, Console(highlight=False, soft_wrap=True))) as screen,
    ):

        def step() -> bool:
            moment = session.look()
            if moment.error and not session.looks and session.failures == 1:
                raise EnvironmentProblem(
                    f"Redis cannot be read: {moment.error}",
                    hint="the permissions that a user needs are in docs/how-to/watch-queues.md",
                )
            # Published first: the terminal may be gone.
            metrics.publish(session, moment)
            screen.show(moment)
            return not any(finding.kind in config.fail_on for finding in moment.findings)

        paced(
            step,
            every_s=config.interval_ms / 1000,
            until_s=None if config.length_ms is None else config.length_ms / 1000,
        )
    return _exit_code(config, session)


def _screen(config: WatchConfig, console: Console) -> Screen:
    if config.json:
        return JsonLines(console)
    return LiveTable(console) if console.is_terminal else PlainLines(console)


def _exit_code(config: WatchConfig, session: WatchSession) -> int:
    """1 for a finding that counts, else 0. Raises Undecidable if too little was seen to say that nothing is wrong."""
    counting = {kind: number for kind, number in session.seen.items() if not config.fail_on or kind in config.fail_on}
    if counting:
        announce(f"found: {', '.join(f'{kind} ({number})' for kind, number in counting.items())}")
        return 1
    if session.failures >= session.looks:
        raise Undecidable(
            f"Redis answered {session.looks} of {count(session.looks + session.failures, 'look')}",
            hint="check the address and the network, and watch again",
        )
    if not session.has_queues:
        raise Undecidable("there was no queue, so nothing was watched", hint="check the prefix after `#`, and --queue")
    announce(f"nothing found in {count(session.looks, 'look')}")
    return 0
