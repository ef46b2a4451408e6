"""What a file by itself says: its kinds, and how bytes are judged. Pure: nothing here opens a file."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import errors, seals
from holdfast.artifacts import memory
from holdfast.errors import FormatTooNewError, UnreadableError
from holdfast.pipeline.names import printable
from holdfast.seals import Seal, Sealed
from holdfast.values import digest, is_text

SEAL_DAMAGED = "its seal is; the rest is whole"
NO_TEXT = "no seal and no text"

MISSING, EMPTY, SEALED, FOREIGN, CHANGED, MARKED, HALF, DAMAGED = (
    "missing",
    "empty",
    "sealed",
    "foreign",
    "changed",
    "marked",
    "half-finished",
    "damaged",
)


class Look(msgspec.Struct, frozen=True, gc=False):
    """What a file by itself says."""

    kind: str
    detail: str = ""
    body: bytes = b""
    seal: Seal | None = None
    is_whole: bool = False  # of a damaged file: only its seal is; the bytes above are what was accepted


def above_any_seal(path: str, data: bytes) -> Sequence[bytes]:
    """What may have been accepted: all of it, or all above the last line.

    Below stands the seal, whole or not, or a plain marker not yet replaced by one. Which of the two cuts is right,
    the hash says: nothing needs to be parsed.
    """
    return (*_without_last_line(data), data) if seals.is_inline(path) else (data,)


def _without_last_line(body: bytes) -> list[bytes]:
    """The text above the last line that is not blank, if there is such a line."""
    text = body.rstrip()
    return [body[: text.rfind(b"\n") + 1]] if text else []


def look_unread(error: UnreadableError) -> Look:
    """What a file is whose content is not to be had."""
    if error.why == errors.MISSING:
        return Look(MISSING)
    if error.why == errors.TOO_LARGE:
        return Look(DAMAGED, "far larger than what was accepted")
    return Look(DAMAGED, error.words)


def refuse_newer(path: str, number: int) -> None:
    """What a newer Holdfast has sealed, in format `number`, is finished work, though we cannot read its seal: it
    is not done again. 0 is no such seal."""
    if number:
        raise FormatTooNewError(
            f"{printable(path, 200)} has a seal of format {number}; this Holdfast knows up to {seals.FORMAT}.",
            fix="Use the newer Holdfast that wrote it, or move the file away: it is left as it is.",
        )


def look_inline(sealed: Sealed, tasks: Sequence[str], marker: str | None) -> Look:
    """What a file is that has its seal inside."""
    body, seal = sealed.body, sealed.seal
    if seal is None:
        return look_unsealed(body, marker)
    if seal.task not in tasks:
        return Look(FOREIGN, f"sealed by {seal.task}", body, seal)
    if digest(body) == seal.sha256:
        return Look(SEALED, "", body, seal)
    if is_text(body):
        return Look(CHANGED, "edited since it was sealed", body, seal)
    return Look(DAMAGED, "its bytes are no text any more", body, seal)


def look_unsealed(data: bytes, marker: str | None) -> Look:
    if not is_text(data):
        return Look(DAMAGED, NO_TEXT, data)
    if marker and seals.ends_in_marker(data, marker):
        return Look(MARKED, "", data)
    return Look(HALF, "does not end in its completion marker", data)


OF_SECTIONS = {
    memory.INTACT: (SEALED, ""),
    memory.EDITED: (CHANGED, "its section was edited since it was sealed"),
    memory.BROKEN: (DAMAGED, "its section is cut, or no text any more"),
}
