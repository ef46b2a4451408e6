"""The table model that checkpoint.md, `status` and plain progress share: tasks as rows of symbols. Pure.

Every task has exactly one cell: steps and items functions outside fan-outs make one list, the others one
matrix per fan-out, with the items as rows.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from holdfast.escaping import markdown_cell, terminal
from holdfast.pipeline.nodes import Path
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, StepSpec
from holdfast.state import BLOCKED, COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PENDING, SKIPPED
from holdfast.views.picture import Picture, is_sent_back

DONE_MARK, GOING_MARK, FAILED_MARK, REVIEW_MARK, NOT_STARTED_MARK = "✅", "⏳", "❌", "⚠️", "—"

MARKS = {
    COMPLETED: DONE_MARK,
    IN_PROGRESS: GOING_MARK,
    FAILED: FAILED_MARK,
    NEEDS_REVIEW: REVIEW_MARK,
    PENDING: NOT_STARTED_MARK,
    BLOCKED: f"{NOT_STARTED_MARK} blocked",
    SKIPPED: f"{NOT_STARTED_MARK} skipped",
}
LEGEND = (
    f"{DONE_MARK} completed, {GOING_MARK} in progress, {FAILED_MARK} failed,"
    f" {REVIEW_MARK} needs human review, {NOT_STARTED_MARK} not started"
)

ROWS_MAX = 40
_LABEL_MAX = 40
_HEADING_MAX = 14


class Column(NamedTuple):
    name: str
    title: str


class Matrix(msgspec.Struct, frozen=True):
    """The tasks of one fan-out; `var` is empty for those outside all, which have the one row ()."""

    var: str
    columns: tuple[Column, ...]
    rows: tuple[Path, ...]


class Row(msgspec.Struct, frozen=True):
    label: str
    marks: tuple[str, ...]


def single_tasks(picture: Picture) -> Matrix:
    """Steps and items functions outside every fan-out."""
    return Matrix("", columns(picture.spec, None), ((),))


def matrices(picture: Picture) -> Iterator[Matrix]:
    """One matrix per fan-out that has tasks, in the pipeline's order."""
    for fan in picture.spec.items:
        steps = columns(picture.spec, fan.var)
        if steps:
            yield Matrix(fan.var, steps, tuple(picture.rows(fan.var)))


def cells(picture: Picture, table: Matrix, rows: Iterable[Path] | None = None) -> Iterator[Row]:
    """Each row's label and symbols; all rows of the table, or those given."""
    names, settled = [column.name for column in table.columns], picture.settled
    done = (DONE_MARK,) * len(names) if picture.is_settled else ()
    for path in table.rows if rows is None else rows:
        label = "/".join(path)
        if done:
            yield Row(label, done)
            continue
        place = f"[{label}]" if path else ""
        tasks = [name + place for name in names]
        yield Row(label, tuple([DONE_MARK if task in settled else mark(picture, task) for task in tasks]))


def mark(picture: Picture, task: str) -> str:
    """A task's symbol."""
    return MARKS[shown_status(picture, task)]


def shown_status(picture: Picture, task: str) -> str:
    """The status that a task's symbol stands for. One that waits for an answer needs a person, whatever it was."""
    record = picture.state.tasks.get(task)
    if record is not None:
        if record.question:
            return NEEDS_REVIEW
        if record.status != PENDING and not (picture.state.recalls and is_sent_back(picture.state, task)):
            return record.status
    return BLOCKED if task in picture.blocked else PENDING


def is_row_done(picture: Picture, task: str) -> bool:
    """Whether its row in todos.db is `done`: skipped is as good as completed there, an open question is not."""
    record = picture.state.task(task)
    return picture.status(task) in (COMPLETED, SKIPPED) and not record.question


def overall(marks: Sequence[str]) -> str:
    """One symbol for several tasks: what is wrong wins, then what is under way."""
    for loud in (FAILED_MARK, REVIEW_MARK, GOING_MARK):
        if loud in marks:
            return loud
    waiting = marks.count(NOT_STARTED_MARK) + marks.count(MARKS[BLOCKED])
    if not waiting and marks:
        return DONE_MARK
    return NOT_STARTED_MARK if waiting == len(marks) else GOING_MARK


def is_expanded(picture: Picture, var: str) -> bool:
    """Whether all items of `var` are known, below every item around it."""
    path = picture.spec.fan_path(var)
    return all(
        (inner, parent) in picture.items
        for outer, inner in zip((None, *path), path, strict=False)
        for parent in (picture.rows(outer) if outer else [()])
    )


def gates(picture: Picture) -> dict[str, str]:
    """Every gate known so far, with its standing: `approved`, `reached`, or "" if it is not reached yet."""
    return dict.fromkeys(picture.gates(), "") | picture.state.gates


# --- plain text ------------------------------------------------------------------------------------------


def text_matrix(picture: Picture, width: int = 80, *, rows_max: int = ROWS_MAX) -> list[str]:
    """The whole run as aligned lines for a terminal; of a long table `rows_max` rows."""
    lines = _text_list(picture, width)
    for table in matrices(picture):
        if lines:
            lines.append("")
        if table.rows:
            lines += _text_table(table, list(cells(picture, table)), width, rows_max)
        if not is_expanded(picture, table.var):
            lines.append(f"{table.var}: {'some' if table.rows else 'its'} items are not known yet")
    return lines


def display_width(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    return len(text) if text.isascii() else _wide_width(text)


def clipped(text: str, width: int) -> str:
    """`text` in at most `width` columns."""
    if display_width(text) <= width:
        return text
    kept = ""
    for char in text:
        if display_width(kept + char) > width - 1:
            break
        kept += char
    return kept + "…"


@lru_cache(maxsize=4096)
def _wide_width(text: str) -> int:
    width = last = 0
    for char in text:
        if char == "\ufe0f":  # asks for the emoji form of the character before it
            width, last = width + 2 - last, 2
        elif unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
            continue
        else:
            last = 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
            width += last
    return width


def _padded(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def _text_list(picture: Picture, width: int) -> list[str]:
    table = single_tasks(picture)
    if not table.columns:
        return []
    (row,) = cells(picture, table)
    titles = [clipped(terminal(column.title), max(8, width - 12)) for column in table.columns]
    margin = max(map(display_width, titles))
    return [f"{_padded(title, margin)}  {one}" for title, one in zip(titles, row.marks, strict=True)]


def _text_table(table: Matrix, rows: list[Row], width: int, rows_max: int) -> list[str]:
    shown, hidden = _most_telling(rows, rows_max)
    labels = [table.var, *(row.label for row in shown)]
    margin = min(max(map(display_width, labels)), _LABEL_MAX, max(8, width // 2))
    headings = [clipped(terminal(column.title), _HEADING_MAX) for column in table.columns]
    sizes = [
        max(display_width(heading), *(display_width(row.marks[n]) for row in shown), 2)
        for n, heading in enumerate(headings)
    ]
    lines: list[str] = []
    for block in _blocks(sizes, width - margin):
        lines.append(_text_line(table.var, margin, [(headings[n], sizes[n]) for n in block]))
        lines += [_text_line(row.label, margin, [(row.marks[n], sizes[n]) for n in block]) for row in shown]
    return lines + ([_rest(hidden)] if hidden else [])


def _text_line(label: str, margin: int, columns: list[tuple[str, int]]) -> str:
    parts = [_padded(clipped(label, margin), margin), *(_padded(text, size) for text, size in columns)]
    return "  ".join(parts).rstrip()


def _blocks(sizes: list[int], room: int) -> list[list[int]]:
    """Columns that fit beside each other; a table too wide for the terminal is shown in several blocks."""
    blocks: list[list[int]] = [[]]
    left = room
    for n, size in enumerate(sizes):
        if blocks[-1] and size + 2 > left:
            blocks.append([])
            left = room
        blocks[-1].append(n)
        left -= size + 2
    return blocks


def _most_telling(rows: list[Row], rows_max: int) -> tuple[list[Row], list[Row]]:
    """The rows to show, in their order: under way or in trouble before wholly done or not begun."""
    if len(rows) <= rows_max:
        return rows, []
    quiet = (DONE_MARK, NOT_STARTED_MARK)
    ranked = sorted(range(len(rows)), key=lambda n: overall(rows[n].marks) in quiet)
    chosen = set(ranked[:rows_max])
    return [rows[n] for n in sorted(chosen)], [row for n, row in enumerate(rows) if n not in chosen]


def _rest(hidden: list[Row]) -> str:
    counts = Counter(overall(row.marks) for row in hidden)
    return f"... and {len(hidden)} more: " + " ".join(f"{number} {one}" for one, number in counts.most_common())


# --- columns ---------------------------------------------------------------------------------------------


def columns(spec: PipelineSpec, var: str | None) -> tuple[Column, ...]:
    """The steps of a fan-out (None: outside all), each items function behind the last step it takes from."""
    members: list[StepSpec | ItemsSpec] = [step for step in spec.steps if step.each == var]
    for fan in spec.items:
        if fan.each == var and fan.given is None:
            taken = {source.name for source in fan.sources.values()}
            after = max((n + 1 for n, member in enumerate(members) if member.name in taken), default=0)
            members.insert(after, fan)
    titles = {step.name: step.title for step in spec.steps}
    return tuple([Column(member.name, titles.get(member.name, member.name)) for member in members])


def headings(members: Sequence[Column]) -> dict[str, str]:
    """Markdown heading -> step, in the columns' order: its title, or its name if the title is not its alone."""
    titles = Counter(markdown_cell(member.title) for member in members)
    names = {markdown_cell(member.name): member.name for member in members}
    found: dict[str, str] = {}
    for member in members:
        title = markdown_cell(member.title)
        is_own = bool(title) and titles[title] == 1 and names.get(title, member.name) == member.name
        found[title if is_own else markdown_cell(member.name)] = member.name
    return found
