"""Which of the 16384 slots of a Redis cluster a key belongs to (Redis cluster specification, "hash tags")."""

from __future__ import annotations

from binascii import crc_hqx
from typing import Final

SLOTS: Final = 16384


def hashed_part(key: bytes) -> bytes:
    """What decides about the slot: the text in the first `{...}` if there is some, else the whole key."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    return key[start + 1 : end] if end > start + 1 else key


def slot_of(key: bytes) -> int:
    """The slot of a key: CRC16 (XMODEM) modulo 16384."""
    return crc_hqx(hashed_part(key), 0) % SLOTS
