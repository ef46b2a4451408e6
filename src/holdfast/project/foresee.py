"""What a recovery would change on the disk, each change in its place: what `recover --dry-run` lists. Read-only.

The walk acts on paper by itself (stores/paper.py). Here is what comes before and after it, in the order of
`OpenRun._open` and `recover._carry_out`: snapshots, journal, objects, and then journal,
snapshot and views again. Not listed: folders, locks and temporary files, which come and go with every command.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast import events as ev
from holdfast.artifacts.keeping import Artifacts
from holdfast.layout import ProjectLayout
from holdfast.runs.history import History, damage_before
from holdfast.runs.listing import read_run, refuse_strange_run
from holdfast.sessions.mending import mend_objects
from holdfast.snapshots import next_number, plan_rotation, sidecar_of, snapshot_path, snapshots
from holdfast.state import RunState
from holdfast.stores import readable
from holdfast.stores.asides import TAIL
from holdfast.stores.paper import APPEND, COPY, CUT, DELETE, KEEP, SET_ASIDE, WRITE, Action, Paper
from holdfast.views.shelf import Obstacle, ViewShelf, is_page


class Foresight:
    """Follows one recovery on paper."""

    def __init__(self, layout: ProjectLayout, run_id: str) -> None:
        self.paper = Paper(layout.root)
        self.damage: list[str] = []  # of journal and snapshots
        self._layout = layout
        self._run = layout.run(run_id)
        self._gone: set[Path] = set()
        self._mends = False  # something of our own state is mended: that is told in the journal
        self._has_journal = False

    def open_record(self, *, quick: bool) -> History | None:
        """The run as it is on record, if it is; what is damaged of it is out of the way."""
        layout, run = self._layout, self._run
        refuse_strange_run(layout, run.dir.name)
        if not (readable.is_there(run.journal) or snapshots(run.dir)):
            return None
        history = read_run(layout, run.dir.name, must_begin=False)
        before = [] if quick else damage_before(run, history)
        self.damage = [*history.damage, *history.journal_damage, *before]
        self._set_snapshots_aside(history.damage)
        self._repair_journal(history, is_damaged=bool(history.journal_damage or before))
        self._mends = self._mends or bool(self.damage or history.tail)
        return history

    def mend_objects(self, artifacts: Artifacts, state: RunState, *, prove: bool) -> None:
        """Copies in objects/ that are lost or rotten."""
        self._mends = any(mend_objects(artifacts, state, prove=prove)) or self._mends

    def begin(self, events: Collection[ev.Event]) -> None:
        """What is recorded before the walk."""
        if events or self._mends:
            self._append()

    def end(self, state: RunState, recorded: int, keep: int, pages: Sequence[Path]) -> None:
        """What follows the walk, in which so many events were recorded."""
        if recorded or self._has_new or state.rebuilt:
            self._append()
            self._write_snapshot(state, keep)
            self._keep([path for path in pages if is_page(path)])
        self._write_views(state)

    def actions(self, state: RunState) -> list[Action]:
        """All of it; copies in objects/ by the file they are of, or as a value."""
        names = {
            file.sha256: file.path
            for record in state.tasks.values()
            for file in (record.accepted.files if record.accepted is not None else ())
        }
        return [
            replace(action, path=names.get(action.path, f"value {action.path[:12]}"))
            if action.do == KEEP
            else action
            for action in self.paper.actions
        ]

    # --- before the walk -----------------------------------------------------------------------------------

    def _set_aside(self, path: Path, quarantine: Path) -> None:
        self.paper.set_aside(path, quarantine)
        self._gone.add(path)
        self._mends = True

    def _set_snapshots_aside(self, damage: Sequence[str]) -> None:
        for _, path in snapshots(self._run.dir):
            if any(words.startswith(f"{path.name} ") for words in damage):
                self._put_away(path)

    def _put_away(self, snapshot: Path) -> None:
        self._set_aside(snapshot, self._run.quarantine)
        if readable.is_there(sidecar_of(snapshot)):
            self._set_aside(sidecar_of(snapshot), self._run.quarantine)

    def _repair_journal(self, history: History, *, is_damaged: bool) -> None:
        path = self._run.journal
        self._has_journal = True
        if not is_damaged:
            if history.tail:
                self.paper.copy_aside(path, self._run.quarantine, label=TAIL, do=CUT)
            return
        if readable.is_no_file(path):
            self.paper.set_aside(path, self._run.quarantine)
        elif readable.is_there(path):
            self.paper.copy_aside(path, self._run.quarantine, label="damaged")
        self.paper.note(WRITE, path)

    # --- after it ------------------------------------------------------------------------------------------

    @property
    def _has_new(self) -> bool:
        return any(action.do == APPEND for action in self.paper.actions)

    def _append(self) -> None:
        self.paper.note(APPEND if self._has_journal else WRITE, self._run.journal)
        self._has_journal = True

    def _write_snapshot(self, state: RunState, keep: int) -> None:
        run = self._run
        number = next_number(run.dir, state.snapshot_number)
        path = snapshot_path(run.dir, number)
        self.paper.note(WRITE, path)
        self.paper.note(WRITE, sidecar_of(path))
        known = [path for _, path in snapshots(run.dir) if path not in self._gone] if number > 1 else []
        rotten, surplus = plan_rotation(known, keep, verified=1)
        for path in rotten:
            self._put_away(path)
        for path in reversed(surplus):
            for one in (sidecar_of(path), path):
                if readable.is_there(one):
                    self.paper.note(DELETE, one)

    def _keep(self, pages: Sequence[Path]) -> None:
        for path in pages:
            self.paper.back_up(path)
            self._gone.add(path)

    def _write_views(self, state: RunState) -> None:
        layout, run = self._layout, self._run
        obstacles = {found.path: found for found in self._obstacles()}
        pages = [run.summary, layout.checkpoint_view, layout.resume_view]
        pages += [run.progress] if state.sections else []
        for path in (*pages, layout.todos_db):
            found = obstacles.get(path) if path not in self._gone else None
            if found is not None and found.is_damage:
                self.paper.set_aside(path, run.quarantine)
            elif found is not None:
                self.paper.back_up(path, do=COPY if found.is_copied else SET_ASIDE)
            self.paper.note(WRITE, path)
        if obstacles:  # what was moved is recorded, and the views know of it too
            self._append()

    def _obstacles(self) -> list[Obstacle]:
        shelf = ViewShelf(self._layout, self._run)
        try:
            return shelf.obstacles()
        finally:
            shelf.close()
