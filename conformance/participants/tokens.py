"""What scenarios call the tokens of locks, where a worker's loop has made up its own."""

from __future__ import annotations


class TokenNames:
    """Names of tokens by job, and back. Without entries every token is called as it is."""

    def __init__(self) -> None:
        self._real: dict[tuple[str, str], str] = {}
        self._names: dict[str, str] = {}

    def learn(self, job: str, name: str, token: str) -> None:
        """What the scenario calls `name` is this token at this job."""
        self._real[job, name] = token
        self._names[token] = name

    def real(self, job: str, name: str) -> str:
        """The token that locks the job when the scenario says `name`."""
        return self._real.get((job, name), name)

    def name(self, token: str) -> str:
        """What the scenario calls a token."""
        return self._names.get(token, token)
