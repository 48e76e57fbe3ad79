"""Libraries that accept senseless jobs, count or log in their own way, or try again too soon, too late or too often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.reference_impl import journal, queue_base
from conformance.reference_impl.driver.observed import Observed
from conformance.reference_impl.errors import InvalidArgument
from conformance.reference_impl.jobs import options
from conformance.reference_impl.metrics import PrometheusCollector
from conformance.reference_impl.policy import BackoffPolicy, ReconnectPolicy


@mutant("library.accepts-negatives", kills=("library.validation.negative-numbers",))
def accepts_negatives(damage: Damage) -> None:
    """Priority, delay and attempts of a job are not checked."""
    _forget(damage, options, "_check_number")


@mutant("library.accepts-no-attempt", kills=("library.validation.negative-numbers",))
def accepts_no_attempt(damage: Damage) -> None:
    """A job with 0 attempts is accepted."""

    def lenient(check: Function) -> Function:
        def check_number(values: Mapping[str, Any], field: str, constraint: str, *, least: float) -> None:
            check(values, field, constraint, least=min(least, 0))

        return check_number

    damage.around(options, "_check_number", lenient)


@mutant("library.accepts-any-backoff", kills=("library.validation.backoff-type",))
def accepts_any_backoff(damage: Damage) -> None:
    """The type of a back-off is not checked."""
    _forget(damage, options, "_check_backoff")


@mutant("library.keeps-all-quietly", kills=("library.validation.keep-many",))
def keeps_all_quietly(damage: Damage) -> None:
    """No number of jobs to keep is warned about."""
    _forget(damage, options, "_warnings", ())


@mutant("library.accepts-any-size", kills=("library.validation.payload",))
def accepts_any_size(damage: Damage) -> None:
    """Data of any size is accepted."""
    _forget(damage, options, "check_payload")


@mutant("library.refuses-without-reason", kills=("library.validation.messages",))
def refuses_without_reason(damage: Damage) -> None:
    """A refusal says neither which option is wrong nor what is allowed."""

    def curt(require: Function) -> Function:
        def check(*arguments: Any, **settings: Any) -> None:
            try:
                require(*arguments, **settings)
            except InvalidArgument as refusal:
                damage.witness.note()
                raise InvalidArgument("invalid options") from refusal

        return check

    damage.around(options, "_require", curt)


@mutant("library.waits-for-hours", kills=("library.backoff-cap",))
def waits_for_hours(damage: Damage) -> None:
    """The delay of a retry has no maximum."""
    damage.replace(BackoffPolicy, "limited", lambda _policy, delay_ms, *_rest: delay_ms)


@mutant("library.other-metric-name", kills=("library.metrics.jobs",))
def other_metric_name(damage: Damage) -> None:
    """Finished attempts are counted under another name."""
    _renamed(damage, "bullmq_jobs_processed_total", "bullmq_jobs_total")


@mutant("library.stalls-uncounted", kills=("library.metrics.jobs",))
def stalls_uncounted(damage: Damage) -> None:
    """Jobs that stalled are not counted."""
    _forget(damage, PrometheusCollector, "job_stalled")


@mutant("library.nameless-workers", kills=("library.metrics.workers",))
def nameless_workers(damage: Damage) -> None:
    """Workers are counted without their ids."""
    _renamed(damage, "worker_id=", "worker=")


@mutant("library.attempts-uncounted", kills=("library.metrics.connection",))
def attempts_uncounted(damage: Damage) -> None:
    """Attempts to reconnect are not counted."""
    _forget(damage, PrometheusCollector, "reconnect_attempted")


@mutant("library.other-log-field", kills=("library.log.events", "library.log.connection"))
def other_log_field(damage: Damage) -> None:
    """Lines have the id of a job under another name."""
    _logs(damage, lambda values: {{"jobId": "job"}.get(name, name): value for name, value in values.items()})


@mutant("library.log-without-attempts", kills=("library.log.connection",))
def log_without_attempts(damage: Damage) -> None:
    """The line about a restored connection does not say how many attempts it took."""
    _logs(damage, lambda values: {name: value for name, value in values.items() if name != "attempt"})


@mutant("library.levels-mixed-up", kills=("library.log.interface",))
def levels_mixed_up(damage: Damage) -> None:
    """Renewals are logged like jobs, at level INFO."""

    def louder(_quiet: Function) -> Function:
        def debug(line: journal.Journal, message: str, **values: Any) -> None:
            damage.witness.note()
            line.info(message, **values)

        return debug

    damage.around(journal.Journal, "debug", louder)


@mutant("library.own-worker-id-ignored", kills=("library.worker-id",))
def own_worker_id_ignored(damage: Damage) -> None:
    """The id that the user gave is ignored."""
    damage.around(queue_base, "worker_id_of", lambda name: lambda _opts: name({}))


@mutant("library.reconnects-at-once", kills=("library.reconnect.schedule",))
def reconnects_at_once(damage: Damage) -> None:
    """The pause before an attempt to reconnect does not grow."""
    damage.replace(ReconnectPolicy, "delay_s", lambda policy, *_rest: policy.first_s)


@mutant("library.skipped-checks-uncounted", kills=("library.stalled.no-overlap",))
def skipped_checks_uncounted(damage: Damage) -> None:
    """Stalled checks that were left out are not counted."""
    _forget(damage, PrometheusCollector, "stalled_check_skipped")


def _forget(damage: Damage, owner: Any, name: str, result: Any = None) -> None:
    """Let a function do nothing, and return this result."""

    def forgetful(*_arguments: Any, **_settings: Any) -> Any:
        damage.witness.note()
        return result

    damage.around(owner, name, lambda _: forgetful)


def _renamed(damage: Damage, text: str, other: str) -> None:
    """Write a part of the metrics' text differently."""
    damage.around(Observed, "metrics", lambda metrics: lambda observed: metrics(observed).replace(text, other))


def _logs(damage: Damage, edit: Function) -> None:
    """Change the values of all lines."""

    def edited(write: Function) -> Function:
        return lambda observed, level, message, values: write(observed, level, message, edit(values))

    damage.around(Observed, "write", edited)
