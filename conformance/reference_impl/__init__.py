"""A complete BullMQ client for Python that leaves Redis as Node.js BullMQ 5.62.0 does. `docs/reference.md` shows it.

**Jobs are processed at least once.** A worker that dies, is closed before its jobs end, or cannot renew a lock for
`lockDuration` ms loses its jobs to the stalled check of another worker, which runs them again; the first run may
even still go on, and finish its work outside of Redis before it learns that the lock is gone. Only the *finishing* of
a job is exclusive: the lock token sees to that.

**Processors must therefore be idempotent**: running a job twice must have the effect of running it once. Ways to it:

- a key: derive it from `job.id` (or from the data) and let the receiver refuse it the second time, as payment services
  do with idempotency keys;
- a constraint: write into a table whose unique index contains that key, in the transaction that does the work;
- a token: note what is done where it is done, and look there first, as `updateData` lets a job note its own steps;
- a state: set values instead of changing them (`status = 'sent'`, never `count = count + 1`).

**Commands are sent at most once.** A call of a Queue that loses its connection raises, and nobody knows whether Redis
has acted; adding again is safe with a `jobId`, because an id that exists is not added twice. Only the loops of workers
and event readers go on by themselves.

Large data belongs into object storage, and its address into the job: Redis keeps every job in memory.
"""
