"""Random sequences of steps for the model and the oracle; each module here registers steps of one kind."""

from . import disturbances, families, jobs, queues, workers
from .generator import Generator

__all__ = ["Generator", "disturbances", "families", "jobs", "queues", "workers"]
