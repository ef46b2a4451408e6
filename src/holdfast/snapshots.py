"""Snapshots of a run's state: `checkpoint_NNNN.json`, each with proof of itself, at least two kept.

A snapshot is one JSON object whose last member is `"sha256"`, the hash of all bytes before the comma that
precedes it. The sidecar `checkpoint_NNNN.sha256` is for people (`sha256sum -c`); it decides nothing.

Crash story. A snapshot appears whole under its name or not at all; numbers only grow and are never used
twice; an old one is deleted only after newer ones were read back and proved. What is found damaged goes to
quarantine under a fresh name, and the next older one is tried. A file that could not be read for a reason
that says nothing about it (no descriptors, I/O error) is not damaged: that is a StorageError.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from holdfast import clock
from holdfast.errors import (
    CheckpointCorruptionError,
    FormatTooNewError,
    StorageError,
    UsageError,
    ValueRefusedError,
)
from holdfast.escaping import markdown_block, markdown_code, markdown_line
from holdfast.layout import QUARANTINE_DIR, RunLayout
from holdfast.pipeline.names import check_run_id, printable
from holdfast.stores import atomic, disk
from holdfast.values import decode_json, encode_json

KEEP_MIN = 2

_NAME = re.compile(r"checkpoint_(\d{4,12})\.json")
_NUMBERED = re.compile(r"checkpoint_(\d{4,12})\.")
_PROOF = re.compile(rb',?"sha256":"([0-9a-f]{64})"\}\n')
_PROOF_BYTES = len(b',"sha256":""}\n') + 64
_SIDECAR_MAX = 4096
# These say something about the file itself: it is set aside. All others say something about the machine.
_UNREADABLE = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR)

_FINISHED = ("completed", "failed")
_DAY_S = 86400.0
_TRASH = ".trash-"  # no run id begins with a dot
_SECTION = "<!-- holdfast-section "
_SCHEMA = "_schema_version"

Migration = Callable[[dict[str, Any]], dict[str, Any]]


class Loaded(msgspec.Struct, frozen=True):
    """A snapshot that proved itself: its JSON object without the proof, and what was damaged before it."""

    number: int
    path: Path
    payload: bytes
    damaged: list[str]


def write_snapshot(run_dir: Path, number: int, payload: bytes, *, tmp_dir: Path | None = None) -> Path:
    """Write the JSON object `payload` as snapshot `number`, durable on return; then its sidecar."""
    if payload[:1] != b"{" or payload[-1:] != b"}":
        raise ValueError("a snapshot must be one JSON object")
    covered = payload[:-1]
    comma = b"," if len(payload) > 2 else b""
    proof = hashlib.sha256(covered).hexdigest().encode()
    content = b'%s%s"sha256":"%s"}\n' % (covered, comma, proof)
    path = snapshot_path(run_dir, number)
    atomic.write_file(path, content, sync=True, tmp_dir=tmp_dir)
    atomic.write_file(sidecar_of(path), _sidecar_line(path, content), sync=False, tmp_dir=tmp_dir)
    return path


def read_snapshot(path: Path) -> bytes | None:
    """The JSON object of a snapshot without its proof, or None if it is damaged. OSErrors pass."""
    return _proved(atomic.read_file(path))


class Examined(msgspec.Struct, frozen=True):
    """A snapshot looked at in full: its JSON object (None: damaged), and what is wrong with its sidecar."""

    payload: bytes | None
    sidecar: str = ""  # "missing" | "stale"


def examine_snapshot(path: Path) -> Examined | None:
    """What a snapshot and its sidecar say of themselves; None if it is gone. OSErrors of the machine pass."""
    try:
        content = atomic.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        return Examined(None)
    return Examined(_proved(content), _examine_sidecar(path, content))


def _examine_sidecar(path: Path, content: bytes) -> str:
    try:
        sidecar = atomic.read_file(sidecar_of(path), limit=_SIDECAR_MAX)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        if error.errno not in (*_UNREADABLE, errno.EFBIG):
            raise
        return "stale"
    return "" if sidecar == _sidecar_line(path, content) else "stale"


def _sidecar_line(path: Path, content: bytes) -> bytes:
    return f"{hashlib.sha256(content).hexdigest()}  {path.name}\n".encode()


def _proved(content: bytes) -> bytes | None:
    start = max(0, len(content) - _PROOF_BYTES)
    proof = _PROOF.search(content, start)
    if proof is None or proof.end() != len(content):
        return None
    covered = content[: proof.start()]
    if hashlib.sha256(covered).hexdigest().encode() != proof[1]:
        return None
    payload = covered + b"}"
    try:
        msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return payload


def newest_snapshot(
    run_dir: Path, *, quarantine: Path | None, damaged: list[str] | None = None, below: int | None = None
) -> Loaded | None:
    """The newest snapshot that proves itself, or None; with `below`, of those of a lower number.

    Damaged ones on the way are moved to `quarantine` (None: nothing is changed) and named in `damaged`,
    the caller's list if given, also when no good one is left.
    """
    found = [] if damaged is None else damaged
    try:
        for number, path in snapshots(run_dir):
            if below is not None and number >= below:
                continue
            payload = _read_or_none(path)
            if payload is not None:
                return Loaded(number, path, payload, found)
            if os.path.lexists(path):
                found.append(put_away(path, quarantine, "is damaged"))
    except OSError as error:
        raise StorageError.from_os(error, "read the snapshots") from error
    return None


def _read_or_none(path: Path) -> bytes | None:
    try:
        return read_snapshot(path)
    except FileNotFoundError:
        return None  # rotated away while we looked
    except OSError as error:
        if error.errno in _UNREADABLE:
            return None
        raise


def put_away(path: Path, quarantine: Path | None, why: str) -> str:
    """Move a snapshot that cannot be used, and its sidecar, to `quarantine`; gives what to say about it."""
    if quarantine is None:
        return f"{path.name} {why}"
    kept_as = atomic.set_aside(path, quarantine)
    if os.path.lexists(sidecar_of(path)):
        atomic.set_aside(sidecar_of(path), quarantine)
    return f"{path.name} {why}; it is kept as {kept_as.name}"


def snapshots(run_dir: Path) -> list[tuple[int, Path]]:
    """Number and path of all snapshots, newest first; by number, since names past 9999 sort otherwise."""
    matches = [match for name in _names(run_dir) if (match := _NAME.fullmatch(name))]
    numbered = [(int(match[1]), run_dir / match[0]) for match in matches]
    return sorted(numbered, reverse=True)


def next_number(run_dir: Path, floor: int = 0) -> int:
    """A number above `floor` that no snapshot here or in quarantine ever had."""
    names = _names(run_dir) + _names(run_dir / QUARANTINE_DIR)
    numbers = [int(match[1]) for name in names if (match := _NUMBERED.match(name))]
    return 1 + max([floor, *numbers])


def rotate(
    run_dir: Path,
    keep: int,
    *,
    written: Path | None = None,
    quarantine: Path | None = None,
    damaged: list[str] | None = None,
) -> list[Path]:
    """Delete snapshots older than the newest `keep` (at least 2) that prove themselves; gives the deleted.

    Those on the way that do not are moved to `quarantine`, if one is given, and named in `damaged`. The one that
    was `written` a moment ago is not read again.
    """
    paths = [path for _, path in snapshots(run_dir)]
    known = paths[:1] == [written]
    rotten, surplus = plan_rotation(paths[1:] if known else paths, keep, verified=int(known))
    if quarantine is not None and damaged is not None:
        damaged += [put_away(path, quarantine, "is damaged") for path in rotten]
    return [path for path in reversed(surplus) if _delete(path)]


def plan_rotation(paths: Iterable[Path], keep: int, verified: int = 0) -> tuple[list[Path], list[Path]]:
    """Which of these snapshots, newest first, are damaged, and which are surplus. Read-only.

    `verified`: how many newer ones there are that need no look.
    """
    rotten: list[Path] = []
    surplus: list[Path] = []
    for path in paths:
        if verified >= max(keep, KEEP_MIN):
            surplus.append(path)
        elif _read_or_none(path) is not None:
            verified += 1
        elif os.path.lexists(path):
            rotten.append(path)
    return rotten, surplus


def _delete(path: Path) -> bool:
    """The sidecar first: a kill in between leaves a snapshot without sidecar, which is still whole."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        beside = sidecar_of(path)
        if os.path.lexists(beside) and not (beside.is_dir() and not beside.is_symlink()):
            disk.unlink(os.fspath(beside))
        disk.unlink(os.fspath(path))
    except FileNotFoundError:
        pass  # someone else was faster
    return True


def snapshot_path(run_dir: Path, number: int) -> Path:
    return run_dir / f"checkpoint_{number:04d}.json"


def sidecar_of(path: Path) -> Path:
    """Where the hash of a snapshot stands for people."""
    return path.with_suffix(".sha256")


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


class CheckpointManager:
    """Durable state for people who have their own orchestrator: a dict, saved as numbered snapshots.

    The snapshot is the dict itself plus run_id, updated_at and _schema_version. One process writes a run
    at a time (nothing here locks against a second one); `save` may be called from several threads.
    `migrations` maps version v to the function that makes a state of v one of v + 1.
    """

    def __init__(
        self,
        run_id: str,
        base_path: str | os.PathLike[str] = ".holdfast/runs",
        *,
        keep: int = 5,
        migrations: Mapping[int, Migration] | None = None,
    ) -> None:
        problem = check_run_id(run_id)
        if problem:
            raise UsageError(f"The run id '{printable(run_id)}' {problem}.")
        self.run_id = run_id
        self.layout = RunLayout(Path(base_path) / run_id)
        self.notices: list[str] = []  # what was found damaged, and where it is kept
        self._keep = keep
        self._migrations = _unbroken(migrations or {})
        self._version = max(self._migrations, default=-1) + 1
        self._mutex = threading.Lock()
        self._last_number = 0

    def load(self) -> dict[str, Any] | None:
        """The newest state that proves itself, migrated; None if none was ever saved."""
        damaged: list[str] = []
        loaded = newest_snapshot(self.layout.dir, quarantine=self.layout.quarantine, damaged=damaged)
        self.notices += damaged
        if loaded is not None:
            return self._migrated(decode_json(loaded.payload))
        # Damage found earlier counts too: a second try must not look like a run that never was.
        if damaged or any(_NUMBERED.match(name) for name in _names(self.layout.quarantine)):
            raise CheckpointCorruptionError(
                f"Run {self.run_id} has only damaged snapshots; they are kept in {self.layout.quarantine}.",
                fix="Put a good copy back as checkpoint_NNNN.json, or begin under another run id.",
            )
        return None

    def load_or_create(self, **meta: Any) -> dict[str, Any]:
        """The newest state; if there is none, a new one with `meta` in it, saved."""
        state = self.load()
        if state is None:
            started = clock.iso(clock.now())
            state = {"run_id": self.run_id, "status": "in_progress", "started_at": started, **meta}
            self.save(state)
        return state

    def save(self, state: dict[str, Any]) -> Path:
        """Save `state`, durable on return; sets its run_id, updated_at and _schema_version.

        A newer program's state is never covered by an older one's: FormatTooNewError.
        """
        self._refuse_foreign(state)
        stamps = {"run_id": self.run_id, "updated_at": clock.iso(clock.now()), _SCHEMA: self._version}
        payload = encode_json({**state, **stamps}, "state")
        try:
            with self._mutex:
                path = self._write(payload)
        except OSError as error:
            raise StorageError.from_os(error, "save the checkpoint") from error
        state.update(stamps)
        return path

    def section(self, text: str, title: str = "", sources: Iterable[str] = ()) -> Path:
        """Put a section into progress.md; one with the same title takes the place of the older.

        `text` is Markdown. It stays within its section: headings become smaller, HTML is shown and not obeyed.
        """
        for words in (text, title, *(listed := list(sources))):
            if not isinstance(words, str):
                raise ValueRefusedError(f"A section is made of text, not of {printable(words)}.", where="section")
        try:
            with self._mutex:
                atomic.make_dirs(self.layout.dir, sync=True)
                atomic.write_file(
                    self.layout.progress,
                    _with_section(self._progress(), text, title, listed).encode(),
                    sync=True,
                )
        except OSError as error:
            raise StorageError.from_os(error, "write progress.md") from error
        return self.layout.progress

    @classmethod
    def list_runs(cls, base_path: str | os.PathLike[str] = ".holdfast/runs") -> list[dict[str, Any]]:
        """What is known of every run, last updated first: run_id, status, started_at, updated_at, path."""
        base = Path(base_path)
        try:
            runs = [_describe(base / name) for name in _names(base) if check_run_id(name) is None]
        except OSError as error:
            raise StorageError.from_os(error, "list the runs") from error
        known = [run for run in runs if run is not None]
        return sorted(known, key=lambda run: (run["updated_at"] or "", run["run_id"]), reverse=True)

    @classmethod
    def cleanup_old_runs(
        cls,
        base_path: str | os.PathLike[str] = ".holdfast/runs",
        max_age_days: float = 30,
        max_runs: int = 50,
        dry_run: bool = False,
    ) -> list[str]:
        """Delete finished runs that are too old or beyond the newest `max_runs`; gives their ids.

        A run leaves the list in one rename before its files go, so a kill leaves no half of a run; what a
        killed clean-up left is deleted by the next. An unfinished run, or one of unknown age, stays.
        """
        oldest = clock.now() - max_age_days * _DAY_S
        doomed = [
            run["run_id"]
            for rank, run in enumerate(cls.list_runs(base_path))
            if run["status"] in _FINISHED and _is_due(run["updated_at"], rank >= max_runs, oldest)
        ]
        if not dry_run:
            _delete_runs(Path(base_path), doomed)
        return doomed

    def _write(self, payload: bytes) -> Path:
        run_dir = self.layout.dir
        if not self._last_number:
            atomic.make_dirs(run_dir, sync=True)
            self._refuse_newer_on_disk()
        number = next_number(run_dir, self._last_number)
        path = write_snapshot(run_dir, number, payload)
        self._last_number = number
        atomic.write_file(self.layout.summary, msgspec.json.format(payload) + b"\n", sync=False)
        rotate(run_dir, self._keep, written=path)
        return path

    def _refuse_newer_on_disk(self) -> None:
        newest = newest_snapshot(self.layout.dir, quarantine=None)
        if newest is not None:
            self._refuse_newer(decode_json(newest.payload))

    def _refuse_newer(self, state: dict[str, Any]) -> None:
        version = state.get(_SCHEMA, 0)
        if isinstance(version, int) and version > self._version:
            raise FormatTooNewError(
                f"The state of run {self.run_id} has version {version}; known are up to {self._version}.",
                fix="Use the newer program that saved it. Nothing was changed.",
            )

    def _refuse_foreign(self, state: dict[str, Any]) -> None:
        if not isinstance(state, dict):
            raise ValueRefusedError(f"The state must be a dict, not {printable(state)}.", where="state")
        self._refuse_newer(state)
        if state.get("run_id", self.run_id) != self.run_id:
            raise UsageError(f"This state belongs to run '{printable(state['run_id'])}', not to {self.run_id}.")
        if "sha256" in state:
            raise ValueRefusedError(
                "state.sha256 is the name of the snapshot's own proof.",
                where="state.sha256",
                fix="Rename it.",
            )

    def _migrated(self, state: dict[str, Any]) -> dict[str, Any]:
        version = state.get(_SCHEMA, 0)
        if not isinstance(version, int) or isinstance(version, bool) or version < 0:
            raise CheckpointCorruptionError(f"The state of run {self.run_id} has no valid {_SCHEMA}.")
        self._refuse_newer(state)
        for step in range(version, self._version):
            state = self._migrate_once(state, step)
        return state

    def _migrate_once(self, state: dict[str, Any], version: int) -> dict[str, Any]:
        migrate = self._migrations.get(version)
        if migrate is None:
            raise CheckpointCorruptionError(
                f"Run {self.run_id} needs a migration from version {version} to {version + 1}.",
                fix=f"Pass migrations={{{version}: ...}}.",
            )
        migrated = migrate(state)
        if not isinstance(migrated, dict):
            raise UsageError(f"The migration of version {version} must return the state, a dict.")
        migrated[_SCHEMA] = version + 1
        return migrated

    def _progress(self) -> str:
        try:
            return atomic.read_file(self.layout.progress).decode("utf-8")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            pass
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
        kept_as = atomic.set_aside(self.layout.progress, self.layout.quarantine)
        self.notices.append(f"progress.md was damaged and is kept as {kept_as.name}")
        return ""


def _unbroken(migrations: Mapping[int, Migration]) -> dict[int, Migration]:
    """The migrations, if they lead from one version to the next; the oldest versions may be given up."""
    for version, migrate in migrations.items():
        if not isinstance(version, int) or isinstance(version, bool) or version < 0 or not callable(migrate):
            raise UsageError("migrations must map version numbers, from 0 on, to functions.")
    chain = range(min(migrations, default=0), max(migrations, default=0))
    missing = [str(version) for version in chain if version not in migrations]
    if missing:
        raise UsageError(f"migrations has a gap: there is none from version {', '.join(missing)}.")
    return dict(migrations)


def _with_section(progress: str, text: str, title: str, sources: list[str]) -> str:
    """`progress` with the section added, or replaced where one of this title stands."""
    key = hashlib.sha256(title.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    lines = [markdown_block(text)]  # which leaves no mark of ours in it
    if title:
        lines[:0] = [f"## {markdown_line(title)}", ""]
    if sources:
        lines += ["", "Sources:", *(f"- {markdown_code(source)}" for source in sources)]
    section = f"{_SECTION}{key} -->\n" + "\n".join(lines) + "\n\n"
    head, *sections = progress.split(_SECTION)
    marked = [_SECTION + part for part in sections]
    places = [index for index, part in enumerate(marked) if part.startswith(f"{_SECTION}{key} -->")]
    if places:
        marked[places[0]] = section
    else:
        marked.append(section)
    return head + "".join(marked)


def _describe(run_dir: Path) -> dict[str, Any] | None:
    """One row of `list_runs`, from checkpoint.json or else the newest snapshot; None if it is no run."""
    if not stat.S_ISDIR(os.lstat(run_dir).st_mode):
        return None
    state = _summary(run_dir)
    if state is None:
        loaded = newest_snapshot(run_dir, quarantine=None)
        state = decode_json(loaded.payload) if loaded else {"status": "unknown"}
    known = {name: state.get(name) for name in ("pipeline", "status", "started_at", "updated_at")}
    return {"run_id": run_dir.name, **known, "path": str(run_dir)}


def _summary(run_dir: Path) -> dict[str, Any] | None:
    try:
        state = decode_json(atomic.read_file(RunLayout(run_dir).summary))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    except OSError as error:
        if error.errno in _UNREADABLE:
            return None
        raise
    return state if isinstance(state, dict) and "status" in state else None


def _is_due(updated_at: object, is_surplus: bool, oldest: float) -> bool:
    try:
        updated = clock.parse_iso(str(updated_at))
    except ValueError:
        return False
    return is_surplus or updated < oldest


def _delete_runs(base: Path, run_ids: list[str]) -> None:
    try:
        _empty_trash(base)  # what a killed clean-up left would be in the way of the renames
        for run_id in run_ids:
            disk.rename(os.fspath(base / run_id), os.fspath(base / f"{_TRASH}{run_id}"))
        _empty_trash(base)
    except OSError as error:
        raise StorageError.from_os(error, "delete old runs") from error


def _empty_trash(base: Path) -> None:
    for name in _names(base):
        if name.startswith(_TRASH):
            disk.remove_tree(os.fspath(base / name))
