"""The option `policy` of queues and workers: behaviour beyond that of Node.js.

By default, Redis looks as if Node.js had done the work. `SPECIFIED` has the stricter rules of the client's written
specification; each rule can also be set alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.reference_impl.errors import ErrorPolicy, InvalidArgument
from conformance.reference_impl.js_values import is_number, round_half_up

MEGABYTE: Final = 1024 * 1024
HOUR_MS: Final = 3_600_000

_LARGEST_EXPONENT: Final = 60
"""2 to this power exceeds every cap; a larger exponent could overflow a float."""


def _require(name: str, constraint: str, *, holds: bool) -> None:
    if not holds:
        raise InvalidArgument(f"{name} must be {constraint}", field=name, constraint=constraint)


@dataclass(frozen=True)
class BackoffPolicy:
    """Limits on the delay before a retry. Node.js has no cap, and its jitter is an option of the job.

    `cap_ms` holds for every delay; a job may have its own in `backoff.maxDelay`. `jitter` spreads exponential delays by
    this fraction in both directions, before the cap.
    """

    cap_ms: float = HOUR_MS
    jitter: float = 0.2

    def __post_init__(self) -> None:
        _require("cap_ms", "a number above 0", holds=self.cap_ms > 0)
        _require("jitter", "between 0 and 1", holds=0 <= self.jitter <= 1)

    def limited(
        self, delay_ms: float, backoff: Mapping[str, Any] | None, chance: Callable[[], float] = random.random
    ) -> float:
        """Return the limited delay in ms; 0 (retry at once) and -1 (fail) stay unchanged."""
        if delay_ms <= 0:
            return delay_ms
        chosen = backoff or {}
        own_cap = chosen.get("maxDelay")
        cap = own_cap if is_number(own_cap) and own_cap > 0 else self.cap_ms
        # A fixed delay was chosen exactly; exponential ones need spreading, or failed jobs return all at once.
        jitter = self.jitter if chosen.get("type") == "exponential" else 0
        return min(round_half_up(delay_ms * spread(jitter, chance)), cap)


@dataclass(frozen=True)
class ReconnectPolicy:
    """When a worker or event reader tries again to reach Redis. Nothing of this is visible in Redis.

    `first_s` and `longest_s` are in seconds. `max_attempts` 0 means no limit; else the worker or reader closes after
    that number of failed attempts in a row.
    """

    first_s: float = 0.1
    longest_s: float = 30.0
    factor: float = 2.0
    jitter: float = 0.2
    max_attempts: int = 0

    def __post_init__(self) -> None:
        _require("first_s", "a number above 0", holds=self.first_s > 0)
        _require("longest_s", "not less than first_s", holds=self.longest_s >= self.first_s)
        _require("factor", "1 or more", holds=self.factor >= 1)
        _require("jitter", "between 0 and 1", holds=0 <= self.jitter <= 1)
        _require("max_attempts", "0 or more", holds=self.max_attempts >= 0)

    def delay_s(self, failures: int, chance: Callable[[], float] = random.random) -> float:
        """Seconds to wait after this number of failures in a row (1 or more)."""
        grown = self.first_s * self.factor ** min(failures - 1, _LARGEST_EXPONENT)
        # With jitter, so that many workers do not reconnect in the same moment after an outage.
        return min(grown * spread(self.jitter, chance), self.longest_s)


@dataclass(frozen=True)
class Policy:
    """The option `policy`.

    `strict_options`: refuse job options that Node.js accepts but that make no sense (see `jobs.options`).
    `max_payload_bytes`: limit of a job's data and options together, as JSON. `keep_logs`: log rows of a job that has no
    `keepLogs` of its own. `backoff`: limits on retry delays. `errors`: categories of errors, and whether they
    decide about retries. `reconnect`: pauses while Redis is unreachable. `close_timeout_s`: how long Worker.close waits
    for running jobs; None: without limit, as in Node.js. `job_timeout_s`: a processor that runs longer is cancelled,
    and the attempt fails. `wait_unsent_s`: how long a command that could not be sent waits for a connection instead of
    raising at once; a command that was sent is never sent again.
    """

    strict_options: bool = False
    max_payload_bytes: int | None = None
    keep_logs: int | None = None
    backoff: BackoffPolicy | None = None
    errors: ErrorPolicy = field(default_factory=ErrorPolicy)
    reconnect: ReconnectPolicy = field(default_factory=ReconnectPolicy)
    close_timeout_s: float | None = 30.0
    job_timeout_s: float | None = None
    wait_unsent_s: float = 0.0

    def __post_init__(self) -> None:
        _require("job_timeout_s", "a number above 0", holds=self.job_timeout_s is None or self.job_timeout_s > 0)
        _require("wait_unsent_s", "0 or more", holds=self.wait_unsent_s >= 0)


DEFAULT: Final = Policy()
"""The behaviour of Node.js, as far as Redis shows it."""

SPECIFIED: Final = Policy(
    strict_options=True,
    max_payload_bytes=10 * MEGABYTE,
    keep_logs=1000,
    backoff=BackoffPolicy(),
    errors=ErrorPolicy(fail_permanent=True),
)
"""All rules of the written specification for a client library."""

SPECIFIED_JOB_OPTIONS: Final[Mapping[str, Any]] = {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}}
"""The specification's defaults of a job, for a queue's `defaultJobOptions`; Node's are one attempt and no back-off."""


def policy_of(opts: Mapping[str, Any]) -> Policy:
    """Return the policy among the options of a queue or worker. Raises InvalidArgument for anything else there."""
    chosen = opts.get("policy")
    if chosen is None:
        return DEFAULT
    if not isinstance(chosen, Policy):
        raise InvalidArgument(f"policy must be a Policy, not {type(chosen).__name__}")
    return chosen


def spread(jitter: float, chance: Callable[[], float]) -> float:
    """Return a factor in `[1 - jitter, 1 + jitter)`."""
    return 1 - jitter + 2 * jitter * chance()
