"""What holds for all tests of the kit."""

from hypothesis import settings

# How long an example takes depends on what else the machine does; performance is measured in `benchmarks/`.
settings.register_profile("kit", deadline=None)
settings.load_profile("kit")
