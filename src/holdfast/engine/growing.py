"""A text that a step has streamed to its NAME.part, read back when the step has ended."""

from __future__ import annotations

from holdfast.artifacts.products import OutputRefusedError
from holdfast.stores.readable import NOT_TO_BE_HAD
from holdfast.stores.tree import WorkTree


def read_grown(tree: WorkTree, path: str, size: int | None) -> str:
    """The text that has grown at `path`. Somebody may have spoilt it: that is no failure of the disk."""
    try:
        data = tree.read(path)
        if size not in (len(data), None):
            raise OutputRefusedError(f"somebody else changed {path} after it was streamed")
        return data.decode()
    except UnicodeDecodeError:
        raise OutputRefusedError(f"what it streamed to {path} is no text any more") from None
    except OSError as error:
        if error.errno not in NOT_TO_BE_HAD:
            raise
        raise OutputRefusedError(f"what it streamed to {path} is gone: {error.strerror}") from None
