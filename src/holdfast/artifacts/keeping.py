"""What counts as done: a step's output as files and values; storing, healing, loading them.

Crash story of `store`: objects are appended first, then each sealed file is renamed into place. Neither is
synced here (the commit syncs the pack before it appends the event), except a file that has no object copy, or that
takes the place of an earlier version. A crash before the event leaves a whole sealed file: the next run adopts it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import seals
from holdfast.artifacts.bookshelf import Bookshelf
from holdfast.artifacts.files import ADDED_MAX, Files, mark_of
from holdfast.artifacts.looks import Look, above_any_seal
from holdfast.artifacts.products import (
    EMPTY_REST,
    NOTHING,
    SECTION,
    UNWRITTEN,
    OutputRefusedError,
    output_digest,
    prepare_file,
    set_digest,
    split_output,
)
from holdfast.artifacts.recent import Recent
from holdfast.artifacts.sections import Sections
from holdfast.errors import InTheWayError
from holdfast.events import NO_VALUE, FileRecord
from holdfast.layout import REFUSED_DIR
from holdfast.pipeline.spec import StepSpec
from holdfast.seals import Seal
from holdfast.state import Accepted
from holdfast.stores import asides, atomic, disk, readable
from holdfast.stores.protocols import Objects
from holdfast.stores.readable import NOT_TO_BE_HAD, naming
from holdfast.stores.tree import WorkTree
from holdfast.values import INLINE_VALUE_MAX, decode_json, digest, encode_json


class Artifacts:
    """Reads and writes the outputs of one run's tasks."""

    def __init__(self, tree: WorkTree, objects: Objects, *, quick: bool = False) -> None:
        self.tree = tree
        self.objects = objects
        self.recent = Recent()
        self.books = Bookshelf(tree)
        self.sections = Sections(self.books, objects, self.recent)
        self.files = Files(tree, self.sections, quick=quick)

    # --- storing -------------------------------------------------------------------------------------------

    def store(
        self, step: StepSpec, paths: Mapping[str, str], output: Any, seal: Seal, *, sync: bool = False
    ) -> tuple[Accepted, str]:
        """Put an accepted output in its place; gives the record and the digest consumers know it by.

        `sync` although there is a copy, if it takes another's place.
        """
        pieces, rest = split_output(step, output)
        for piece in pieces.values():
            if isinstance(piece, Path):  # before anything is written to it
                self.tree.make_own(piece)
        prepared = {key: prepare_file(step, paths[key], piece) for key, piece in pieces.items()}
        files = [replace(record, key=key, stored=step.copy) for key, (record, _) in prepared.items()]
        # The value first, by hash and durable: files that a kill or power cut leaves without a record name it.
        ref = self._store_rest(rest) if rest is not NOTHING else ""
        if ref not in ("", EMPTY_REST):
            self.objects.sync()
        whole = seals.vary(seal, set_digest=set_digest(files), value_digest=ref)
        for index, record in enumerate(files):
            mark = self._store_file(record, prepared[record.key][1], whole, sync=sync)
            files[index] = replace(record, mark=mark)
        return Accepted(tuple(files), NO_VALUE, "" if ref == EMPTY_REST else ref), output_digest(files, ref)

    def store_again(self, step: StepSpec, before: Accepted, output: Any, seal: Seal) -> Accepted:
        """Put another form of an accepted output in its place, large files excepted; gives the record."""
        pieces, rest = split_output(step, output)
        files, bodies = [], {}
        for old in before.files:
            piece, record = pieces[old.key], old
            if not isinstance(piece, Path):
                made, bodies[old.key] = prepare_file(step, old.path, piece)
                record = replace(made, key=old.key, stored=step.copy)
            elif piece != self.tree.root / old.path:
                raise OutputRefusedError(f"the file {piece.name}, which cannot take the place of {old.path}")
            files.append(record)
        ref = self._store_rest(rest) if rest is not NOTHING else ""
        for old in before.files if len(files) > 1 else ():
            if old.key in bodies and not old.stored:  # all of them are wanted if this is cut off halfway
                self.objects.put(self.body(old), old.sha256)
        self.objects.sync()
        whole = seals.vary(seal, set_digest=set_digest(files), value_digest=ref)
        for index, record in enumerate(files):
            if record.key in bodies:
                self._announce(record, whole)
                # Synced although it has a copy: after a power cut the old form would look like somebody's edit.
                mark = self._store_file(record, bodies[record.key], whole, sync=True)
                files[index] = replace(record, mark=mark)
            else:
                self.reseal(record, whole)
        return Accepted(tuple(files), NO_VALUE, "" if ref == EMPTY_REST else ref)

    def _announce(self, record: FileRecord, seal: Seal) -> None:
        """Have the seal beside a file speak for what will replace it, too: whenever a kill comes, one fits."""
        if not seals.is_inline(record.path):
            old = self.files.seal_beside(record.path)
            lines = b"".join(seals.write_seal(one) for one in (old, self.sealed(record, seal)) if one is not None)
            self.tree.write(seals.seal_path(record.path), lines, sync=not record.stored)

    def _store_rest(self, rest: Mapping[str, Any]) -> str:
        data = encode_json(rest)
        return self.objects.put(data) if rest else EMPTY_REST

    def rest_of(self, seal: Seal) -> str | None:
        """The reference of the value that belongs to sealed files; None if it is lost."""
        if seal.value_digest in ("", EMPTY_REST):
            return ""
        return seal.value_digest if self.objects.has(seal.value_digest) else None

    def store_value(self, value: Any, where: str = "value") -> tuple[msgspec.Raw, str, str]:
        """A JSON value, inline or by hash: (inline bytes, reference, digest)."""
        data = encode_json(value, where)
        if len(data) <= INLINE_VALUE_MAX:
            return msgspec.Raw(data), "", digest(data)
        ref = self.objects.put(data)
        return NO_VALUE, ref, ref

    def _store_file(self, record: FileRecord, body: bytes | Path, seal: Seal, *, sync: bool) -> str:
        seal = self.sealed(record, seal)
        if isinstance(body, Path):
            return self._store_large(record, body, seal, sync=sync)
        if record.stored:
            self.objects.put(body, record.sha256)
            self.recent.keep(record.sha256, body)
        return self.place(record, body, seal, sync=sync)

    def place(self, record: FileRecord, body: bytes, seal: Seal, *, sync: bool = False) -> str:
        """Write one sealed file; gives its mark. One without a copy is always synced.

        The seal beside a file comes last: without it the file proves nothing.
        """
        line, sync = seals.write_seal(seal), sync or not record.stored
        if seals.is_inline(record.path):
            return mark_of(self.tree.write(record.path, body + line, sync=sync))
        status = self.tree.write(record.path, body, sync=sync)
        self.tree.write(seals.seal_path(record.path), line, sync=sync)
        return mark_of(status)

    def keep_refused(self, data: bytes, name: str, quarantine: Path) -> str:
        """Keep an output that was refused; gives where, relative to the run's folder."""
        folder = quarantine / REFUSED_DIR
        atomic.make_dirs(folder, sync=False)
        path, descriptor = asides.fresh_file(folder, name)
        try:
            disk.write_all(descriptor, data, str(path))
        finally:
            os.close(descriptor)
        return f"{quarantine.name}/{REFUSED_DIR}/{path.name}"

    def move_refused(self, source: Path, quarantine: Path) -> str:
        """As `keep_refused`, of a file that the step wrote itself."""
        return f"{quarantine.name}/{REFUSED_DIR}/{asides.set_aside(source, quarantine / REFUSED_DIR).name}"

    def _store_large(self, record: FileRecord, source: Path, seal: Seal, *, sync: bool) -> str:
        self.files.has_large = True
        if record.stored:
            with readable.opened(source) as reader:
                self.objects.put_blocks(readable.blocks(reader))
        return self._place_large(record, source, seal, sync=sync)

    def _place_large(self, record: FileRecord, source: Path, seal: Seal, *, sync: bool = False) -> str:
        """Seal a file that is on the disk already, and move it into place; gives its mark."""
        line, sync = seals.write_seal(seal), sync or not record.stored
        if seals.is_inline(record.path):
            self.tree.extend_temp(source, line)
        status = self.tree.move_in(source, record.path, sync=sync)
        if not seals.is_inline(record.path):
            self.tree.write(seals.seal_path(record.path), line, sync=sync)
        return mark_of(status)

    # --- healing and sealing anew --------------------------------------------------------------------------

    def heal(self, record: FileRecord, seal: Seal) -> bool:
        """Put an accepted file back from objects/; False if no whole copy is there."""
        if not record.stored:
            return False
        if record.kind == "path":
            return self._heal_large(record, seal)
        body = self.objects.get(record.sha256)
        if body is None:
            return False
        self.place(record, body, self.sealed(record, seal))
        return True

    def _heal_large(self, record: FileRecord, seal: Seal) -> bool:
        temp = self.tree.fresh_temp()
        if not self.objects.copy_to(record.sha256, temp):
            return False
        self.files.note_proved(record, self._place_large(record, temp, self.sealed(record, seal)))
        return True

    def can_heal(self, record: FileRecord) -> bool:
        """Whether a copy is there; a large one is proved only while it is put back."""
        if not record.stored:
            return False
        return (
            self.objects.has(record.sha256)
            if record.kind == "path"
            else self.objects.get(record.sha256) is not None
        )

    def reseal(self, record: FileRecord, seal: Seal, *, body: bytes | None = None, sync: bool = False) -> None:
        """Give a file that is there a new seal over the body the record names; `sync` if no record has it yet.

        `body`, if the caller has it: that of a text without a last newline is not yet on the disk as it is sealed.
        """
        if record.kind == "path" and not seals.is_inline(record.path):
            line = seals.write_seal(self.sealed(record, seal))
            self.tree.write(seals.seal_path(record.path), line, sync=not record.stored)
            return
        found = self.body(record) if body is None else body
        self.place(record, found, self.sealed(record, seal), sync=sync)

    def sealed(self, record: FileRecord, seal: Seal) -> Seal:
        """`seal` completed with what the record says of one file."""
        return seals.vary(seal, sha256=record.sha256, newline_added=record.newline_added, kind=record.kind)

    # --- loading -------------------------------------------------------------------------------------------

    def load(self, accepted: Accepted) -> Any:
        """The output as consumers receive it: a fresh copy, verified against what was accepted."""
        if not accepted.files:
            return self.load_value(accepted.value, accepted.value_ref)
        loaded = {record.key: self._load_file(record) for record in accepted.files}
        if set(loaded) == {""}:
            return loaded[""]
        value = self.load_value(accepted.value, accepted.value_ref)
        return {**value, **loaded}

    def load_value(self, value: msgspec.Raw, ref: str) -> Any:
        if not ref:
            return decode_json(value) if value else {}
        stored = self.objects.get(ref)
        if stored is None:
            raise LostValueError(f"the value {ref[:12]} is missing from objects/ or damaged")
        return decode_json(stored)

    def _load_file(self, record: FileRecord) -> Any:
        if record.kind == "path":
            self.files.has_large = True
            if not self.files.is_still(record):
                raise LostValueError(f"{record.path} is no longer what was accepted")
            return self.tree.root / record.path
        body = self.body(record)
        author = seals.author_body(body, record.newline_added)
        if record.kind in ("text", SECTION, UNWRITTEN):
            return author.decode()
        return decode_json(author) if record.kind == "json" else author

    def body(self, record: FileRecord) -> bytes:
        """The accepted bytes: just accepted, or from the work tree if they are still those, else from objects/."""
        if record.kind in (SECTION, UNWRITTEN):
            return self._section(record)
        recent = self.recent.get(record.sha256)
        if recent is not None:
            return recent
        try:
            data = self.tree.read(record.path, record.size + ADDED_MAX)
        except OSError as error:
            if error.errno not in NOT_TO_BE_HAD:
                raise
            data = b""
        for candidate in (*above_any_seal(record.path, data), data[: record.size]):  # there may be more below
            if digest(candidate) == record.sha256:
                return candidate
        stored = self.objects.get(record.sha256)
        if stored is None:
            raise LostValueError(f"{record.path} is no longer what was accepted, and objects/ has no copy")
        return stored

    def _section(self, record: FileRecord) -> bytes:
        body = self.sections.body(record)
        if body is None:
            raise LostValueError(f"a section of {record.path} is neither in objects/ nor in the file any more")
        return body

    def keep_again(self, record: FileRecord) -> bool:
        """Copy a file that is whole in the work tree into objects/ once more; False if it is not whole there."""
        try:
            if record.kind != "path":
                self.objects.put(self.body(record), record.sha256)
                return True
            reader = self.tree.open_read(record.path)
        except (LostValueError, InTheWayError):
            return False
        except OSError as error:
            if error.errno not in NOT_TO_BE_HAD:
                raise
            return False
        try:
            with naming(record.path):
                return self.objects.put_blocks(readable.blocks(reader, record.size), record.sha256) is not None
        finally:
            os.close(reader)

    def is_spare(self, found: Look, run_id: str) -> bool:
        """Whether a file is another run's, whole, and in objects/: with `overwrite`, nothing is lost with it."""
        seal = found.seal
        is_theirs = seal is not None and seal.run != run_id and digest(found.body) == seal.sha256
        return is_theirs and seal is not None and self.objects.get(seal.sha256) is not None

    def is_stored(self, accepted: Accepted) -> bool:
        """Whether a value kept by hash is still there."""
        return not accepted.value_ref or self.objects.has(accepted.value_ref)


class LostValueError(Exception):
    """An accepted output that cannot be read back any more."""
