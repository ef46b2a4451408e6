"""`CheckpointManager`: snapshots of a dict, for those who have an orchestrator of their own.

The files are those of snapshots.py, and so is their crash story; progress.md is whole under its name, or not
there. A state that a newer program wrote is never written over.
"""

from __future__ import annotations

import hashlib
import os
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
from holdfast.layout import RunLayout
from holdfast.pipeline.names import as_given, as_path, check_run_id, printable
from holdfast.snapshots import NUMBERED, names_in, newest_snapshot, next_number, rotate, write_snapshot
from holdfast.stores import asides, atomic, disk, readable
from holdfast.values import decode_json, encode_json

_FINISHED = ("completed", "failed")
_DAY_S = 86400.0
_TRASH = ".trash-"  # no run id begins with a dot
_SECTION = "<!-- holdfast-section "
_SCHEMA = "_schema_version"

Migration = Callable[[dict[str, Any]], dict[str, Any]]


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
        self.layout = RunLayout(as_path(base_path, "base_path") / run_id)
        self.notices: list[str] = []  # what was found damaged, and where it is kept
        self._keep = _whole("keep", keep)
        self._migrations = _unbroken({} if migrations is None else migrations)
        self._version = max(self._migrations, default=-1) + 1
        self._mutex = threading.Lock()
        self._last_number = 0

    def load(self) -> dict[str, Any] | None:
        """The newest state that proves itself, migrated; None if none was ever saved."""
        self._refuse_link()
        damaged: list[str] = []
        loaded = newest_snapshot(self.layout.dir, quarantine=self.layout.quarantine, damaged=damaged)
        self.notices += damaged
        if loaded is not None:
            return self._migrated(decode_json(loaded.payload))
        # Damage found earlier counts too: a second try must not look like a run that never was.
        if damaged or any(NUMBERED.match(name) for name in names_in(self.layout.quarantine)):
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
        self._refuse_link()
        self._refuse_foreign(state)
        try:
            # Within: what is read of a state that threads share is never older than what was saved of it.
            with self._mutex:
                stamps = {"run_id": self.run_id, "updated_at": clock.iso(clock.now()), _SCHEMA: self._version}
                path = self._write(encode_json({**state, **stamps}, "state"))
        except OSError as error:
            raise StorageError.from_os(error, "save the checkpoint") from error
        state.update(stamps)
        return path

    def section(self, text: str, title: str = "", sources: Iterable[str] = ()) -> Path:
        """Put a section into progress.md; one with the same title takes the place of the older.

        `text` is Markdown. It stays within its section: headings become smaller, HTML is shown and not obeyed.
        """
        if isinstance(sources, str) or not isinstance(sources, Iterable):
            words = f"The sources of a section are a list of texts, not {printable(sources)}."
            raise ValueRefusedError(words, where="section")
        for words in (text, title, *(listed := list(sources))):
            if not isinstance(words, str):
                raise ValueRefusedError(f"A section is made of text, not of {printable(words)}.", where="section")
        self._refuse_link()
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
        base = as_path(base_path, "base_path")
        try:
            runs = [_describe(base / name) for name in names_in(base) if check_run_id(name) is None]
        except OSError as error:
            raise StorageError.from_os(error, "list the runs") from error
        known = [run for run in runs if run is not None]
        return sorted(known, key=lambda run: (str(run["updated_at"] or ""), run["run_id"]), reverse=True)

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
        _refuse_no_limits(max_age_days, max_runs, dry_run)
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

    def _refuse_link(self) -> None:
        """Whatever it leads to, `list_runs` and `cleanup_old_runs` would not take it for this run."""
        if self.layout.dir.is_symlink():
            raise UsageError(
                f"The folder {printable(str(self.layout.dir), 200)} of run {self.run_id} is a symbolic link.",
                fix="Put a folder there, or begin under another run id.",
            )

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
            return readable.read_file(self.layout.progress).decode("utf-8")
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            pass
        except OSError as error:
            if error.errno not in readable.UNREADABLE:
                raise
        kept_as = asides.set_aside(self.layout.progress, self.layout.quarantine)
        self.notices.append(f"progress.md was damaged and is kept as {kept_as.name}")
        return ""


def _whole(argument: str, given: Any) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise UsageError(f"{argument} must be a whole number from 0, not {as_given(given)}.")
    return given


def _refuse_no_limits(max_age_days: Any, max_runs: Any, dry_run: Any) -> None:
    """What is wrong here would delete runs, or none, unasked."""
    if isinstance(max_age_days, bool) or not isinstance(max_age_days, int | float) or not max_age_days >= 0:
        raise UsageError(f"max_age_days must be a number from 0, not {as_given(max_age_days)}.")
    _whole("max_runs", max_runs)
    if not isinstance(dry_run, bool):
        raise UsageError(f"dry_run must be True or False, not {as_given(dry_run)}.")


def _unbroken(migrations: Mapping[int, Migration]) -> dict[int, Migration]:
    """The migrations, if they lead from one version to the next; the oldest versions may be given up."""
    if not isinstance(migrations, Mapping):
        raise UsageError(f"migrations must be a dict, not {printable(migrations)}.")
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
    try:
        if not stat.S_ISDIR(os.lstat(run_dir).st_mode):
            return None
    except FileNotFoundError:
        return None  # cleaned away while we looked
    state = _summary(run_dir)
    if state is None:
        loaded = newest_snapshot(run_dir, quarantine=None)
        state = decode_json(loaded.payload) if loaded else {"status": "unknown"}
    known = {name: state.get(name) for name in ("pipeline", "status", "started_at", "updated_at")}
    return {"run_id": run_dir.name, **known, "path": str(run_dir)}


def _summary(run_dir: Path) -> dict[str, Any] | None:
    try:
        state = decode_json(readable.read_file(RunLayout(run_dir).summary))
    except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    except OSError as error:
        if error.errno in readable.UNREADABLE:
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
    for name in names_in(base):
        if name.startswith(_TRASH):
            disk.remove_tree(os.fspath(base / name))
