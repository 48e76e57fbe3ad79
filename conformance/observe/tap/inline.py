"""Inline commands: a line of words, as people type them into telnet (Redis `sdssplitargs`)."""

from __future__ import annotations

from conformance.observe.tap.resp import ProtocolViolation

_BLANKS = b" \t\r\n\v\f\0"
_ESCAPES = {ord("n"): b"\n", ord("r"): b"\r", ord("t"): b"\t", ord("b"): b"\b", ord("a"): b"\a"}
_HEX = b"0123456789abcdefABCDEF"
_DOUBLE, _SINGLE, _BACKSLASH = ord('"'), ord("'"), ord("\\")


def split_inline(line: bytes) -> tuple[bytes, ...]:
    """The words of a line. Raises ProtocolViolation for quotes that are not closed, as Redis does."""
    if _DOUBLE not in line and _SINGLE not in line:
        return tuple(line.replace(b"\0", b" ").split())
    words: list[bytes] = []
    position = _skip_blanks(line, 0)
    while position < len(line):
        word, position = _word(line, position)
        words.append(word)
        position = _skip_blanks(line, position)
    return tuple(words)


def _skip_blanks(line: bytes, position: int) -> int:
    while position < len(line) and line[position] in _BLANKS:
        position += 1
    return position


def _word(line: bytes, position: int) -> tuple[bytes, int]:
    word = bytearray()
    while position < len(line) and line[position] not in _BLANKS:
        if line[position] in {_DOUBLE, _SINGLE}:
            position = _quoted(line, position, word)
            if position < len(line) and line[position] not in _BLANKS:
                raise ProtocolViolation("a quote that ends inside a word")
            return bytes(word), position
        word.append(line[position])
        position += 1
    return bytes(word), position


def _quoted(line: bytes, start: int, word: bytearray) -> int:
    """Append what is between the quotes; where the line goes on behind them."""
    quote, position = line[start], start + 1
    while position < len(line):
        if line[position] == quote:
            return position + 1
        if line[position] == _BACKSLASH and position + 1 < len(line):
            position = _escaped(line, position, quote, word)
        else:
            word.append(line[position])
            position += 1
    raise ProtocolViolation("a quote that is not closed")


def _escaped(line: bytes, position: int, quote: int, word: bytearray) -> int:
    following = line[position + 1]
    if quote == _SINGLE:
        # Between single quotes only the quote itself can be escaped.
        word.append(_SINGLE if following == _SINGLE else _BACKSLASH)
        return position + (2 if following == _SINGLE else 1)
    digits = line[position + 2 : position + 4]
    if following == ord("x") and len(digits) == 2 and all(digit in _HEX for digit in digits):
        word.append(int(digits, 16))
        return position + 4
    word += _ESCAPES.get(following, bytes((following,)))
    return position + 2
