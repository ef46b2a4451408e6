"""A project with a history: its files, its commands, and what was done to it.

Everything that matters is written down outside the project, in one log: what the bodies say of themselves, and
between it what was done (`lost record`, `lost file TASK`, `asked TASK`, ...). The oracles read nothing else.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from forking import HUNG, Said, processes
from holdfast import seals

from .bodies import inner, numbered
from .pipelines import FILE, Sketch, Step, draw, written

INTERNAL_ERROR, REFUSED = 70, 2
VIEWS = ("checkpoint.md", "RESUME.md")
DRAWN = (*VIEWS, "checkpoint.json", "progress.md", "todos.db")
LOOKING = ("status", "list", "plan", "why", "events", "verify", "scan")
PEOPLE = ("approve", "reject", "decide", "retry", "note", "why")
PASSING = (".lock", "/logs", "todos.db-journal")  # as far as names end


class BrokenError(AssertionError):
    """A promise was not kept."""


@dataclass(frozen=True)
class Owner:
    """Which task a file belongs to, by the step's oldest name."""

    task: str
    step: Step
    key: str


@dataclass
class World:
    """A project, its dice, and everything that was done."""

    folder: Path
    dice: Random
    sketch: Sketch
    params: dict[str, str] = field(default_factory=lambda: {"topic": "kelp", "n": "2"})
    run_id: str = "soak"
    root: Path = Path()
    outside: Path = Path()
    told: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)  # words of people, which must not be lost
    said: set[str] = field(default_factory=set)  # those that were said in a command
    destroyed: set[str] = field(default_factory=set)  # those that were lost with the only file that had them
    failing: set[str] = field(default_factory=set)  # steps that fail for now
    stashed: Path | None = None  # where the project lies as it was at some time
    has_kept_edits: bool = False
    are_params_new: bool = True  # whether the run's record may have others
    has_others: bool = False  # runs with other parameters in the same folder
    clock_s: int = 0  # how far the clock is off

    def __post_init__(self) -> None:
        self.root, self.outside = self.folder / "project", self.folder / "outside"

    # --- files ---------------------------------------------------------------------------------------------

    def begin(self) -> World:
        (self.root / "inbox").mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "log").touch()
        (self.root / "inbox" / "a.txt").write_text("the first letter\n")
        shutil.copy(Path(__file__).with_name("bodies.py"), self.root)
        return self.write_pipeline()

    def write_pipeline(self) -> World:
        (self.root / FILE).write_text(written(self.sketch))
        return self

    @property
    def state(self) -> Path:
        return self.root / ".holdfast"

    @property
    def run_dir(self) -> Path:
        return self.state / "runs" / self.run_id

    @property
    def journal(self) -> Path:
        return self.run_dir / "events.jsonl"

    def items(self) -> list[str]:
        if "x" not in self.sketch.items:
            return []
        if "x" in self.sketch.made_by:
            return numbered(int(self.params["n"]))
        return self.sketch.items["x"]

    def items_of(self, step: Step) -> list[str]:
        """The part of its task ids in brackets, for each of its tasks."""
        if step.each == "y":
            inside = inner(int(self.params["n"]), self.sketch.items["y"])
            return [f"{x}/{y}" for x in self.items() for y in inside]
        return self.items() if step.each else [""]

    def owners(self) -> dict[str, Owner]:
        """Path -> whose it is, for every file that the pipeline makes now; memory files are shared."""
        found = {}
        for step in self.sketch.steps:
            for item in self.items_of(step):
                x, _, y = item.partition("/")
                task = f"{step.name}[{item}]" if item else step.name
                for key, path in step.paths().items():
                    known = path.replace("{x}", x).replace("{y}", y).replace("{topic}", self.params["topic"])
                    found[known] = Owner(task, step, key)
        return found

    def tasks(self) -> list[str]:
        """Every task by the name that it has now."""
        return [
            f"{step.now}[{item}]" if item else step.now
            for step in self.sketch.steps
            for item in self.items_of(step)
        ]

    def oldest(self, task: str) -> str:
        """A task by its step's oldest name."""
        name, bracket, rest = task.partition("[")
        known = {step.now: step.name for step in self.sketch.steps}
        return known.get(name, name) + bracket + rest

    def step_of(self, task: str) -> Step:
        return self.sketch.step(task.partition("[")[0])

    def whole_tasks(self) -> set[str]:
        """The tasks all of whose files are there and prove themselves."""
        owners = self.owners()
        broken = {owner.task for path, owner in owners.items() if not self.is_whole(self.root / path, owner.task)}
        return {owner.task for owner in owners.values()} - broken

    def is_whole(self, path: Path, task: str) -> bool:
        """Whether a file and its seal fit, and are that task's."""
        beside = path.with_name(f"{path.name}.seal")
        if not path.is_file() or path.is_symlink():
            return False
        parts = seals.take_apart(path.read_bytes())
        body, seal = parts.body, parts.seal
        if not seals.is_inline(path.name):
            body, seal = (
                path.read_bytes(),
                seals.take_apart(beside.read_bytes()).seal if beside.is_file() else None,
            )
        fits = seal is not None and seal.sha256 == hashlib.sha256(body).hexdigest()
        return fits and self.oldest(seal.task) == task

    def files(self) -> Iterator[Path]:
        yield from (path for path in sorted(self.root.rglob("*")) if path.is_file() and not path.is_symlink())

    def entries(self) -> dict[str, tuple[int, ...]]:
        """Name -> what changes when it is touched, but for what comes and goes with every command."""
        found = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            passing = name.startswith((".holdfast/tmp", "__pycache__")) or name.endswith(PASSING)
            is_stray = path.is_dir() and path.suffix and not any(path.iterdir())
            if not passing and (path.is_symlink() or not path.is_dir() or is_stray):
                status = path.lstat()
                found[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        return found

    # --- what was done -------------------------------------------------------------------------------------

    def log(self) -> list[list[str]]:
        return [line.split() for line in (self.outside / "log").read_text().splitlines()]

    def note(self, *words: str) -> None:
        """Write down what was done to the project."""
        with (self.outside / "log").open("a") as log:
            log.write(" ".join(words) + "\n")

    def let_fail(self, *steps: str) -> None:
        self.failing = set(steps)
        (self.outside / "failing").write_text(" ".join(sorted(steps)))

    def note_whole(self) -> None:
        for task in sorted(self.whole_tasks()):
            self.note("whole", task)

    def new_token(self) -> str:
        token = f"PERSON-{len(self.tokens):03}-WROTE"
        self.tokens.add(token)
        return token

    def say(self, *words: str) -> Said:
        """A command with a person's own words at its end; words that were refused were not said."""
        token = self.new_token()
        said = self(*words, token)
        (self.said if said.code == 0 else self.destroyed).add(token)
        return said

    def tokens_in(self, path: Path) -> set[str]:
        if path.is_dir() and not path.is_symlink():
            return {token for one in path.rglob("*") for token in self.tokens_in(one) if one.is_file()}
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        return {found.decode() for found in re.findall(rb"PERSON-\d{3}-WROTE", data)}

    def is_edited(self, task: str) -> bool:
        """Whether a file of that task has words of a person in it."""
        paths = [path for path, owner in self.owners().items() if owner.task == task]
        return any(self.tokens_in(self.root / path) for path in paths)

    def present_tokens(self) -> set[str]:
        """A word that was said to the record alone is not safe in a page that is drawn from it."""
        found = {path: self.tokens_in(path) for path in self.files()}
        return {
            token
            for path, held in found.items()
            for token in held
            if path.name not in DRAWN or token not in self.said
        }

    # --- commands ------------------------------------------------------------------------------------------

    def __call__(self, *words: str, stop: str = "", trouble: str = "", outside: Path | None = None) -> Said:
        """One command; whatever it was, it must not fall over, and one that only looks must not touch anything.

        `outside` is where bodies of another run than the one that is watched write.
        """
        if self.has_others and words[0] in PEOPLE and "--run" not in words:
            words = (words[0], "--run", self.run_id, *words[1:])
        before = self.entries()
        env = {"SOAK_OUTSIDE": str(outside or self.outside), "SOAK_STOP": stop or "0:KILL"}
        env |= {"COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}
        env |= {"CLOCK_OFFSET_S": str(self.clock_s)} if self.clock_s else {}
        said = processes().holdfast(self.root, *words, env=env, trouble=trouble)
        stopped = f" stopped at {stop or trouble}" if stop or trouble else ""
        self.told.append(f"holdfast {' '.join(words)}{stopped} -> {said.code}")
        self.note("other" if outside else "did", words[0], str(said.code))
        if "Traceback" in said.text or said.code in (INTERNAL_ERROR, HUNG):
            raise BrokenError(f"fell over with {said.code}: {said.text[-3000:]}")
        is_look = words[0] in LOOKING or "--dry-run" in words or said.code == REFUSED
        after = self.entries()
        if words[0] == "status":  # it may write views that a kill left behind, and nothing else (docs/commands.md)
            before, after = (
                {name: entry for name, entry in found.items() if not name.endswith(DRAWN)}
                for found in (before, after)
            )
        if is_look and after != before:
            raise BrokenError(f"{words} changed {set(before.items()) ^ set(after.items())}")
        return said

    def status(self) -> Any:
        return self("status", *([self.run_id] if self.is_begun() else []), "--json").json()

    def param_words(self) -> list[str]:
        return [word for name, value in self.params.items() for word in ("-p", f"{name}={value}")]

    def run_words(self) -> list[str]:
        """The command that starts or continues the run, with the parameters that are wanted now."""
        params = self.param_words()
        if not self.is_begun():
            return (
                ["run", FILE, "--run-id", self.run_id, *params] if not self.has_begun() else ["run", FILE, *params]
            )
        if self.are_params_new:
            return ["run", FILE, "--resume", self.run_id, *params]
        return self.dice.choice([["run", FILE, *params], ["resume", self.run_id]])

    def is_begun(self) -> bool:
        """Whether the run can be named: a process killed before its first line leaves a folder, but no run."""
        has_line = self.journal.is_file() and b"\n" in self.journal.read_bytes()
        lines = self.log()
        begun_at = max((number for number, line in enumerate(lines) if line == ["anew"]), default=0)
        return self.run_dir.exists() and (has_line or ["lost", "record"] in lines[begun_at:])

    def has_begun(self) -> bool:
        return self.state.exists() or any((self.root / path).exists() for path in self.owners())

    def go(self, *more: str, stop: str = "", trouble: str = "") -> Said:
        """Start or continue; a run that ended of itself has the parameters on record."""
        if not self.is_begun() and not self.has_others and any(self.state.glob("runs/[!.]*/events.jsonl")):
            self.note("asked", "*")  # the run was removed, and an older one goes on: with what it made itself
        said = self(*self.run_words(), *more, stop=stop, trouble=trouble)
        if said.code in (0, 3):
            self.are_params_new = False
        if not self.is_begun():  # all was lost, or nothing was ever recorded, and nothing had its id
            begun = sorted(self.state.glob("runs/*/events.jsonl"), key=lambda path: path.stat().st_mtime_ns)
            self.run_id = begun[-1].parent.name if begun else self.run_id
        return said


def made(folder: Path, seed: int) -> World:
    dice = Random(seed)
    return World(folder, dice, draw(dice)).begin()


def overrides(world: World, wanted: dict[str, str]) -> None:
    (world.outside / "overrides.json").write_text(json.dumps(wanted))
