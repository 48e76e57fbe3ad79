"""Changing what a Lua script does without touching its text: the commands that it sends pass through a filter.

The filter is put before the script and shadows `redis`, so that `redis.call` is ours from the first line on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from conformance.reference_impl.scripts.runner import ScriptText

_FILTER = """
local redis = (function(real)
  local send, memory = real.call, {}
  local function at(command, word)
    for position = 2, #command - 1 do
      if command[position] == word then return position + 1 end
    end
  end
  local function on(command, name) return string.sub(command[2], -#name - 1) == ":" .. name end
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
  local function edit(command) %s end
  local function call(...)
    local command = {...}
    local reply = edit(command)
    if reply ~= nil then return reply end
    return send(unpack(command))
  end
  return setmetatable({call = call}, {__index = real})
end)(redis)
"""


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


def filtered(script: ScriptText, body: str) -> FilteredScript:
    """Send the script's commands through a Lua function body.

    The body sees `command`, a table of the name and the arguments. What it returns is the reply in place of the
    server's; if it returns nothing, the command is sent as it is by then. It may use `send(...)` (the real
    redis.call), `memory` (a table that lives as long as the call), `on(command, name)` (whether the key ends with
    `:name`), `event(command)` (name of the event that XADD adds), `at(command, word)` (position of the value after a
    word), `change(command, word, value)` and `drop(command, word)` (the word and its value), KEYS and ARGV.
    """
    return FilteredScript(script.name, script.key_count, _FILTER % body.replace("\n", " ") + script.text)
