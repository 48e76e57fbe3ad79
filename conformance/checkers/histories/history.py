"""A whole history, and how it is written and read. No I/O: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from conformance.checkers.histories.lines import FORMAT, Footer, Header, Line
from conformance.problems import UsageProblem

_DECODER: msgspec.json.Decoder[Header | Line | Footer] = msgspec.json.Decoder(Header | Line | Footer)
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class History:
    """A run as it was recorded, its lines in the order of their times."""

    header: Header
    lines: tuple[Line, ...]
    complete: bool = True

    def encoded(self) -> bytes:
        """The same as JSON lines."""
        rows: list[Header | Line | Footer] = [self.header, *self.lines]
        if self.complete:
            rows.append(Footer(at_ms=self.lines[-1].at_ms if self.lines else 0, lines=len(self.lines)))
        return b"".join(encode(row) for row in rows)


def encode(line: Header | Line | Footer) -> bytes:
    """One line of the file, with its newline."""
    return _ENCODER.encode(line) + b"\n"


def decode_history(rows: Sequence[bytes], where: str = "the history") -> History:
    """Read the lines of a file. Raises UsageProblem for what is no history."""
    header: Header | None = None
    lines: list[Line] = []
    complete = False
    for number, row in enumerate(rows, 1):
        try:
            line = _DECODER.decode(row)
        except msgspec.MsgspecError as error:
            if number == len(rows) and header is not None:
                break  # the run was killed while it wrote this line
            raise UsageProblem(f"{where}, line {number}: {error}", hint="is it the history of a chaos run?") from error
        if isinstance(line, Header):
            header = line
        elif isinstance(line, Footer):
            complete = line.lines == len(lines)
        else:
            lines.append(line)
    if header is None or header.format != FORMAT:
        raise UsageProblem(f"{where} does not begin with a header of format {FORMAT}")
    return History(header, in_order(lines), complete)


def in_order(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Lines sorted by time; those of one time keep their order."""
    return tuple(sorted(lines, key=lambda line: line.at_ms))
