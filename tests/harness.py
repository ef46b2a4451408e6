"""Hold a project in a folder as tests reach it: the verbs of `holdfast.Project`, its files and events.

`Harness` calls the verbs in this process, `Commands` types them: each command is a process, forked from one that
has imported everything. Both know the documented names of files, and nothing of what is inside.

    declare      the pipeline: an object, or text that is written to a file
    run, resume, plan, why, recover, verify, scan, approve, reject, decide, retry, note, picture
    events       of a run, by name or task; `journal`, `folder`: where its record lies
    damage       a file: deleted, empty, cut, flipped, folder, link (and `edit`: by a person)
    lose         the record, the runs, the objects or a view; any file
    killed_in    SIGKILL in the body of a task; `killed_at`: before the N-th operation on the disk
    artifacts    every file of the work tree that a step made; `bodies`: the same without seals
    ran          the bodies that ran since this was last asked, from a log outside the project
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

import holdfast
from children import unsynced
from forking import HUNG, KILLED, Said, processes
from holdfast import CheckpointCorruptionError, EventLog, Pipeline, seals
from holdfast.project.results import beside
from holdfast.project.run import RunResult
from holdfast.stores.lock import LocalLease

if TYPE_CHECKING:
    from holdfast.project import results
    from holdfast.views.picture import Picture

PATIENCE_S = 30  # a hang is a failure, not a wait
STATE = ".holdfast"
VIEWS = ("RESUME.md", "checkpoint.md")
LOST = {
    "record": (STATE,),
    "runs": (f"{STATE}/runs",),
    "objects": (f"{STATE}/objects",),
    "views": (*VIEWS, f"{STATE}/todos.db"),
}


class Folder:
    """The files of a project, and where Holdfast keeps what."""

    pipeline_file = "book.py"

    def __init__(self, root: Path) -> None:
        self.root = root
        self._seen = 0

    @property
    def outside(self) -> Path:
        """Where bodies say that they ran."""
        return self.root.parent / "outside"

    # --- where things are ------------------------------------------------------------------------------------

    @property
    def state(self) -> Path:
        return self.root / STATE

    @property
    def runs(self) -> Path:
        return self.state / "runs"

    @property
    def objects(self) -> Path:
        return self.state / "objects"

    @property
    def todos_db(self) -> Path:
        return self.state / "todos.db"

    def folder(self, run_id: str | None = None) -> Path:
        """Of that run, or of the only one."""
        if run_id is not None:
            return self.runs / run_id
        (only,) = self.runs.iterdir()
        return only

    def journal(self, run_id: str | None = None) -> Path:
        return self.folder(run_id) / "events.jsonl"

    def snapshots(self, run_id: str | None = None) -> list[Path]:
        """Oldest first."""
        return sorted(self.folder(run_id).glob("checkpoint_*.json"))

    def quarantined(self) -> list[bytes]:
        """What was set aside as damaged, or was refused."""
        found = sorted(self.runs.glob("*/quarantine/**/*"))
        return [path.read_bytes() for path in found if path.is_file()]

    def backups(self, name: str) -> list[bytes]:
        """What lies set aside beside a file, oldest name first."""
        path = self.root / name
        return [kept.read_bytes() for kept in sorted(path.parent.glob(f"{path.name}*.bak.*"))]

    # --- files -----------------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        return self.root / name

    def read(self, name: str) -> str:
        return (self.root / name).read_text("utf-8")

    def write(self, name: str, text: str) -> Self:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return self

    def edit(self, name: str, old: str, new: str) -> Self:
        """As a person does, with an editor."""
        text = self.read(name)
        assert old in text, text
        return self.write(name, text.replace(old, new))

    def damage(self, name: str, how: str) -> None:
        """One of HARMS."""
        HARMS[how](self.root / name)

    def lose(self, *names: str) -> None:
        """rm -rf: "record", "runs", "objects", "views", or files and folders by name."""
        for name in (path for given in names for path in LOST.get(given, (given,))):
            path = self.root / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def artifacts(self) -> dict[str, bytes]:
        """Every file of the work tree but the pipeline, settings, views and what was set aside."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            ours = (*VIEWS, self.pipeline_file, "holdfast.toml")
            hidden = name.startswith((STATE, "__pycache__")) or name in ours or ".bak." in name
            if path.is_file() and not hidden:
                found[name] = path.read_bytes()
        return found

    def bodies(self) -> dict[str, bytes]:
        """The same without the seals, which also say what was spent and in which round."""
        return {
            name: seals.take_apart(data).body if seals.is_inline(name) else data
            for name, data in self.artifacts().items()
            if not name.endswith(".seal")
        }

    # --- what happened ---------------------------------------------------------------------------------------

    def events(self, name: str = "", *, task: str = "", run_id: str | None = None) -> list[dict[str, Any]]:
        """Of that run, or of the only one: as dicts, those of this name and task; none while it has no line."""
        lines = holdfast.Project.open(self.root).events(self.folder(run_id).name)
        try:
            found = [line.event() for line in lines]
        except CheckpointCorruptionError:
            return []
        return [e for e in found if name in ("", e["event"]) and task in ("", e.get("step_id"))]

    def append(self, run_id: str | None = None, **event: Any) -> None:
        """Record something as another process would: `approve`, `retry`, `note`."""
        with EventLog(self.journal(run_id), lock_path=self.state / "append.lock") as log:
            log.append(event)

    @contextmanager
    def held(self, run_id: str) -> Iterator[None]:
        """As while an engine is at work on that run."""
        lease = LocalLease(self.state / "engine.lock")
        lease.hold(run_id)
        try:
            yield
        finally:
            lease.release()

    def ran(self) -> Counter[str]:
        """The bodies that ran since this was last asked, and how often."""
        log = self.outside / "ran"
        lines = log.read_text().splitlines() if log.exists() else []
        new, self._seen = lines[self._seen :], len(lines)
        return Counter(new)


class Harness(Folder):
    """The verbs of a project, called in this process."""

    def __init__(self, root: Path, declared: Pipeline | str | None = None) -> None:
        super().__init__(root)
        self._declared = declared

    def declare(self, declared: Pipeline | str) -> Harness:
        """From now on this is the pipeline: itself, or the text of its file."""
        if isinstance(declared, str):
            self.write(self.pipeline_file, declared)
            declared = self.pipeline_file
        self._declared = declared
        return self

    def pipeline(self) -> Pipeline | str | None:
        """What is run where no other pipeline is given."""
        return self._declared

    @property
    def project(self) -> holdfast.Project:
        return holdfast.Project.open(self.root)

    def run(self, pipeline: Pipeline | str | None = None, **options: Any) -> RunResult:
        given = pipeline or self.pipeline()
        assert given is not None
        return self.project.run(given, **options)

    def resume(self, run_id: str | None = None, **options: Any) -> RunResult:
        return self.project.resume(run_id, **options)

    def plan(self, pipeline: Pipeline | str | None = None, **options: Any) -> results.PlanResult:
        plan = self.project.plan(pipeline or self.pipeline(), **options)
        tasks = [replace(task, reason=self._here(task.reason)) for task in plan.tasks]
        return beside(replace(plan, tasks=tasks), plan.found)

    def why(self, task: str, run_id: str | None = None) -> str:
        return self._here("\n".join(self.project.why(task, run_id=run_id).lines))

    def recover(self, pipeline: Pipeline | str | None = None, **options: Any) -> results.RecoverResult:
        return self.project.recover(pipeline or self.pipeline(), **options)

    def verify(self, run_id: str | None = None, *, pipeline: Pipeline | str | None = None) -> results.VerifyResult:
        verified = self.project.verify(run_id, pipeline=pipeline or self.pipeline())
        return replace(verified, findings=[replace(one, fix=self._here(one.fix)) for one in verified.findings])

    def _here(self, words: str) -> str:
        """As they are said to someone in the project's folder, who need not name it in commands."""
        return words.replace(f" --dir {shlex.quote(str(self.root))}", "")

    def scan(self, pipeline: Pipeline | str | None = None, **options: Any) -> results.ScanResult:
        return self.project.scan(pipeline or self.pipeline(), **options)

    def picture(self, run_id: str | None = None) -> Picture:
        """The run as its record has it."""
        return self.project.picture(run_id)[0]

    def approve(self, name: str, *, run_id: str | None = None, by: str = "") -> str:
        return self.project.approve(name, run_id=run_id, by=by).message

    def reject(self, name: str, to: str, feedback: str, *, run_id: str | None = None) -> str:
        return self.project.reject(name, to=to, feedback=feedback, run_id=run_id).message

    def decide(self, task: str, choice: str, *, run_id: str | None = None, by: str = "") -> str:
        return self.project.decide(task, choice, run_id=run_id, by=by).message

    def retry(self, tasks: Iterable[str] | None = None, *, run_id: str | None = None) -> str:
        return self.project.retry(None if tasks is None else list(tasks), run_id=run_id).message

    def note(self, text: str, *, run_id: str | None = None) -> str:
        return self.project.note(text, run_id=run_id).message


class Commands(Folder):
    """The same, typed: each command is a process in the project's folder."""

    @property
    def env(self) -> Mapping[str, str]:
        return {"COLUMNS": "200"}

    def __call__(self, *words: str, kill_at: int | str = 0, **env: str) -> Said:
        """One command; killed before that operation on the disk, if there is one."""
        said = processes().holdfast(self.root, *words, env={**self.env, **env}, trouble=str(kill_at))
        assert "Traceback" not in said.err and said.code != HUNG, said.text
        return said

    def killed_in(self, task: str, *words: str) -> None:
        """Type `words`, and SIGKILL the process when the body of `task` prints that it hangs."""
        plain = {name: value for name, value in unsynced().items() if not name.startswith("HOLDFAST_")}
        env = {**plain, **self.env}
        command = [sys.executable, "-m", "holdfast", *words]
        quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=self.root, env=env, text=True, **quiet) as process:
            try:
                seen = []
                while f"hanging {task}" not in (line := process.stdout.readline()):
                    seen.append(line)
                    assert line, f"{task} did not hang: {seen}"
            finally:
                process.kill()
        assert process.returncode == KILLED

    def killed_at(self, operation: int, *words: str) -> None:
        assert self(*words, kill_at=operation).code == KILLED

    def status(self) -> Any:
        return self("status", "--json").json()


# --- damage --------------------------------------------------------------------------------------------------


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    """The second half of it is lost."""
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path, at: float = 0.5) -> None:
    """One bit of it is other than it was."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0x10
    path.write_bytes(data)


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_link(path: Path) -> None:
    """To what it was, which lies beside it now."""
    there = path.rename(path.with_name(f"{path.name}.there"))
    path.symlink_to(there.name)


HARMS: dict[str, Callable[[Path], None]] = {
    "deleted": delete,
    "empty": empty,
    "cut": cut,
    "flipped": flip,
    "folder": become_folder,
    "link": become_link,
}


def in_thread(call: Callable[[], Any]) -> Any:
    """The result of `call` in a thread of its own; a hang is a failure."""
    box: list[Any] = []

    def run() -> None:
        try:
            box.append(call())
        except BaseException as error:
            box.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert box, "the engine hangs"
    return box[0]
