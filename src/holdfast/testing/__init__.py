"""For tests of pipelines: a Context in memory, so that a step can be called like the function it is."""

from holdfast.testing.memory import MemoryDesk, context

__all__ = ["MemoryDesk", "context"]
