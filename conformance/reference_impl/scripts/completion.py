"""The bytes of a call of moveToFinished that completes a job. Most of them are the same for every job of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from conformance.protocol import keys as names
from conformance.protocol.keys import QueueKeys
from conformance.reference_impl.connection.resp import bulk, bulks

_COMPLETED: Final = "completed"
_WORDS_BESIDE_KEYS: Final = 3
"""EVALSHA, the digest and the number of keys."""
_ARGUMENTS: Final = 9


class CompletionBytes:
    """Makes the bytes; all parts that do not depend on the job are encoded once.

    `fetch_keys` are the full keys with which the script fetches the next job. The bytes are those of
    `MoveScripts.finish_call`; tests compare both.
    """

    def __init__(self, keys: QueueKeys, fetch_keys: Sequence[str], sha1: str) -> None:
        self.sha1 = sha1
        before = [*fetch_keys, keys.key(_COMPLETED)]
        after = keys.keys(f"{names.METRICS}:{_COMPLETED}", names.MARKER)
        key_count = len(before) + 1 + len(after)
        header = b"*%d\r\n" % (_WORDS_BESIDE_KEYS + key_count + _ARGUMENTS)
        self._head = header + bulks("EVALSHA", sha1, str(key_count), *before)
        self._base = keys.base.encode()
        self._middle = bulks(*after)
        self._property = bulks("returnvalue")
        self._ends = tuple(bulks(_COMPLETED, fetch_next, keys.base) for fetch_next in ("0", "1"))

    def of_job(self, job_id: str, finished_on: int, value: str, options: bytes, *, fetch_next: bool) -> bytes:
        """Return the bytes for one job: `finished_on` in Unix ms, `value` as JSON, `options` packed.

        Raises UnicodeEncodeError for a text with a lone surrogate.
        """
        own = job_id.encode()
        return b"".join(
            (
                self._head,
                bulk(self._base + own),
                self._middle,
                bulk(own),
                bulk(b"%d" % finished_on),
                self._property,
                bulk(value.encode()),
                self._ends[fetch_next],
                bulk(options),
                _NO_FIELDS,
            )
        )


_NO_FIELDS: Final = bulk(b"")
"""Fields that the script would write besides; a completed job has none."""
