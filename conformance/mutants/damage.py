"""The means by which a mutant breaks the reference client, in Lua and in Python, and the way back."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from inspect import Parameter, iscoroutinefunction, signature
from types import ModuleType
from typing import Any, Self

from conformance.mutants.witness import Witness
from conformance.reference_impl.scripts.runner import EvalCommand, ScriptRunner, ScriptText, ScriptTexts

_CLIENT = "conformance.reference_impl"

_FILTER = """
local redis = (function(real)
  local memory, sent, wrote, inflicted = {}, {}, false, false
  local reads = {EXISTS = true, GET = true, HEXISTS = true, HGET = true, LLEN = true, LRANGE = true}
  local function copy(value) return type(value) == "table" and {unpack(value)} or value end
  local function send(...)
    local reply = real.call(...)
    sent[#sent + 1] = {command = {...}, reply = copy(reply)}
    wrote = wrote or not reads[(...)]
    return reply
  end
  local function same(one, other)
    if type(one) ~= "table" or type(other) ~= "table" then return one == other end
    if #one ~= #other then return false end
    for position, word in ipairs(one) do
      if word ~= other[position] then return false end
    end
    return true
  end
  local function is_as_healthy(healthy, command, reply)
    if reply == nil then return not wrote and same(healthy, command) end
    return #sent == 1 and same(healthy, sent[1].command) and same(sent[1].reply, reply)
  end
  local function note()
    local slot = string.match(KEYS[1] or "", "{([^}]+)}") or KEYS[1] or ""
    real.pcall("SET", "%(note)s{" .. slot .. "}", 1, "EX", %(note_s)d)
    inflicted = true
  end
  local function at(command, word)
    for position = 2, #command - 1 do
      if command[position] == word then return position + 1 end
    end
  end
  local function on(command, name) return string.sub(command[2], -#name - 1) == ":" .. name end
  local function is(command, word, name) return command[1] == word and on(command, name) end
  local function dedup(command) return string.find(command[2], ":de:", 1, true) end
  local function without(command, place)
    local found = send(unpack(command))
    found[place] = false
    return found
  end
  local function event(command) return command[1] == "XADD" and command[at(command, "event")] or nil end
  local function change(command, word, value)
    local place = at(command, word)
    if place then command[place] = value end
  end
  local function drop(command, word)
    local place = at(command, word)
    if place then
      table.remove(command, place)
      table.remove(command, place - 1)
    end
  end
  local function edit(command) %(body)s end
  local function watched(command)
    local healthy = {unpack(command)}
    sent, wrote = {}, false
    local fine, reply = pcall(edit, command)
    if not inflicted and not (fine and is_as_healthy(healthy, command, reply)) then note() end
    if not fine then error(reply, 0) end
    return reply
  end
  local function call(...)
    local command = {...}
    local reply = %(edit)s(command)
    if reply ~= nil then return reply end
    return real.call(unpack(command))
  end
  return setmetatable({call = call}, {__index = real})
end)(redis)
"""
"""Put before a script, it shadows `redis`: `redis.call` is ours from the first line on, and the text stays as it is."""
_NOTES_LAST_S = 600
"""When Redis deletes a note (s); it is read long before."""


@dataclass(frozen=True)
class FilteredScript:
    """A script with a filter before it; everything else is the script's own."""

    name: str
    key_count: int
    text: str

    @property
    def sha1(self) -> str:
        """SHA-1 of the text, in hexadecimal."""
        return hashlib.sha1(self.text.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()


def filtered(script: ScriptText, body: str, note: str = "") -> FilteredScript:
    """Send the script's commands through a Lua function body.

    The body sees `command`, a table of the name and the arguments. Its result replaces the reply of the server; without
    a result the command is sent, with its changes. It may use `send(...)` (the real redis.call), `memory` (a table that
    lives as long as the call), `on(command, name)` (whether the key ends with `:name`), `is(command, word, name)` (the
    same, of the command `word`), `dedup(command)` (whether the key is that of a deduplication id), `without(command,
    place)` (the reply, with one value absent), `event(command)` (name of the event that XADD adds), `at(command, word)`
    (position of the value after a word), `change(command, word, value)` and `drop(command, word)` (the word and its
    value), KEYS and ARGV.

    With a `note`, a key with this prefix shows in Redis that some command was changed, left out, added or answered
    differently. It ends with `{...}`, the slot of the script's keys, so that a cluster lets scripts write it.
    """
    words = {
        "body": body.replace("\n", " "),
        "edit": "watched" if note else "edit",
        "note": note,
        "note_s": _NOTES_LAST_S,
    }
    return FilteredScript(script.name, script.key_count, _FILTER % words + script.text)


Function = Callable[..., Any]
Around = Callable[[Function], Function]
"""Takes the healthy function and returns the broken one."""

_ABSENT = object()


class Damage:
    """The damage to one client. As a context manager, it repairs everything at the end.

    Python code is broken for the whole process; Lua only for users of `scripts`. `witness` knows whether broken Python
    code has had an effect; a broken script leaves a `note` in Redis (see `filtered`).
    """

    def __init__(self, name: str, note: str = "") -> None:
        self.name = name
        self.witness = Witness()
        self._note = note
        self._filters: list[tuple[str, str]] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()

    def heal(self) -> None:
        """Put back every Python function that was replaced."""
        self._undo.close()

    # Lua.

    def commands(self, scripts: str, body: str) -> None:
        """Filter the Redis commands inside the scripts whose name matches a glob; see `filtered`."""
        self._filters.append((scripts, body))

    def scripts(self, healthy: ScriptTexts) -> ScriptTexts:
        """The scripts with all filters. Raises LookupError, naming the mutant, for a filter that matches no script."""
        broken: dict[str, ScriptText] = dict(healthy)
        for pattern, body in self._filters:
            matching = [name for name in healthy if fnmatchcase(name, pattern)]
            # A filter for a script that was renamed upstream must not be dropped silently.
            if not matching:
                raise LookupError(f"mutant {self.name}: no script is called {pattern}")
            for name in matching:
                broken[name] = filtered(broken[name], body, self._note)
        return broken

    # Python.

    def replace(self, owner: Any, name: str, replacement: Any) -> None:
        """Replace an attribute of a class or module.

        Raises LookupError, naming the mutant, where there is none, and where it is called in another way than its
        replacement: such a client would be noticed because it crashes, and not because of its defect.
        """
        self._put(owner, name, self.witness.replacement(replacement))

    def around(self, owner: Any, name: str, wrap: Around) -> None:
        """Put a broken function around a healthy one. Raises LookupError as `replace` does."""
        healthy = getattr(owner, name, None)
        self._put(owner, name, self.witness.around(healthy, wrap) if callable(healthy) else None)

    def _put(self, owner: Any, name: str, broken: Any) -> None:
        if not hasattr(owner, name):
            raise LookupError(f"mutant {self.name}: {owner.__name__} has no {name}")
        # Otherwise the client would be noticed because it crashes, and not because of its defect.
        if not _is_called_like(getattr(owner, name), broken):
            raise LookupError(f"mutant {self.name}: {owner.__name__}.{name} is not called like its replacement")
        before = vars(owner).get(name, _ABSENT)
        setattr(owner, name, broken)
        # Cached results come from the healthy code and would hide the damage.
        _forget_results()
        # Registered before the restore, so that it runs after it: an ExitStack runs in reverse.
        self._undo.callback(_forget_results)
        self._undo.callback(_restore, owner, name, before)

    def calls(self, script: str, edit: Callable[[EvalCommand], EvalCommand]) -> None:
        """Change the keys and arguments with which the client calls one script."""

        def edited(call: EvalCommand) -> EvalCommand:
            return edit(call) if call.name == script else call

        def broken(healthy: Function) -> Function:
            async def run(runner: ScriptRunner, call: EvalCommand) -> Any:
                return await healthy(runner, edited(call))

            return run

        self.around(ScriptRunner, "run", broken)

    def argument(self, script: str, index: int, change: Callable[[Any], Any]) -> None:
        """Change one argument (counted from 0, after the keys) of one script."""

        def edit(call: EvalCommand) -> EvalCommand:
            arguments = list(call.arguments)
            arguments[index] = change(arguments[index])
            return EvalCommand(call.name, call.keys, arguments)

        self.calls(script, edit)


def _is_called_like(healthy: Any, replacement: Any) -> bool:
    """Whether the replacement can be called, and awaited, wherever the healthy function is."""
    function = getattr(replacement, "__func__", replacement)
    if not (callable(healthy) and callable(function)):
        return True
    return _fits(healthy, function) and iscoroutinefunction(healthy) == iscoroutinefunction(function)


def _fits(healthy: Function, function: Function) -> bool:
    """Whether a call with nothing but what the healthy function needs is a call of the other as well."""
    needed = [parameter for parameter in signature(healthy).parameters.values() if parameter.default is parameter.empty]
    by_position = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    positional = [parameter.name for parameter in needed if parameter.kind in by_position]
    named = {parameter.name: None for parameter in needed if parameter.kind is Parameter.KEYWORD_ONLY}
    try:
        signature(function).bind(*positional, **named)
    except TypeError:
        return False
    except ValueError:  # a builtin, which does not show its parameters
        return True
    return True


def _forget_results() -> None:
    """Clear what functions of the client remember: it comes from before the damage, or from a broken one."""
    modules = tuple(module for name, module in tuple(sys.modules.items()) if name.startswith(_CLIENT))
    for forget in _caches(modules):
        forget()


@lru_cache(maxsize=1)  # every mutant asks twice, of the same modules
def _caches(modules: tuple[ModuleType, ...]) -> tuple[Callable[[], None], ...]:
    """The functions that clear each cache of the client."""
    members = [member for module in modules for member in tuple(vars(module).values())]
    return tuple(member.cache_clear for member in members if getattr(member, "cache_clear", None))


def _restore(owner: Any, name: str, before: Any) -> None:
    if before is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, before)
