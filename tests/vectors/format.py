"""The format of the files in `vectors/`, as types; `schema_text` is the same as a JSON Schema.

Everything is plain JSON that any language reads: bytes are hex digits, times are Unix ms, and scores are the doubles
that Redis holds (some are beyond 2**53). The schema is published with the files (`vectors/schema.json`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from conformance.pages.compact_json import compact_json

FORMAT = 1
"""Within a format, fields are added but never renamed, removed or given another meaning."""

PREFIX = "bull"
"""The key prefix of all vectors: BullMQ's own default."""

KeyType = Literal["string", "hash", "list", "set", "zset", "stream"]


class StoredKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of Redis.

    `value` by `type`: a string is text; a hash an object of texts; a list a list of texts; a set a sorted list of
    texts; a zset a list of `[member, score]`; a stream a list of `[id, {field: text}]`, whose ids are numbered `1-0`,
    `2-0`, … because the real ones come from the server's clock. `expires`: the key has a time to live, which is in the
    arguments of the command that set it.
    """

    type: KeyType
    value: Any
    expires: bool = False


State = dict[str, StoredKey]
"""Everything under the prefix, by the name of the key."""


class SentArgument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One word of a command: the bytes of `text` in UTF-8, or those of `hex`, which are MessagePack of `msgpack`."""

    text: str | None = None
    hex: str | None = None
    msgpack: Any = msgspec.UNSET


class VectorCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that BullMQ sends for the call.

    `script`: the Lua script that EVALSHA runs, by its name in BullMQ; its digest is in the manifest. Then `keys` and
    `arguments` are KEYS and ARGV. Otherwise `command` is the name, and `arguments` are the words after it.
    """

    script: str | None = None
    command: str | None = None
    keys: list[str] = []
    arguments: list[SentArgument] = []


class VectorClient(msgspec.Struct, frozen=True, kw_only=True):
    """The object of the call, as BullMQ opens it: its class, queue and options."""

    role: Literal["queue", "worker", "flow"]
    queue: str
    options: dict[str, Any]


class VectorEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that the call has appended to the event stream of a queue; `fields` are its texts."""

    queue: str
    fields: dict[str, str]


class VectorRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """The call threw. `code`: the error (docs/reference/driver-protocol.md lists them); `text`: BullMQ's message."""

    code: str
    text: str


class CallVector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call of BullMQ: the state before, the call, its commands, its answer, and the changes of the state.

    `arguments` and `answer` are those of the operation in the driver protocol. `now_ms`: the time of the client's
    clock. `changes` has the keys that the call changed, with their new value, or null for a deleted key. `answer` is
    left out if the call threw, and `refused` if it did not.
    """

    name: str
    client: VectorClient
    now_ms: int
    arguments: dict[str, Any]
    before: State
    commands: list[VectorCommand]
    answer: Any = msgspec.UNSET
    refused: VectorRefusal | None = None
    changes: dict[str, StoredKey | None] = {}
    events: list[VectorEvent] = []


class CallFile(msgspec.Struct, frozen=True, kw_only=True):
    """`calls/<operation>.json`: all vectors of one operation."""

    operation: str
    vectors: list[CallVector]


class PackedValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value and its MessagePack, byte for byte as in BullMQ. The members of `value` keep their order."""

    name: str
    value: Any
    hex: str


class PackingFile(msgspec.Struct, frozen=True, kw_only=True):
    """`packing.json`."""

    vectors: list[PackedValue]


class DelayedScore(msgspec.Struct, frozen=True, kw_only=True):
    """A score in `delayed`, as a double. `due_ms`: when the job is due; `before`: earlier jobs with the same time."""

    due_ms: int
    before: int
    score: int


class PriorityScore(msgspec.Struct, frozen=True, kw_only=True):
    """A score in `prioritized`, as a double. `counter`: the key `pc` once the job is added."""

    priority: int
    counter: int
    score: int


class ScoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """`scores.json`."""

    delayed: list[DelayedScore]
    prioritized: list[PriorityScore]


class VectorScript(msgspec.Struct, frozen=True, kw_only=True):
    """A Lua script of BullMQ: how many KEYS it takes, and the SHA-1 of its text. The text is BullMQ's own."""

    keys: int
    sha1: str


class VectorFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the folder."""

    sha256: str
    vectors: int


class VectorManifest(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest.json`: the vectors' origin. `hash`: SHA-256 over the lines `SHA256  NAME` of `files`, in order."""

    format: int
    bullmq: str
    prefix: str
    hash: str
    files: dict[str, VectorFile]
    scripts: dict[str, VectorScript]


FILES: dict[str, type[msgspec.Struct]] = {
    "calls/*.json": CallFile,
    "packing.json": PackingFile,
    "scores.json": ScoreFile,
    "manifest.json": VectorManifest,
}
"""The content of each file, by the pattern of its name."""


def schema_text() -> str:
    """The JSON Schema: `files` says which definition belongs to which file; any of the files matches the whole."""
    schemas, components = msgspec.json.schema_components(FILES.values(), ref_template="#/$defs/{name}")
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:bullmq-conformance:vectors:v{FORMAT}",
        "title": f"Test vectors of BullMQ, format {FORMAT}",
        "oneOf": list(schemas),
        "files": dict(zip(FILES, schemas, strict=True)),
        "$defs": components,
    }
    return compact_json(schema, width=400)
