"""Files as they would be accepted, from what was read of them: record, and bytes above the seal. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from holdfast import seals
from holdfast.artifacts import looks as look
from holdfast.artifacts.looks import Look
from holdfast.events import FileRecord
from holdfast.pipeline.nodes import Node
from holdfast.seals import Seal
from holdfast.values import digest, is_json

NOT_JSON = "is not whole JSON"


def file_seen(node: Node, key: str, path: str, found: Look) -> tuple[FileRecord, bytes]:
    """The record of a file that is adopted as it is, and the bytes that its seal covers or will cover."""
    stored = bool(node.spec.copy)
    seal = found.seal
    if found.kind == look.SEALED and seal is not None:
        return FileRecord(
            key, path, len(found.body), seal.sha256, seal.kind, seal.newline_added, stored
        ), found.body
    body, added = found.body, bool(seal and seal.newline_added)
    if seal is None and seals.is_inline(path):
        body, added = seals.with_newline(seals.without_marker(body, node.spec.marker or ""))
    kind = seal.kind if seal else node.spec.forms.get(key, "text")
    return FileRecord(key, path, len(body), digest(body), kind, added, stored), body


def as_sealed(path: str, seal: Seal) -> FileRecord:
    """A file as its seal knows it, to be healed; how large it was no seal says, and its key matters to no copy."""
    return FileRecord("", path, 0, seal.sha256, seal.kind, seal.newline_added, True)


def as_taken(node: Node, key: str, path: str, found: Look) -> Look:
    """A look at a file that no seal speaks for: half-finished, if consumers could not be given it.

    Bytes that are no text are as good as any where the step gives such.
    """
    form = node.spec.forms.get(key)
    if found.detail == look.NO_TEXT and form in ("bytes", "path") and not seals.is_inline(path):
        return replace(found, kind=look.HALF, detail="does not end in its completion marker")
    if found.kind not in (look.MARKED, look.HALF) or form != "json":
        return found
    _, body = file_seen(node, key, path, found)
    return found if is_json(body) else replace(found, kind=look.HALF, detail=NOT_JSON)


def edited_file(node: Node, file: FileRecord, found: Look) -> tuple[FileRecord, bytes]:
    """The record of an accepted file as a person left it, and its bytes; the old one if nobody edited it."""
    if found.kind != look.CHANGED:
        return file, found.body
    body, _ = seals.with_newline(found.body)
    stored = bool(node.spec.copy)
    return FileRecord(file.key, file.path, len(body), digest(body), file.kind, False, stored, by_hand=True), body
