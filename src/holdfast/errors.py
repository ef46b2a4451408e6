"""Every exception Holdfast raises, each with its exit status and what to do about it.

    HoldfastError                       exit  what it means
    ├── UsageError                       2    wrong command, option, id or parameter
    │   ├── DefinitionError              2    mistakes in the pipeline, all of them at once
    │   └── UnknownRunError              2    a run id that does not exist is never a fresh start
    ├── ValueRefusedError                2    a value that is not JSON (also a TypeError), with its place
    ├── CheckpointCorruptionError        4    damage on disk that cannot be worked around
    ├── FormatTooNewError                4    written by a newer Holdfast: left untouched
    ├── LockedError                      5    another process runs this project
    │   └── LockLostError                5    this process did, and no longer does
    └── StorageError                     6    disk full, I/O error, no descriptors: nothing is lost
        ├── ForbiddenError               6    a file that this user may not read, or not change
        ├── UnreadableError              6    a file that is missing, forbidden, no file at all, or far too large
        ├── InTheWayError                6    a link, or no folder, where a folder of artifacts belongs
        └── UnprintableError             6    stdout cannot take what was to be printed

A task that fails is none of these: it is an event. `Rewind` is a message from a step, not an error.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_WAITING = 3
EXIT_DAMAGE = 4
EXIT_LOCKED = 5
EXIT_STORAGE = 6
EXIT_INTERNAL = 70  # a bug of ours: none of the statuses that a pipeline can have
EXIT_INTERRUPTED = 130


class HoldfastError(Exception):
    """A mistake, a lock or a disk: never the failure of a task.

    `message` says what is wrong and `fix` what to do about it, if there is something. `code` is a word
    for programs, `exit_code` the status with which a command would end.
    """

    exit_code = EXIT_USAGE
    code = "error"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} {self.fix}".rstrip()


class UsageError(HoldfastError):
    """A wrong command, option, id or parameter."""

    code = "usage"


class DefinitionError(UsageError):
    """All mistakes found in a pipeline; `mistakes` lists them one by one."""

    code = "definition"

    def __init__(self, mistakes: Sequence[str], *, fix: str = "") -> None:
        self.mistakes = list(mistakes)
        super().__init__("\n".join(self.mistakes), fix=fix)


class UnknownRunError(UsageError):
    """A run id that does not exist: never a fresh start."""

    code = "unknown_run"


class ValueRefusedError(HoldfastError, TypeError):
    """A value that JSON cannot hold faithfully; `where` is the path of the bad field."""

    code = "value"

    def __init__(self, message: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.where = where


class CheckpointCorruptionError(HoldfastError):
    """Damage on disk that cannot be worked around. What was damaged is kept."""

    exit_code = EXIT_DAMAGE
    code = "damage"


class FormatTooNewError(HoldfastError):
    """Written by a newer Holdfast, or a newer program: left untouched."""

    exit_code = EXIT_DAMAGE
    code = "too_new"


class LockedError(HoldfastError):
    """Another process runs this project."""

    exit_code = EXIT_LOCKED
    code = "locked"


class LockLostError(LockedError):
    """This process ran the project, and no longer does."""

    code = "lock_lost"


class StorageError(HoldfastError):
    """A full disk, an I/O error, no descriptors. What was recorded is safe."""

    exit_code = EXIT_STORAGE
    code = "storage"

    @classmethod
    def from_os(cls, error: OSError, doing: str) -> StorageError:
        """The one line for an OSError: what was being done, to which file, and the system's own words."""
        name = f" {error.filename}" if isinstance(error.filename, str) else ""
        reason = error.strerror or str(error)
        return cls(
            f"Could not {doing}{name}: {reason}.",
            fix="What was recorded is safe: mend that, then run the same command.",
        )


class ForbiddenError(StorageError):
    """What is kept there may not be read, or not be changed, by this user. It may be whole all the same."""


MISSING, FORBIDDEN, STRANGE, TOO_LARGE = "missing", "forbidden", "strange", "too large"
"""Why the content of a file is not to be had. STRANGE: a link, a folder, a pipe; TOO_LARGE: over the limit."""


class UnreadableError(StorageError):
    """The content at a name is not to be had: a fact about what stands there, and nothing is wrong with the disk.

    `why` is one of the four above, `words` says it for people.
    """

    def __init__(self, path: str, why: str, words: str) -> None:
        super().__init__(
            f"Could not read {path}: {words}.",
            fix="What was recorded is safe: mend that, then run the same command.",
        )
        self.path = path
        self.why = why
        self.words = words


class InTheWayError(StorageError):
    """Something stands on the way to an artifact through which nothing is read or written."""

    code = "in_the_way"


class UnprintableError(StorageError):
    """Standard output cannot take what was to be printed."""

    code = "stdout"
