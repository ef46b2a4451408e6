"""For tests of pipelines, a Context in memory, so that a step can be called like the function it is.

For tests of what is built on the stores: stores in memory, and failing ones.
"""

from holdfast.testing.files import FailingFiles, MemoryFiles
from holdfast.testing.memory import MemoryRecorder, context
from holdfast.testing.objects import FailingObjects, MemoryObjects
from holdfast.testing.stores import NEVER, FailingJournal, FailingLease, MemoryJournal, MemoryLease

__all__ = [
    "NEVER",
    "FailingFiles",
    "FailingJournal",
    "FailingLease",
    "FailingObjects",
    "MemoryFiles",
    "MemoryJournal",
    "MemoryLease",
    "MemoryObjects",
    "MemoryRecorder",
    "context",
]
