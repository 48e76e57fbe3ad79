"""MessagePack and JSON: 10,000 values, byte for byte as Node writes them, in one Node process."""

from __future__ import annotations

import json
import math
import random
import string
import struct
import subprocess
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from conformance.reference_impl.js_values import LARGEST_EXACT, stringify
from conformance.reference_impl.packing import pack
from conformance.upstream.node import find_node
from conformance.upstream.package import ensure_package

COUNT = 10_000
SEED = 5_62_0

WRITE = """
const { Packr } = require(process.argv[1]);
const packer = new Packr({ useRecords: false, encodeUndefinedAsNil: true });
const special = { NaN, Infinity, '-Infinity': -Infinity };
const named = value => value !== null && typeof value === 'object' && '$number' in value;
const revive = (key, value) => (named(value) ? special[value.$number] : value);
const lines = require('fs').readFileSync(0, 'utf8').split('\\n').filter(Boolean);
const written = lines.map(line => JSON.parse(line, revive)).map(
  value => `${packer.pack(value).toString('hex')} ${JSON.stringify(JSON.stringify(value))}`,
);
process.stdout.write(written.join('\\n'));
"""
"""The options of Packr are those of BullMQ (upstream `src/classes/scripts.ts`)."""

ALPHABETS = (
    string.ascii_letters,
    string.printable + "\x00\x1f\x7f",
    "äéß\u0080\u07ff",
    "\u0800\u2028\u2029\ufeff\uffff€",
    "\U00010000\U0001f600\U0010ffff",
    "a\ud800\udbff\udc00\udfff\U0001f600",
)
LENGTHS = (0, 1, 2, 7, 10, 15, 16, 20, 31, 32, 33, 62, 63, 64, 65, 85, 86, 127, 128, 255, 256, 257, 400)
SIZES = (0, 1, 1, 2, 3, 4, 5, 15, 16, 17)
KEYS = ("0", "1", "10", "9", "01", "-1", "4294967294", "4294967295", "a", "", "é", "__proto__", "length", "toJSON")


class ValueGenerator:
    """Makes random values, with many at the limits of both formats."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self, depth: int = 3) -> Any:
        kinds: list[Callable[[int], Any]] = [self._constant, self._integer, self._double, self._text]
        if depth:
            kinds += [self._list, self._object]
        return self._random.choice(kinds)(depth)

    def _constant(self, _depth: int) -> Any:
        return self._random.choice([None, True, False, math.nan, math.inf, -math.inf, 0, -0.0])

    def _integer(self, _depth: int) -> float:
        power: int = 2 ** self._random.choice([*range(70), 1100])
        value: int = self._random.choice([1, -1]) * (power + self._random.choice([-2, -1, 0, 1]))
        return value if abs(value) <= LARGEST_EXACT else _double_of(value)

    def _double(self, _depth: int) -> float:
        bits: float = struct.unpack(">d", self._random.randbytes(8))[0]
        short: float = self._random.randrange(-10_000, 10_000) / 10 ** self._random.randrange(12)
        long = short * math.pow(10, self._random.randrange(25))
        return self._random.choice([bits, short, long])

    def _text(self, _depth: int) -> str:
        alphabet = self._random.choice(ALPHABETS)
        return "".join(self._random.choices(alphabet, k=self._random.choice(LENGTHS)))

    def _list(self, depth: int) -> list[Any]:
        return [self.value(depth - 1) for _ in range(self._random.choice(SIZES))]

    def _object(self, depth: int) -> dict[str, Any]:
        return {self._key(depth): self.value(depth - 1) for _ in range(self._random.choice(SIZES))}

    def _key(self, depth: int) -> str:
        return self._random.choice(KEYS) if self._random.random() < 0.5 else self._text(depth)


def _double_of(value: int) -> float:
    """Beyond 2**53 JavaScript has no integers, and Python's are refused or written with all their digits."""
    return float(value) if value.bit_length() <= 1000 else math.inf if value > 0 else -math.inf


def finite(value: Any) -> Any:
    """Numbers that are not finite are null in JavaScript's JSON, and refused in Python."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: finite(member) for name, member in value.items()}
    return [finite(element) for element in value] if isinstance(value, list) else value


def for_node(value: Any) -> Any:
    """JSON cannot express some doubles; Node.js gets an object with a name instead."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, dict):
        return {name: for_node(member) for name, member in value.items()}
    return [for_node(element) for element in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def values() -> list[Any]:
    source = ValueGenerator(SEED)
    return [source.value() for _ in range(COUNT)]


@pytest.fixture(scope="module")
def written_by_node(values: list[Any]) -> list[tuple[bytes, str]]:
    """MessagePack and JSON of each value."""
    node = find_node(None)
    package = ensure_package(node, announce=print).root / "node_modules" / "msgpackr"
    lines = "\n".join(json.dumps(for_node(value)) for value in values)
    done = subprocess.run(
        [str(node.path), "-e", WRITE, str(package)], input=lines.encode(), capture_output=True, check=True
    )
    pairs = (line.split(" ", 1) for line in done.stdout.decode().split("\n"))
    return [(bytes.fromhex(packed), json.loads(text)) for packed, text in pairs]


@pytest.mark.slow
def test_the_same_bytes_of_messagepack(values: list[Any], written_by_node: list[tuple[bytes, str]]) -> None:
    assert len(written_by_node) == COUNT
    for value, (packed, _) in zip(values, written_by_node, strict=True):
        assert pack(value).hex() == packed.hex(), repr(value)[:500]


@pytest.mark.slow
def test_the_same_text_of_json(values: list[Any], written_by_node: list[tuple[bytes, str]]) -> None:
    for value, (_, text) in zip(values, written_by_node, strict=True):
        assert stringify(finite(value)) == text, repr(value)[:500]


def test_an_ordinary_packer_and_writer_would_be_noticed(
    values: list[Any], written_by_node: list[tuple[bytes, str]]
) -> None:
    """The values detect a naive encoder of either format."""
    pairs = list(zip(values, written_by_node, strict=True))
    plain = [(value, node) for value, node in pairs if not isinstance(value, int) or abs(value) < 2**63]
    assert sum(_packed_plainly(value) != packed for value, (packed, _) in plain) > COUNT / 10
    assert sum(json.dumps(value, ensure_ascii=False, separators=(",", ":")) != text for value, (_, text) in pairs) > 100


def _packed_plainly(value: Any) -> bytes | None:
    try:
        packed: bytes = msgpack.packb(value, unicode_errors="surrogatepass")
    except (OverflowError, ValueError):
        return None
    return packed
