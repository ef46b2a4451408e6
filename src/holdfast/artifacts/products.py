"""A step's output taken apart: what goes to files, what is a value, and what they are known by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast import layout, seals
from holdfast.events import FileRecord
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.spec import StepSpec
from holdfast.seals import Seal
from holdfast.state import Accepted, TaskState
from holdfast.stores.protocols import Claimed
from holdfast.values import digest, encode_json

EMPTY_REST = digest(b"{}")
"""What a step that gave nothing beside its files is said to have given."""


class OutputRefusedError(Exception):
    """A step's result does not fit its declaration."""


SECTION, UNWRITTEN = "section", "unwritten"
"""The kinds of a file record that is one section of a memory file: in the file, and only in objects/ so far."""

NOTHING: Any = object()

_PATH = type(Path())


def plain_output(step: StepSpec, output: Any) -> Any:
    """What a step gave for its files, in Python's own types: what the methods of other classes do, nobody knows.

    None of those methods is called. What is neither text, bytes nor a path is for JSON to refuse, by its type.
    """
    if isinstance(step.writes, str) or not issubclass(type(output), dict):
        return _plain(output)
    return {_plain_key(key): _plain(piece) for key, piece in dict.items(output)}


def _plain(piece: Any) -> Any:
    kind = type(piece)
    if kind is str or kind is bytes or piece is None:
        return piece
    if issubclass(kind, str):
        return str.__str__(piece)
    if issubclass(kind, bytes):
        return bytes.__getitem__(piece, slice(None))
    if issubclass(kind, Path):
        return piece if kind is _PATH else _plain_path(piece)
    if kind is not dict and kind is not list and kind is not tuple:
        encode_json(piece, "output")
    return piece


def _plain_key(key: Any) -> str:
    if not issubclass(type(key), str):
        encode_json({key: None})
    return str.__str__(key)


def _plain_path(path: Path) -> Path:
    try:
        return Path(path.__fspath__())
    except Exception as error:
        name = type(error).__name__
        raise OutputRefusedError(f"returned a {type(path).__name__} that gives no path ({name})") from error


def split_output(step: StepSpec, output: Any) -> tuple[dict[str, Any], Any]:
    """What goes to files, by key, and what is kept as a value (`NOTHING`: no value)."""
    if isinstance(step.writes, str):
        if output is None:
            raise OutputRefusedError(f"returned nothing, but writes {step.writes}")
        return {"": output}, NOTHING
    assert step.writes is not None
    if not isinstance(output, dict):
        raise OutputRefusedError(
            f"returned {type(output).__name__}, but writes needs a dict with {_listed(step.writes)}"
        )
    missing = [key for key in step.writes if output.get(key) is None]
    if missing:
        raise OutputRefusedError(f"returned no {_listed(missing)}, which its writes names")
    rest = {key: value for key, value in output.items() if key not in step.writes}
    return {key: output[key] for key in step.writes}, rest


def paths_in(step: StepSpec, output: Any) -> list[Path]:
    """The files that a step says it has written itself."""
    pieces, _ = split_output(step, output)
    return [piece for piece in pieces.values() if isinstance(piece, Path)]


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)


def prepare_file(step: StepSpec, path: str, piece: Any) -> tuple[FileRecord, bytes]:
    """The record of one file and the bytes above its seal."""
    if isinstance(piece, str):
        kind, body = "text", _encode_text(piece)
    elif isinstance(piece, bytes):
        kind, body = "bytes", piece
    else:
        encode_json(piece, "output")
        kind, body = "json", msgspec.json.format(encode_json(piece, "output"), indent=2) + b"\n"
    added = False
    if seals.is_inline(path):
        if kind == "text" and step.marker:
            body = seals.without_marker(body, step.marker)
        body, added = seals.with_newline(body)
    return FileRecord("", path, len(body), digest(body), kind, added), body


def _encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise OutputRefusedError("returned text with a lone surrogate, which no file can hold") from None


def large_file(path: str, source: Path, claimed: Claimed | None) -> tuple[FileRecord, Path]:
    """The record of a large file that a step wrote at `source`."""
    if claimed is None:
        raise OutputRefusedError(f"returned the path {source.name}, where no regular file is")
    return FileRecord("", path, claimed.size, claimed.sha256, "path", claimed.newline_added), source


def set_digest(files: Sequence[FileRecord]) -> str:
    """What binds several files of one step together; a single file needs nothing."""
    return digest(encode_json({record.key: record.sha256 for record in files})) if len(files) > 1 else ""


def seal_of(run_id: str, node: Node, made: TaskState) -> Seal:
    """The seal that the files of a task share, as its record has it: who made them, from what, at what cost.

    Consumers know an output by its first form: the seal says so, if these files are no longer that.
    """
    output = made.accepted or Accepted()
    rest = value_digest(node, output)
    # An input that was unknown at adoption is recorded as "?" and what the seal said of it then. What a section
    # was made from is never compared.
    parts = made.inputs.items() if node.spec.appends is None else ()
    return Seal(
        task=node.id,
        run=run_id,
        round=made.round,
        input_digest=made.input_digest,
        sha256="",
        marker=node.spec.marker or "",
        cost_usd=made.cost_usd,
        tokens=made.input_tokens + made.output_tokens,
        inputs=seals.name_inputs({name: part.removeprefix("?") for name, part in parts if part != "?"}),
        set_digest=set_digest(output.files),
        step_version=made.version,
        value_digest=rest,
        known_as="" if made.output_digest == output_digest(output.files, rest) else made.output_digest,
    )


def for_file(seal: Seal, file: FileRecord) -> Seal:
    """The seal of one of these files."""
    kind = "text" if file.kind in (SECTION, UNWRITTEN) else file.kind
    return seals.vary(seal, sha256=file.sha256, newline_added=file.newline_added, kind=kind)


def value_digest(node: Node, accepted: Accepted) -> str:
    """What the value beside a task's files is known by."""
    if accepted.value_ref:
        return accepted.value_ref
    data = bytes(accepted.value)
    return digest(data) if data else no_rest(node)


def no_rest(node: Node) -> str:
    """What stands for the value of a step that may give one beside its files, and gave none."""
    return EMPTY_REST if isinstance(node.spec.writes, dict) else ""


def spend_told(seal: Seal | None, run_id: str) -> tuple[float, int]:
    """The cost and tokens that a seal tells of this run: what another run has made, that one has paid for."""
    return (seal.cost_usd, seal.tokens) if seal is not None and seal.run == run_id else (0.0, 0)


def output_digest(files: list[FileRecord] | tuple[FileRecord, ...], value_digest: str) -> str:
    """What consumers know an output by. A newline of ours is not part of what the author wrote."""
    if len(files) == 1 and not value_digest and not files[0].key:
        return files[0].sha256 + ("-" if files[0].newline_added else "")
    if not files:
        return value_digest
    parts = {record.key: record.sha256 + ("-" if record.newline_added else "") for record in files}
    return digest(encode_json([parts, value_digest]))


def part_path(path: str) -> str:
    """Where an output lies while it grows."""
    return path + layout.PART_SUFFIX


_PARKED = ".moving-"


def parked_path(task: str, path: str) -> str:
    """Where a finished file waits that gave way to another: beside its old place, and sealed the same way."""
    folder, slash, name = path.rpartition("/")
    ending = name[name.rindex(".") :] if seals.is_inline(name) else ""
    return f"{folder}{slash}{_PARKED}{digest(f'{task} {path}'.encode())[:16]}{ending}"


def is_parked(path: str) -> bool:
    """Whether a file waits there: nobody else looks for such a name, so none may come back after a power cut."""
    return path.rpartition("/")[2].startswith(_PARKED)
