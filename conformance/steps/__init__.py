"""One language of steps.

A step is one thing that happens to queues: a call of the driver protocol on a handle, time that passes, a fault. It is
the same value in a sequence of `fuzz`, in a feature of `versions mixed` and in a test of the model.
"""
