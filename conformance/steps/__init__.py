"""One language of steps: what happens to queues, one step after the other.

A step is a value (`shapes.py`): a call of the driver protocol on a handle, time that passes, a fault, a counter. Only
features of `versions mixed` also have steps that depend on what clients do: `DrainStep` and `WaitStep`.

- `fuzz` generates steps and compares two clients after each; its replay files have one step a line (`records.py`).
- `versions mixed` writes its features in the words of scenarios (`words.py`: `adder.add("a", delay=5)`,
  `worker.claim()`), gives each handle to one of two versions, and writes the same lines.
- The model carries out calls (`Model.apply`) and other steps (`Model.endure`); its tests give steps to both sides.

A line of `fuzz` can be copied into a feature, and a word into a scenario. Two names are replaced by values of the run:
`<prefix>` for the prefix and, in features, `@worker` for the id of the job that a worker holds.
"""
