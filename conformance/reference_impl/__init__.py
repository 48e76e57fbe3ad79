"""A complete BullMQ client for Python that leaves Redis as Node.js BullMQ 5.62.0 does.

See `docs/reference/reference-client.md`.

**Jobs are processed at least once.** A worker that dies, is closed before its jobs end, or cannot renew a lock for
`lockDuration` ms loses its jobs to the stalled check of another worker, which runs them again; the first run
may even continue, and finish its work outside of Redis before it notices that the lock is gone. Only *finishing* a job
is exclusive: the script checks the lock token.

**Processors must therefore be idempotent**: running a job twice must have the effect of running it once. Options:

- a key: derive it from `job.id` (or from the data) and let the receiver refuse it the second time, as payment services
  do with idempotency keys;
- a constraint: write into a table whose unique index contains that key, in the transaction that does the work;
- a token: record each step where it is done and check that record first; a job can record its steps with `updateData`;
- a state: set values instead of changing them (`status = 'sent'`, never `count = count + 1`).

**Commands are sent at most once.** A call of a Queue that loses its connection raises, and it is unknown whether Redis
ran the command; adding again is safe with a `jobId`, because an existing id is not added twice. Only the loops of
workers and event readers retry on their own.

Put large data into object storage and its address into the job, because Redis keeps every job in memory.
"""

from conformance.reference_impl.clock import AdjustableClock, Clock, SystemClock
from conformance.reference_impl.connection.address import Address
from conformance.reference_impl.connection.connection import CrossSlot
from conformance.reference_impl.connection.tls import Tls
from conformance.reference_impl.emitter import EventEmitter
from conformance.reference_impl.errors import (
    RATE_LIMIT_MESSAGE,
    BullMQError,
    Closed,
    DelayedError,
    ErrorCategory,
    ErrorPolicy,
    FailedChildren,
    InvalidArgument,
    JobFailed,
    JobLocked,
    JobTimeout,
    PartlyStored,
    PermanentError,
    RateLimitError,
    SandboxedError,
    ScriptError,
    TransientError,
    UnreadableJob,
    UnrecoverableError,
    WaitingChildrenError,
    WaitingError,
    WaitTimeout,
    classify,
)
from conformance.reference_impl.flow_producer import FlowProducer, JobNode
from conformance.reference_impl.job_scheduler import JobScheduler
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.journal import JsonFormatter
from conformance.reference_impl.js_values import RawJson
from conformance.reference_impl.metrics import MetricsCollector, PrometheusCollector, measure_lengths
from conformance.reference_impl.option_types import (
    BulkJob,
    ClientOptions,
    FlowJob,
    FlowOptions,
    JobsOptions,
    JobTemplate,
    QueueEvent,
    QueueEventsOptions,
    QueueOptions,
    RepeatOptions,
    WorkerEvent,
    WorkerOptions,
)
from conformance.reference_impl.policy import (
    SPECIFIED,
    SPECIFIED_JOB_OPTIONS,
    BackoffPolicy,
    Policy,
    ReconnectPolicy,
)
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_events import QueueEvents, QueueEventsProducer
from conformance.reference_impl.recurrence import SchedulerRecord, SchedulerTemplate
from conformance.reference_impl.telemetry.bullmq_otel import BullMQOtel
from conformance.reference_impl.telemetry.interface import Telemetry
from conformance.reference_impl.workers.job_runner import Processor
from conformance.reference_impl.workers.worker import Worker

__all__ = [
    "RATE_LIMIT_MESSAGE",
    "SPECIFIED",
    "SPECIFIED_JOB_OPTIONS",
    "Address",
    "AdjustableClock",
    "BackoffPolicy",
    "BulkJob",
    "BullMQError",
    "BullMQOtel",
    "ClientOptions",
    "Clock",
    "Closed",
    "CrossSlot",
    "DelayedError",
    "ErrorCategory",
    "ErrorPolicy",
    "EventEmitter",
    "FailedChildren",
    "FlowJob",
    "FlowOptions",
    "FlowProducer",
    "InvalidArgument",
    "Job",
    "JobFailed",
    "JobLocked",
    "JobNode",
    "JobScheduler",
    "JobTemplate",
    "JobTimeout",
    "JobsOptions",
    "JsonFormatter",
    "MetricsCollector",
    "PartlyStored",
    "PermanentError",
    "Policy",
    "Processor",
    "PrometheusCollector",
    "Queue",
    "QueueEvent",
    "QueueEvents",
    "QueueEventsOptions",
    "QueueEventsProducer",
    "QueueOptions",
    "RateLimitError",
    "RawJson",
    "ReconnectPolicy",
    "RepeatOptions",
    "SandboxedError",
    "SchedulerRecord",
    "SchedulerTemplate",
    "ScriptError",
    "SystemClock",
    "Telemetry",
    "Tls",
    "TransientError",
    "UnreadableJob",
    "UnrecoverableError",
    "WaitTimeout",
    "WaitingChildrenError",
    "WaitingError",
    "Worker",
    "WorkerEvent",
    "WorkerOptions",
    "classify",
    "measure_lengths",
]
