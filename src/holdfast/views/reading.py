"""Reads a page of tables back into claims, whoever wrote it: the pipeline says what its names mean. Pure.

Two kinds of tables count. A *matrix* has items as rows, whatever its first cell is called, and steps by title or
name as columns. A *list* has steps or task ids as rows, its first cell says so (`step`, `task`), and it has a
column `state` or `status`; a row of it that is no task is read as one of a matrix. Names are compared without
case, spaces around them, and emphasis, and a step's earlier names count; what `checkpoint.render` wrote is found
exactly. Where a name could mean two steps, it means none.
"""

from __future__ import annotations

import msgspec

from holdfast.escaping import code_text, markdown_cell, markdown_line, markdown_text
from holdfast.pipeline.names import check_item_id, fold, printable
from holdfast.pipeline.nodes import Path, split_task_id, task_id
from holdfast.pipeline.spec import PipelineSpec
from holdfast.views.claims import Claims, Told, status_of
from holdfast.views.markdown import Heading, TableHead, TableRow, blocks
from holdfast.views.matrix import columns, headings
from holdfast.views.stamp import read_stamp

TITLE_ENDS = " checkpoint"
LIST_HEADINGS = ("step", "single step", "task")
_ROWS_KEPT = 1000
_STATE_HEADINGS = ("state", "status")


def read(text: str, spec: PipelineSpec, source: str) -> Claims:
    """What the page claims. Never raises: what cannot be understood claims nothing."""
    reader = _Reader(spec)
    for block in blocks(text):
        if isinstance(block, TableRow):
            reader.row(block)
        elif isinstance(block, TableHead):
            reader.begin_table(block.cells)
        elif isinstance(block, Heading):
            reader.heading(block)
    stamp = read_stamp(text)
    return Claims(
        source,
        run_id=stamp.run if stamp else "",
        seq=stamp.seq if stamp else 0,
        edited=stamp is not None and not stamp.fits,
        pipeline=reader.pipeline,
        tasks=reader.tasks,
        items=reader.items.listed(),
        contradictions=reader.contradictions.lines(),
        ignored=reader.ignored.lines(),
    )


class Items:
    """The items that a view names, in its order; ids that differ only in case are one."""

    def __init__(self, spec: PipelineSpec) -> None:
        steps = {step.name: step.each for step in spec.steps}
        self.fan_of = steps | {fan.name: fan.each for fan in spec.items if fan.given is None}
        self.renamed = {old: step.name for step in spec.steps for old in step.was if old not in self.fan_of}
        self._fans = {fan.var: fan for fan in spec.items}
        self._given = {
            fan.var: {fold(item["id"]): item["id"] for item in fan.given}
            for fan in spec.items
            if fan.given is not None
        }
        self._plain = {
            var: {known: (folded,) for folded, known in ids.items()}
            for var, ids in self._given.items()
            if self._fans[var].each is None
        }
        self.paths: dict[str, dict[Path, Path]] = {fan.var: {} for fan in spec.items}

    def task(self, written: str) -> str | None:
        """The task whose id this is; None if the pipeline can have no such task."""
        name, path = split_task_id(written) if written.endswith("]") else (written, ())
        name = self.renamed.get(name, name)
        known = self.path(self.fan_of[name], path) if name in self.fan_of else None
        return None if known is None else task_id(name, known)

    def listed(self) -> dict[str, list[Path]]:
        """Fan-out variable -> paths, without those of which there are none."""
        return {var: list(paths.values()) for var, paths in self.paths.items() if paths}

    def path(self, var: str | None, written: Path) -> Path | None:
        """The path of the item of `var` that is meant; None if there can be no such item."""
        if var is None or not written:
            return () if var is None and not written else None
        key = tuple(map(fold, written))
        known = self.paths[var].get(key)
        if known is None:
            parent = self.path(self._fans[var].each, written[:-1])
            own = self._id(var, written[-1], key[-1])
            if parent is None or own is None:
                return None
            known = self.paths[var][key] = (*parent, own)
        return known

    def note_plain(self, var: str, label: str) -> bool:
        """Note an item by its very id; False if it cannot be told by that alone."""
        key = self._plain[var].get(label) if var in self._plain else None
        if key is not None:
            self.paths[var].setdefault(key, (label,))
        return key is not None

    def _id(self, var: str, written: str, folded: str) -> str | None:
        if var in self._given:
            return self._given[var].get(folded)
        return written if check_item_id(written) is None else None


_Said = tuple[str, list[tuple[str, str, str | None]]]
"""A fan-out, and of its steps: which, what is written in its cell, and the status that this means."""

_Alike = tuple[str, list[tuple[str, str]]]
"""The same where every cell means something, and no other fan-out can be meant."""


class _Table(msgspec.Struct):
    """How the table at hand is read: a list by one column, a matrix by depth of the row and by fan-out."""

    state_at: int | None = None
    steps: dict[int, dict[str, list[tuple[int, str]]]] = {}
    rows: dict[tuple[int, tuple[str, ...]], list[_Said]] = {}
    alike: dict[str, _Alike] = {}  # by all of a row behind its label


class _Names:
    """What the pipeline's names and titles mean."""

    def __init__(self, spec: PipelineSpec, items: Items) -> None:
        self.fan = items.fan_of
        self.depth = {name: len(spec.fan_path(var)) for name, var in self.fan.items()}
        self._vars = {_bare(markdown_cell(fan.var)): fan.var for fan in spec.items}
        self._vars |= {markdown_cell(fan.var): fan.var for fan in spec.items}
        self.own = {fan.var: headings(columns(spec, fan.var)) for fan in spec.items}
        self._loose: dict[str, list[str]] = {}
        titles = [(step.title, step.name) for step in spec.steps]
        for text, name in [*((name, name) for name in self.fan), *titles, *items.renamed.items()]:
            known = self._loose.setdefault(_bare(markdown_cell(text)), [])
            if name not in known:
                known.append(name)

    def var(self, cell: str) -> str | None:
        """The fan-out that the first cell of a table names."""
        return self._vars.get(cell) or self._vars.get(_bare(cell))

    def column(self, cell: str, var: str | None) -> list[str]:
        """The steps that a heading may mean; in the table of `var`, first of all one of its own."""
        own = self.own.get(var, {}) if var else {}
        if cell in own:
            return [own[cell]]
        found = self._loose.get(_bare(cell), [])
        return [name for name in found if self.fan[name] == var] or found if var else found

    def task(self, cell: str, items: Items) -> str | None:
        """The task that a row of a list means: by its id, or by name or title of a step outside all fan-outs."""
        lone = [name for name in self._loose.get(_bare(cell), []) if not self.depth[name]]
        return items.task(_shown(cell)) or (lone[0] if len(lone) == 1 else None)


class _Reader:
    """Takes the blocks of a page one by one."""

    def __init__(self, spec: PipelineSpec) -> None:
        self.spec = spec
        self.items = Items(spec)
        self.names = _Names(spec, self.items)
        self.pipeline = ""
        self.tasks: dict[str, str] = {}
        self.contradictions, self.ignored = Told(), Told()
        self._torn: set[str] = set()  # tasks of which two things are said
        self._table = _Table()
        self._statuses: dict[str, str | None] = {}

    def heading(self, block: Heading) -> None:
        # Any other title is a person's own words, and names no pipeline: the tables below it are read.
        if block.level == 1 and not self.pipeline and block.text.endswith(TITLE_ENDS):
            name = block.text.removesuffix(TITLE_ENDS)
            self.pipeline = self.spec.name if name == markdown_line(self.spec.name) else markdown_text(name)

    # --- tables ------------------------------------------------------------------------------------------

    def begin_table(self, cells: list[str]) -> None:
        self._table = _Table()
        if not cells:
            return
        var = self.names.var(cells[0])
        bare = [_bare(cell) for cell in cells]
        state = next((n for n, text in enumerate(bare) if n and text in _STATE_HEADINGS), None)
        unknown = self._place_columns(cells, var)
        if var is None and bare[0] in LIST_HEADINGS and state is not None:
            self._table.state_at = state
        elif self._table.steps or var:  # another table is text, and nothing is missed in it
            for cell in unknown:
                self.ignored.add(f"column {printable(markdown_text(cell))}")

    def _place_columns(self, cells: list[str], var: str | None) -> list[str]:
        """Say which cells of a row are about which steps; gives the headings that name none."""
        unknown = []
        for index, cell in enumerate(cells[1:], start=1):
            by_depth: dict[int, list[str]] = {}
            for name in self.names.column(cell, var):
                by_depth.setdefault(self.names.depth[name], []).append(name)
            for depth, names in by_depth.items():
                fan = self.names.fan[names[0]]
                if len(names) == 1 and fan is not None:
                    self._table.steps.setdefault(depth, {}).setdefault(fan, []).append((index, names[0]))
            if not any(len(names) == 1 for names in by_depth.values()):
                unknown.append(cell)
        return unknown

    def row(self, block: TableRow) -> None:
        label, _, rest = block.line.removeprefix("| ").partition(" | ")
        alike = self._table.alike.get(rest)
        if alike is not None and not self._torn and self.items.note_plain(alike[0], label):
            for name, status in alike[1]:  # nearly all rows of a long page
                task = f"{name}[{label}]"
                if self.tasks.setdefault(task, status) != status:
                    self._claim(task, status, status)
            return
        cells = block.cells
        if cells:
            self._any_row(cells, rest if block.line.startswith("| ") else "")

    def _any_row(self, cells: list[str], rest: str) -> None:
        state_at = self._table.state_at
        task = self.names.task(cells[0], self.items) if state_at is not None else None
        if task is not None and state_at is not None:
            if state_at < len(cells):
                self._claim(task, cells[state_at], self._status(cells[state_at]))
        elif self._table.steps or state_at is not None:
            self._matrix_row(cells, rest)

    def _matrix_row(self, cells: list[str], rest: str) -> None:
        written = tuple(_shown(cells[0]).split("/"))
        meant = False
        told = self._said(len(written), tuple(cells)[1:])
        if rest and len(told) == len(written) == 1 and self._table.state_at is None:
            self._note_alike(rest, *told[0])
        for var, said in told:
            path = self.items.path(var, written)
            if path is not None:
                meant = True
                place = f"[{'/'.join(path)}]"
                for name, cell, status in said:
                    task = name + place
                    if status is None or self._torn or self.tasks.setdefault(task, status) != status:
                        self._claim(task, cell, status)
        if not meant:
            self.ignored.add(f"row {printable(markdown_text(cells[0]))}")

    def _said(self, depth: int, cells: tuple[str, ...]) -> list[_Said]:
        """What a row's cells say of the steps of each fan-out that has items of that depth; most are alike."""
        known, key = self._table.rows, (depth, cells)
        found = known.get(key)
        if found is None:
            if len(known) > _ROWS_KEPT:
                known.clear()
            found = known[key] = []
            for var, steps in self._table.steps.get(depth, {}).items():
                heard = [(name, cells[index - 1]) for index, name in steps if index <= len(cells)]
                said = [(name, cell, self._status(cell)) for name, cell in heard if cell]
                if any(status for _, _, status in said):
                    found.append((var, said))
        return found

    def _note_alike(self, rest: str, var: str, said: list[tuple[str, str, str | None]]) -> None:
        sure = [(name, status) for name, _, status in said if status is not None]
        if len(sure) == len(said) and len(self._table.alike) < _ROWS_KEPT:
            self._table.alike[rest] = (var, sure)

    def _claim(self, task: str, cell: str, status: str | None) -> None:
        if status is None:
            if cell:
                self.ignored.add(f"{task}: {printable(markdown_text(cell))}")
        elif task in self._torn:
            return
        elif self.tasks.setdefault(task, status) != status:
            self.contradictions.add(f"{task}: {self.tasks.pop(task)}, and also {status}")
            self._torn.add(task)

    def _status(self, cell: str) -> str | None:
        known = self._statuses
        if cell not in known:
            if len(known) > 1000:  # cells of prose: nothing to remember them for
                known.clear()
            known[cell] = status_of(markdown_text(cell))
        return known[cell]


def _shown(cell: str) -> str:
    """A name as it is shown, code and emphasis taken off."""
    code = code_text(cell) if cell.startswith("`") else None
    if code is not None and not code[1]:
        return code[0].strip()
    text = markdown_text(cell)
    return text.strip("* ") if cell.startswith("*") else text


def _bare(cell: str) -> str:
    return fold(_shown(cell))
