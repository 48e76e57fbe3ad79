"""Unusual texts, ids, bytes and JSON that are changed, refused or lost on their way."""

from __future__ import annotations

import json
import re
import struct
import unicodedata
from collections.abc import Callable
from typing import Any

from conformance.mutants.damage import Damage, Function
from conformance.mutants.registry import mutant
from conformance.protocol.keys import QueueKeys, is_queue_name
from conformance.reference_impl import js_values, packing
from conformance.reference_impl.connection import connection as connection_module
from conformance.reference_impl.connection import replies
from conformance.reference_impl.jobs import attempts as job_attempts
from conformance.reference_impl.jobs import options
from conformance.reference_impl.jobs.job import Job
from conformance.reference_impl.queue import Queue
from conformance.reference_impl.queue_base import QueueBase
from conformance.reference_impl.scripts.manage import ReadScripts

MEGABYTE = 1024 * 1024


# Texts.


@mutant("edge.null-ends-text", kills=("edge.texts",))
def null_ends_text(damage: Damage) -> None:
    """A text in JSON ends at its first null byte, as in C."""
    damage.around(js_values, "js_string", lambda healthy: lambda text: healthy(text.partition("\0")[0]))


@mutant("edge.reason-escaped", kills=("edge.texts.plain",))
def reason_escaped(damage: Damage) -> None:
    """A failure's message is stored as HTML would show it."""
    damage.around(job_attempts, "message_of", lambda healthy: lambda error: healthy(error).replace("<", "&lt;"))


@mutant("edge.id-composed", kills=("edge.texts.names",))
def id_composed(damage: Damage) -> None:
    """Ids are brought into Unicode's normal form C, so that two ids can become one."""

    def broken(normalize: Function) -> Function:
        def composed(given: Any) -> Any:
            normal = normalize(given)
            if isinstance(normal.get("jobId"), str):
                normal["jobId"] = unicodedata.normalize("NFC", normal["jobId"])
            return normal

        return composed

    damage.around(options, "normalize", broken)


@mutant("edge.scheduler-id-stripped", kills=("edge.texts.names",))
def scheduler_id_stripped(damage: Damage) -> None:
    """White space around the id of a job scheduler is cut off."""

    def broken(upsert: Function) -> Function:
        async def upsert_stripped(queue: Queue, scheduler: str, repeat: Any, template: Any = None) -> Any:
            return await upsert(queue, scheduler.strip(), repeat, template)

        return upsert_stripped

    damage.around(Queue, "upsertJobScheduler", broken)


# Options.


@mutant("edge.options-as-ascii", kills=("edge.options",))
def options_as_ascii(damage: Damage) -> None:
    """Texts of options are packed as ASCII."""
    damage.replace(packing, "_encoded", lambda text: text.encode("ascii", "replace"))


@mutant("edge.options-array-refused", kills=("edge.options.array",))
def options_array_refused(damage: Damage) -> None:
    """A job whose options are an array is not read."""

    def broken(decode: Function) -> Function:
        def decode_mapping(stored: Any) -> Any:
            if not isinstance(stored, dict):
                raise TypeError("options must be a mapping")
            return decode(stored)

        return decode_mapping

    damage.around(options, "decode", broken)


# Ids and names.


@mutant("edge.ids-stripped", kills=("edge.ids",))
def ids_stripped(damage: Damage) -> None:
    """White space around an id is cut off when a job's state is asked for."""

    def broken(get_state: Function) -> Function:
        async def get_stripped(scripts: ReadScripts, job_id: str) -> str:
            state: str = await get_state(scripts, job_id.strip())
            return state

        return get_stripped

    damage.around(ReadScripts, "get_state", broken)


@mutant("edge.unchecked-queue-name", kills=("edge.queue-names.refused", "edge.queue-names.colon"))
def unchecked_queue_name(damage: Damage) -> None:
    """A queue is opened under any name, so that its keys are read as those of another queue."""

    def broken(make: Function) -> Function:
        def make_unchecked(
            queue: QueueBase[Any], name: str, opts: Any = None, *, scripts: Any = None, clock: Any = None
        ) -> None:
            make(queue, name if is_queue_name(name) else "unchecked", opts, scripts=scripts, clock=clock)
            queue.name = name
            vars(queue)["_keys"] = QueueKeys(queue.keys.prefix, name)

        return make_unchecked

    damage.around(QueueBase, "__init__", broken)


@mutant("edge.worker-name-insisted-on", kills=("edge.worker-names",))
def worker_name_insisted_on(damage: Damage) -> None:
    """A worker does not start where Redis refuses its name for the connection."""
    damage.replace(connection_module, "_NAME", re.compile(".*", re.DOTALL))


# Bytes.


@mutant("edge.ill-formed-refused", kills=("edge.invalid-utf8", "edge.invalid-utf8.events"))
def ill_formed_refused(damage: Damage) -> None:
    """A reply that is not UTF-8 is an error."""
    damage.replace(replies, "texts", lambda reply: _texts(reply, "strict"))


@mutant("edge.ill-formed-dropped", kills=("edge.invalid-utf8.shown",))
def ill_formed_dropped(damage: Damage) -> None:
    """Bytes that are not UTF-8 are left out."""
    damage.replace(replies, "texts", lambda reply: _texts(reply, "ignore"))


def _texts(reply: Any, errors: str) -> list[str]:
    return [item.decode("utf-8", errors) if isinstance(item, bytes) else str(item) for item in reply]


@mutant("edge.large-result-lost", kills=("edge.large",))
def large_result_lost(damage: Damage) -> None:
    """A result above one megabyte is stored as null."""

    def broken(stringify: Function) -> Function:
        def stringify_small(value: Any) -> str:
            text: str = stringify(value)
            return text if len(text) <= MEGABYTE else "null"

        return stringify_small

    damage.around(js_values, "stringify", broken)


def _edit_data(damage: Damage, change: Callable[[Any], Any]) -> None:
    """Change the data of every job that is read."""

    def broken(read: Function) -> Function:
        def from_hash(fields: Any, job_id: str) -> Job:
            job: Job = read(fields, job_id)
            job.data = change(job.data)
            return job

        return from_hash

    damage.around(Job, "from_hash", broken)


@mutant("edge.empty-is-nothing", kills=("edge.json-round-trip",))
def empty_is_nothing(damage: Damage) -> None:
    """Data that is empty, zero or false is read as an empty object."""
    _edit_data(damage, lambda data: data or {})


@mutant("edge.first-key-wins", kills=("edge.json-round-trip",))
def first_key_wins(damage: Damage) -> None:
    """Of a key that is there twice the first value counts."""
    first_wins = json.JSONDecoder(object_pairs_hook=lambda pairs: dict(reversed(pairs)))

    def parse(text: str) -> Any:
        return first_wins.decode(text)

    damage.replace(js_values, "parse", parse)


@mutant("edge.lone-surrogates-replaced", kills=("edge.json-round-trip",))
def lone_surrogates_replaced(damage: Damage) -> None:
    """Half a surrogate pair is written as the replacement character."""
    damage.around(js_values, "js_string", lambda healthy: lambda text: healthy(js_values.well_formed(text)))


@mutant("edge.infinity-written", kills=("edge.numbers",))
def infinity_written(damage: Damage) -> None:
    """A number beyond all doubles is written as `Infinity`."""

    def broken(write: Function) -> Function:
        def js_number(value: float) -> str:
            text: str = write(value)
            return "Infinity" if text == "null" else text

        return js_number

    damage.around(js_values, "parse", lambda _parse: json.loads)
    damage.around(js_values, "_finite", lambda _refuse: lambda value: value)
    damage.around(js_values, "js_number", broken)


@mutant("edge.single-precision", kills=("edge.numbers",))
def single_precision(damage: Damage) -> None:
    """Fractions are kept with 24 bits only."""
    damage.around(js_values, "js_number", lambda healthy: lambda value: healthy(_rounded(value)))


def _rounded(value: float) -> float:
    if isinstance(value, int) or not 1e-3 < abs(value) < 1e3:
        return value
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


@mutant("edge.depth-limited", kills=("edge.nesting",))
def depth_limited(damage: Damage) -> None:
    """A result of more than a hundred levels is stored as null."""

    def broken(stringify: Function) -> Function:
        def stringify_flat(value: Any) -> str:
            text: str = stringify(value)
            return text if max(text.count("["), text.count("{")) <= 100 else "null"

        return stringify_flat

    damage.around(js_values, "stringify", broken)


@mutant("edge.lists-end-at-fifteen", kills=("add.options.kept",), by=("add/options_have_values_of_every_size",))
def lists_end_at_fifteen(damage: Damage) -> None:
    """A list in the options has no more members than the shortest form of MessagePack can say."""

    def broken(write: Function) -> Function:
        def write_shortest(value: Any, written: bytearray) -> None:
            write(value[:15], written)

        return write_shortest

    damage.around(packing, "_write_array", broken)


@mutant("edge.python-reads-more", kills=("edge.data.not-json",))
def python_reads_more(damage: Damage) -> None:
    """What Python's JSON reads beyond JSON is data."""

    def broken(parse: Function) -> Function:
        def parse_more(text: str) -> Any:
            return json.loads(text) if text in {"NaN", "Infinity", "-Infinity"} else parse(text)

        return parse_more

    damage.around(js_values, "parse", broken)
