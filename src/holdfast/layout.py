"""The name of every file and folder that Holdfast writes. Nothing else spells them."""

from __future__ import annotations

from pathlib import Path

STATE_DIR = ".holdfast"
ENGINE_LOCK = "engine.lock"
APPEND_LOCK = "append.lock"
TODOS_DB = "todos.db"
OBJECTS_DIR = "objects"
RUNS_DIR = "runs"
TMP_DIR = "tmp"
PACK_SUFFIX = ".pack"

JOURNAL = "events.jsonl"
SUMMARY = "checkpoint.json"
PROGRESS = "progress.md"
QUARANTINE_DIR = "quarantine"
REFUSED_DIR = "refused"  # in it: outputs that were not accepted
LOGS_DIR = "logs"

CHECKPOINT_VIEW = "checkpoint.md"
RESUME_VIEW = "RESUME.md"
SETTINGS_FILE = "holdfast.toml"

SEAL_SUFFIX = ".seal"
PART_SUFFIX = ".part"


def objects_path(objects: Path, run_id: str) -> Path:
    """Where the objects of a run are kept."""
    return objects / run_id


class ProjectLayout:
    """Where everything of one project lies. Builds paths, touches nothing."""

    __slots__ = ("root", "state")

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / STATE_DIR

    @property
    def engine_lock(self) -> Path:
        return self.state / ENGINE_LOCK

    @property
    def append_lock(self) -> Path:
        return self.state / APPEND_LOCK

    @property
    def todos_db(self) -> Path:
        return self.state / TODOS_DB

    @property
    def objects(self) -> Path:
        return self.state / OBJECTS_DIR

    @property
    def runs(self) -> Path:
        return self.state / RUNS_DIR

    @property
    def tmp(self) -> Path:
        return self.state / TMP_DIR

    @property
    def checkpoint_view(self) -> Path:
        return self.root / CHECKPOINT_VIEW

    @property
    def resume_view(self) -> Path:
        return self.root / RESUME_VIEW

    def run(self, run_id: str) -> RunLayout:
        return RunLayout(self.runs / run_id)


class RunLayout:
    """Where everything of one run lies."""

    __slots__ = ("dir",)

    def __init__(self, run_dir: Path) -> None:
        self.dir = run_dir

    @property
    def journal(self) -> Path:
        return self.dir / JOURNAL

    @property
    def append_lock(self) -> Path:
        """One for all runs of the project."""
        return self.dir.parent.parent / APPEND_LOCK

    @property
    def summary(self) -> Path:
        return self.dir / SUMMARY

    @property
    def progress(self) -> Path:
        return self.dir / PROGRESS

    @property
    def quarantine(self) -> Path:
        return self.dir / QUARANTINE_DIR

    @property
    def logs(self) -> Path:
        return self.dir / LOGS_DIR
