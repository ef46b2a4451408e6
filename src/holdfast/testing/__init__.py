"""For tests of pipelines, a Context in memory, so that a step can be called like the function it is.

For tests of what is built on the stores: stores in memory, and failing ones.
"""

from holdfast.testing.memory import MemoryDesk, context
from holdfast.testing.objects import FailingObjects, MemoryObjects

__all__ = ["FailingObjects", "MemoryDesk", "MemoryObjects", "context"]
