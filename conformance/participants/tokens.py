"""Names of lock tokens in scenarios, for workers whose loop generates its own tokens."""

from __future__ import annotations


class TokenNames:
    """Names of tokens by job, and back. A token without an entry is its own name."""

    def __init__(self) -> None:
        self._real: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}

    def learn(self, job: str, name: str, token: str) -> None:
        """Record that the scenario's `name` means this token for this job."""
        self._real[job, name] = token
        self._names[token] = name

    def has(self, job: str) -> bool:
        """Whether a loop has passed this job to the scenario."""
        return any(job == known for known, _ in self._real)

    def real(self, job: str, name: str) -> str:
        """The token that locks the job when the scenario says `name`."""
        return self._real.get((job, name), name)

    def name(self, token: str) -> str:
        """The scenario's name of a token."""
        return self._names.get(token, token)
