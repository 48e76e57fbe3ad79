"""Adding jobs: where they go, under which id, with which options, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.participants.expect import equal
from conformance.participants.marks import also_in_core, scenario
from conformance.participants.participant import Participant


@scenario("add.plain.waits", "add.id.counter", tier="smoke")
def test_a_plain_job_enters_wait_at_the_left(client: Participant) -> None:
    """Plain jobs get the ids 1, 2, ... and the oldest is at the right end of `wait`."""
    queue = client.queue()
    equal([queue.add("first", {"n": 1}), queue.add("second", {"n": 2})], ["1", "2"], "ids count from 1")
    equal(queue.redis.elements("wait"), ["2", "1"], "the newest job is at the left end of `wait`")


@scenario("add.id.counter")
def test_the_counter_also_counts_jobs_with_ids_of_their_own(client: Participant) -> None:
    """An add with a custom id, or of a duplicate, takes a number too."""
    queue = client.queue()
    queue.add("own", {}, jobId="mine")
    queue.add("again", {}, jobId="mine")
    equal(queue.add("generated"), "3", "the third add has the number 3")


LARGE = [300_000_000, 2_147_483_648, 1_234_567_890_123]
"""The first is `3e+8` where Redis 7.2 or newer writes a number of Lua as text."""
PLACES: dict[str, dict[str, Any]] = {"wait": {}, "prioritized": {"priority": 1}, "delayed": {"delay": 60_000}}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", LARGE)
@scenario("lifecycle.one-state", "add.id.counter", cases={"300000000-*": ">=5.80.3"})
def test_a_large_number_is_an_id_like_any_other(client: Participant, number: int, place: str) -> None:
    """A job is in its container under the same text as its hash: all digits, and no exponent."""
    queue, worker = client.queue(), client.worker()
    queue.redis.set_string("id", str(number - 1))
    job = queue.add("job", {}, **PLACES[place])
    equal(job, str(number), "the id is the number in full", where="identity.job-ids")
    ids = queue.redis.elements(place) if place == "wait" else queue.redis.members(place)
    equal(ids, [job], f"the job is in `{place}` under its id", where="membership.ghost")
    if place == "delayed":
        queue.promote(job)
    equal(worker.claim_one().id, job, "it is claimed under its id")
    worker.complete(job)
    equal(queue.remove(job), 1, "it is removed under its id")


@scenario("add.lifo")
def test_a_lifo_job_enters_wait_at_the_right(client: Participant) -> None:
    """`lifo` puts a job where it runs next."""
    queue = client.queue()
    for name, lifo in (("a", False), ("b", True), ("c", False), ("d", True)):
        queue.add(name, {}, lifo=lifo)
    equal(queue.redis.elements("wait"), ["3", "1", "2", "4"], "lifo jobs are at the right end of `wait`")


@scenario("add.delayed.set", "job.hash.delay", tier="smoke")
def test_a_delayed_job_is_in_delayed_only(client: Participant) -> None:
    """A delay keeps a job out of `wait`."""
    queue = client.queue()
    job = queue.add("later", {}, delay=60_000)
    equal(queue.redis.state(job), ["delayed"], "the job is in `delayed` and nowhere else")
    equal(queue.redis.field(job, "delay"), "60000", "the hash keeps the delay in ms", where="job.delay")


@scenario("add.delayed.negative")
def test_a_negative_delay_waits_at_once(client: Participant) -> None:
    """Only a delay above 0 delays."""
    queue = client.queue()
    job = queue.add("now", {}, delay=-5)
    equal(queue.redis.state(job), ["wait"], "the job waits at once")


@scenario("add.prioritized.set", "job.hash.priority", tier="smoke")
def test_a_prioritized_job_is_in_prioritized_only(client: Participant) -> None:
    """A priority keeps a job out of `wait`."""
    queue = client.queue()
    job = queue.add("urgent", {}, priority=7)
    equal(queue.redis.state(job), ["prioritized"], "the job is in `prioritized` and nowhere else")


@scenario("add.priority.zero")
def test_priority_zero_is_no_priority(client: Participant) -> None:
    """A job of priority 0 waits like any other."""
    queue = client.queue()
    equal(queue.redis.state(queue.add("plain", {}, priority=0)), ["wait"], "the job is in `wait`")


@scenario("add.prioritized.set")
def test_lifo_means_nothing_to_a_prioritized_job(client: Participant) -> None:
    """The order inside a priority is first in, first out."""
    queue = client.queue()
    queue.add("a", {}, priority=3)
    queue.add("b", {}, priority=3, lifo=True)
    equal(queue.redis.members("prioritized"), ["1", "2"], "the older job is first")


def _refused(client: Participant, opts: dict[str, Any]) -> None:
    queue = client.queue()
    queue.add("before")
    with client.refuses("invalid-argument", f"options {opts} are refused"):
        queue.add("refused", {}, **opts)
    equal(queue.add("after"), "2", "the refused job took no number and left nothing behind")


@scenario("add.priority.limit", bullmq="<5.80.1")
def test_a_priority_above_the_limit_is_refused(client: Participant) -> None:
    """2097152 is the highest priority."""
    client.queue("limit").add("highest", {}, priority=2_097_152)
    _refused(client, {"priority": 2_097_153})


@scenario("add.priority.limit", bullmq=">=5.80.1")
def test_a_priority_above_the_lower_limit_is_refused(client: Participant) -> None:
    """2097151 is the highest priority."""
    client.queue("limit").add("highest", {}, priority=2_097_151)
    _refused(client, {"priority": 2_097_152})


@scenario("add.priority.integer")
def test_a_priority_with_a_fraction_is_refused(client: Participant) -> None:
    """Priorities are integers."""
    _refused(client, {"priority": 1.5})


@pytest.mark.parametrize(
    "opts",
    [
        {"backoff": {"jitter": -0.5, "type": "fixed", "delay": 10}, "attempts": 2},
        {"backoff": {"jitter": 1.5, "type": "exponential", "delay": 10}, "attempts": 2},
        {"failParentOnFailure": True, "removeDependencyOnFailure": True},
        {"continueParentOnFailure": True, "ignoreDependencyOnFailure": True},
        {"failParentOnFailure": True, "ignoreDependencyOnFailure": True},
        {"removeDependencyOnFailure": True, "ignoreDependencyOnFailure": True},
        {"backoff": {"jitter": 1.5, "type": "fixed", "delay": 10}, "priority": 3},
        {"jobId": "0:x:y", "backoff": {"type": "fixed", "delay": 10}, "priority": 3},
    ],
)
@scenario("add.options-refused")
def test_options_that_make_no_sense_are_refused(client: Participant, opts: dict[str, Any]) -> None:
    """A jitter outside 0 to 1, an id that looks like a marker, and two options for a failed child are refused."""
    _refused(client, opts)


@pytest.mark.parametrize("job_id", ["12", "-5"])
@scenario("add.custom-id.integer-refused")
def test_an_integer_id_is_refused(client: Participant, job_id: str) -> None:
    """Integers are for the counter."""
    _refused(client, {"jobId": job_id})


@pytest.mark.parametrize("job_id", ["a:b", "a:b:c:d"])
@scenario("add.custom-id.colon-refused")
def test_an_id_with_a_colon_is_refused(client: Participant, job_id: str) -> None:
    """Colons separate the parts of keys."""
    _refused(client, {"jobId": job_id})


@pytest.mark.parametrize("job_id", ["mine", "012", "1.0", "ö-日本-🎉", "with space", "a:b:c"])
@scenario("add.custom-id")
def test_a_custom_id_is_kept_exactly(client: Participant, job_id: str) -> None:
    """The id that the user gave is the id in Redis and in the answer."""
    queue = client.queue()
    equal(queue.add("named", {"n": 1}, jobId=job_id), job_id, "the answer is the id that was given")
    equal(queue.redis.elements("wait"), [job_id], "`wait` holds the id that was given")
    equal(queue.redis.type(job_id), "hash", "the job's hash is under the id that was given")


@scenario("add.duplicate.ignored", tier="smoke")
def test_a_duplicate_changes_nothing(client: Participant) -> None:
    """The second add of an id leaves the first job as it is."""
    queue = client.queue()
    queue.add("first", {"n": 1}, jobId="mine")
    queue.add("other", {"n": 0})
    equal(queue.add("second", {"n": 2}, jobId="mine", priority=3), "mine", "the answer is the id")
    equal(queue.redis.field("mine", "name"), "first", "the stored job is the first one")
    equal(queue.redis.elements("wait"), ["2", "mine"], "the job keeps its place")


@scenario("add.bulk.order")
def test_bulk_keeps_the_order(client: Participant) -> None:
    """A bulk is the same as the single adds in this order."""
    queue = client.queue()
    ids = queue.add_bulk(
        ("a", {"n": 1}, {}),
        ("b", {"n": 2}, {"delay": 5000}),
        ("c", {"n": 3}, {"priority": 2}),
        ("d", {"n": 4}, {"jobId": "named"}),
        ("e", {"n": 5}, {"lifo": True}),
    )
    equal(ids, ["1", "2", "3", "named", "5"], "ids come in the order of the jobs")
    equal(queue.redis.elements("wait"), ["named", "1", "5"], "plain jobs are in `wait` in order")


@scenario("add.bulk.all-or-nothing-validation")
def test_a_bulk_with_one_invalid_job_adds_none(client: Participant) -> None:
    """Validation comes before the first write."""
    queue = client.queue()
    with client.refuses("invalid-argument", "a bulk with an invalid job is refused"):
        queue.add_bulk(("good", {}, {}), ("bad", {}, {"priority": 1.5}))
    equal(queue.redis.elements("wait"), [], "no job was added")


@scenario("add.size-limit")
def test_size_limit_counts_utf8_bytes(client: Participant) -> None:
    """`sizeLimit` counts the bytes of the JSON text, not its characters."""
    queue = client.queue()
    queue.add("fits", raw='"éé"', sizeLimit=6)
    with client.refuses("invalid-argument", "seven bytes do not fit into six"):
        queue.add("too large", raw='"ééa"', sizeLimit=6)
    equal(queue.redis.elements("wait"), ["1"], "only the job that fits was added")


@scenario("add.default-options")
def test_default_job_options_apply(client: Participant) -> None:
    """The queue's `defaultJobOptions` apply where a job gives no option."""
    queue = client.queue(defaultJobOptions={"attempts": 5, "delay": 1000, "removeOnComplete": True})
    queue.add("defaults")
    queue.add("own", {}, delay=0, attempts=2)
    equal(queue.redis.state("1"), ["delayed"], "the default delay applies")
    equal(queue.redis.state("2"), ["wait"], "the job's own delay wins")


@pytest.mark.parametrize("bulk", [False, True], ids=["alone", "bulk"])
@scenario("add.default-options")
def test_an_id_is_no_default(client: Participant, bulk: bool) -> None:
    """All jobs of a queue would be the same one."""
    queue = client.queue(defaultJobOptions={"jobId": "every"})
    if bulk:
        queue.add_bulk(("first", {}, {}), ("second", {}, {}))
    else:
        queue.add("first")
        queue.add("second")
    equal(queue.redis.elements("wait"), ["2", "1"], "each job has an id of its own, and waits")


@scenario("add.default-options")
def test_default_job_options_apply_to_a_bulk(client: Participant) -> None:
    """The queue's `defaultJobOptions` apply to the jobs of a bulk that give no option."""
    queue = client.queue(defaultJobOptions={"attempts": 5, "lifo": True})
    queue.add_bulk(("own", {}, {"lifo": False}), ("defaults", {}, {}))
    equal(queue.redis.elements("wait"), ["1", "2"], "the default applies, and the job's own option wins")


@scenario("add.custom-id.colon-refused")
def test_an_id_that_starts_like_a_legacy_marker_is_refused(client: Participant) -> None:
    """Workers drop ids that start with `0:`."""
    _refused(client, {"jobId": "0:x:y"})


@pytest.mark.parametrize(
    "opts",
    [
        {},
        {"attempts": 3},
        {"backoff": 100},
        {"backoff": {"type": "exponential", "delay": 250}},
        {"backoff": {"type": "fixed", "delay": 250, "jitter": 0.5}},
        {"removeOnComplete": True, "removeOnFail": False},
        {"removeOnComplete": 10, "removeOnFail": {"age": 3600, "count": 5}},
        {"stackTraceLimit": 2},
        {"timestamp": 1_600_000_000_000},
        {"unknownOption": {"deep": [1, "two", None, {"three": True}]}},
    ],
    ids=lambda opts: "-".join(opts) or "none",
)
@scenario("add.options.kept", "add.options.attempts-default", "add.options.backoff-number")
def test_options_are_stored_as_node_stores_them(client: Participant, opts: dict[str, Any]) -> None:
    """The field `opts` holds what the user gave, in BullMQ's form."""
    client.queue().add("with options", {"n": 1}, **opts)


SIZES: dict[str, list[Any]] = {
    "whole-numbers": [2**bits + beyond for bits in (7, 8, 15, 16, 31, 32, 45) for beyond in (-1, 0, 1)],
    "negative-numbers": [-1, -32, -33, *(-(2**bits) - beyond for bits in (7, 15, 31, 45) for beyond in (-1, 0, 1))],
    "broken-numbers": [0.5, -0.1, 1e300, 5e-324],
    "texts": ["x" * (length + beyond) for length in (31, 255, 65535) for beyond in (0, 1)],
    "bytes-of-texts": ["é" * 16, "🎉" * 8, "é" * 128],
    "lists": [[1] * (length + beyond) for length in (15, 65535) for beyond in (0, 1)],
    "maps": [{f"k{number}": number for number in range(length)} for length in (0, 1, 15, 16, 17)],
}
"""Values on both sides of every size for which MessagePack has a form of its own; Lua keeps 14 digits of a number."""


@pytest.mark.parametrize("kind", SIZES)
@scenario("add.options.kept", tier="full")
@also_in_core("bytes-of-texts | lists | negative-numbers | texts | whole-numbers")
def test_options_have_values_of_every_size(client: Participant, kind: str) -> None:
    """Options travel as MessagePack, which writes small and large values in different ways."""
    queue = client.queue()
    job = queue.add("large options", {}, values=SIZES[kind])
    equal(queue.redis.json(job, "opts")["values"], SIZES[kind], "every value arrives", where="job.opts")


@pytest.mark.parametrize(
    "opts",
    [
        {"keepLogs": 5},
        {"deduplication": {"id": "once"}},
        {"deduplication": {"id": "once", "ttl": 60_000}},
        {"failParentOnFailure": True},
        {"continueParentOnFailure": True},
        {"ignoreDependencyOnFailure": True},
        {"removeDependencyOnFailure": True},
    ],
    ids="-".join,
)
@scenario("add.options.short-names")
def test_options_with_short_names(client: Participant, opts: dict[str, Any]) -> None:
    """Long option names of the API are short in Redis."""
    client.queue().add("short", {"n": 1}, **opts)


@scenario("add.paused.parks", bullmq="<6")
def test_a_plain_job_is_parked_while_paused(client: Participant) -> None:
    """A paused queue collects its jobs in `paused`."""
    queue = client.queue()
    queue.pause()
    job = queue.add("parked")
    equal(queue.redis.state(job), ["paused"], "the job is in `paused`")
    equal(queue.redis.type("marker"), "none", "no marker wakes a worker")


@scenario("add.paused.parks", bullmq=">=6")
def test_a_plain_job_waits_while_paused(client: Participant) -> None:
    """A paused queue collects its jobs in `wait`, and hands out none."""
    queue, worker = client.queue(), client.worker()
    queue.pause()
    job = queue.add("held")
    equal(queue.redis.state(job), ["wait"], "the job is in `wait`")
    equal(queue.redis.type("marker"), "none", "no marker wakes a worker")
    equal(worker.claim(), None, "it is not handed out")


@pytest.mark.parametrize(
    "raw",
    ["{}", "null", "0", '"text"', "[1,2,3]", '{"a":{"b":[1,{"c":null}]}}', '{"emoji":"🎉","path":"a/b","quote":"\\""}'],
)
@scenario("job.hash.data", "job.hash.name", "job.hash.timestamp")
def test_data_is_stored_as_json(client: Participant, raw: str) -> None:
    """The field `data` is JSON and nothing else."""
    queue = client.queue()
    job = queue.add("name with / and é", raw=raw)
    equal(queue.redis.json(job, "data"), json.loads(raw), "the field `data` is JSON", where="job.data")


@scenario("job.hash.json-text")
def test_json_is_spelled_as_javascript_spells_it(client: Participant) -> None:
    """No escape that JSON.stringify would not write, and no space."""
    queue, wanted = client.queue(), '{"text":"é🎉 / \u2028","list":[1,0.000001,1e+21]}'
    job = queue.add("spelled", raw=wanted)
    equal(queue.redis.field(job, "data"), wanted, "the text is the one of JSON.stringify", where="job.data.text")


@scenario("add.options.kept")
def test_many_options_are_kept(client: Participant) -> None:
    """However many there are, in the order in which they are given."""
    queue = client.queue()
    extra: dict[str, Any] = {f"member {number}": {"n": number} for number in range(40)}
    queue.add("many", {}, **extra)
    stored = queue.redis.json("1", "opts")
    equal({name: stored.get(name) for name in extra}, extra, "every option is stored")
