"""For tests of pipelines: a Context in memory, so that a step can be called like the function it is."""

from holdfast.testing.memory import MemoryRecorder, context

__all__ = ["MemoryRecorder", "context"]
