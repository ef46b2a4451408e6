"""checkpoint.md: the whole run on one page, for people and agents. Pure.

It is written so that `parse` can read it back: a task's symbol stands in the row of its item and the column of its
step, the table's first cell names the fan-out, and gates and phases carry their symbol first. `parse` also reads
tables that a person or an agent wrote; what of them counts is said in `reading.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast import layout
from holdfast.clock import iso
from holdfast.escaping import markdown_cell, markdown_cells, markdown_code, markdown_line
from holdfast.pipeline.nodes import Path, step_of
from holdfast.pipeline.spec import PipelineSpec
from holdfast.state import BLOCKED, COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PENDING, SKIPPED
from holdfast.views import matrix, reading
from holdfast.views.claims import Claims
from holdfast.views.matrix import (
    DONE_MARK,
    FAILED_MARK,
    GOING_MARK,
    LEGEND,
    MARKS,
    NOT_STARTED_MARK,
    REVIEW_MARK,
    Matrix,
)
from holdfast.views.picture import Picture
from holdfast.views.stamp import stamp
from holdfast.views.summary import cost_line
from holdfast.wording import counted

LISTED_MAX = 40

_WORDS = {
    DONE_MARK: "completed",
    GOING_MARK: "in progress",
    FAILED_MARK: "failed",
    REVIEW_MARK: "needs human review",
    NOT_STARTED_MARK: "not started",
}
_GATE_MARKS = {"approved": DONE_MARK, "reached": REVIEW_MARK}


def render(picture: Picture) -> str:
    """checkpoint.md with its stamp."""
    parts = [
        _head(picture),
        _needs(picture),
        _phases(picture),
        _single_steps(picture),
        *(_fan_out(picture, table) for table in matrix.matrices(picture)),
        _gates(picture),
        _orphans(picture),
        f"## Legend\n\n{LEGEND}; {NOT_STARTED_MARK} blocked: waits for something that needs a person;"
        f" {NOT_STARTED_MARK} skipped: left out on purpose.\n",
    ]
    return stamp("\n".join(filter(None, parts)), picture.state.run_id, picture.state.seq)


def parse(text: str, spec: PipelineSpec) -> Claims:
    """What a checkpoint.md claims of a run of this pipeline, whoever wrote it. Never raises."""
    return reading.read(text, spec, layout.CHECKPOINT_VIEW)


def progress_words(picture: Picture) -> str:
    """How far it is, in one sentence: `12 of 40 tasks finished (30 %); 3 in progress, 1 failed`."""
    share = f" ({100 * picture.done // picture.total} %)" if picture.total else ""
    names = {
        IN_PROGRESS: "in progress",
        FAILED: "failed",
        NEEDS_REVIEW: "needs review" if picture.counts.get(NEEDS_REVIEW) == 1 else "need review",
        BLOCKED: "blocked",
        PENDING: "not started",
        SKIPPED: "skipped",
    }
    rest = [f"{picture.counts[key]} {word}" for key, word in names.items() if picture.counts.get(key)]
    finished = f"{picture.done} of {picture.total} tasks finished{share}"
    return "; ".join([finished, ", ".join(rest)]) if rest else finished


def phase_mark(picture: Picture, phase: str) -> str:
    """A phase's symbol: from its tasks, and from what its checklist said."""
    standing = picture.state.phases.get(f"phase:{phase}", "")
    if standing.startswith("refused"):
        return REVIEW_MARK
    fans, marks = _phase_tasks(picture, phase)
    grown = all(matrix.is_expanded(picture, var) for var in fans if var)
    reached = NOT_STARTED_MARK if grown and _is_blocked(marks) else matrix.overall(marks)
    if reached == DONE_MARK:
        return DONE_MARK if grown else GOING_MARK
    if reached == NOT_STARTED_MARK and standing and not _is_blocked(marks):
        return GOING_MARK if marks or not grown else DONE_MARK
    return reached


def phase_words(picture: Picture, phase: str) -> str:
    """How a phase stands: `in progress`, or `blocked` if all that is left of it waits for a person."""
    one = phase_mark(picture, phase)
    is_blocked = one == NOT_STARTED_MARK and _is_blocked(_phase_tasks(picture, phase)[1])
    return BLOCKED if is_blocked else _WORDS[one]


def _phase_tasks(picture: Picture, phase: str) -> tuple[list[str | None], list[str]]:
    """The fan-outs of a phase's steps, and the symbols of its tasks."""
    fans = {step.name: step.each for step in picture.spec.steps if step.phase == phase}
    marks = [matrix.mark(picture, task) for name in fans for task in picture.by_step.get(name, ())]
    return list(fans.values()), marks


def and_more(items: list[str]) -> list[str]:
    """At most LISTED_MAX lines of a list, and how many were left out."""
    if len(items) <= LISTED_MAX:
        return items
    return [*items[:LISTED_MAX], f"- ... and {len(items) - LISTED_MAX} more"]


def command_words(command: str) -> str:
    """A command as code that can be copied; a remark behind it, set off by three spaces, stays outside."""
    code, _, remark = command.partition("   ")
    return f"{markdown_code(code)} {markdown_cell(remark)}" if remark else markdown_code(code)


def _head(picture: Picture) -> str:
    state = picture.state
    reason = picture.reason
    lines = [
        f"# {markdown_line(state.pipeline)}{reading.TITLE_ENDS}",
        "",
        f"- Last updated: {iso(state.updated_at or 0.0)}",
        f"- Run: {markdown_code(state.run_id)}",
        f"- Status: {state.status.replace('_', ' ')}" + (f" ({markdown_cell(reason)})" if reason else ""),
    ]
    if picture.phase is not None:
        lines.append(f"- Current phase: {markdown_cell(picture.phase)}")
    batch = picture.batch  # looks at every task
    if batch is not None:
        lines.append(f"- Current batch: {batch}")
    lines += [
        f"- Progress: {progress_words(picture)}",
        f"- Cost: {cost_line(picture)}",
    ]
    if state.status != COMPLETED:
        lines.append(f"- To continue: {markdown_code(picture.continue_command())}")
    return _paragraph(lines)


def _needs(picture: Picture) -> str:
    needs = [
        f"- {markdown_code(need.task)}: {markdown_cell(need.why) or 'waits'}\n  - {command_words(need.command)}"
        for need in picture.needs()
    ]
    return section("Needs a person", and_more(needs))


def _phases(picture: Picture) -> str:
    lines = []
    for number, phase in enumerate(picture.spec.phases, start=1):
        one, words = phase_mark(picture, phase.name), phase_words(picture, phase.name)
        standing = picture.state.phases.get(f"phase:{phase.name}", "")
        said = f": {markdown_cell(standing)}" if standing.startswith("refused") else ""
        lines.append(f"{number}. {one} {markdown_cell(phase.name)} ({words}{said})")
    return section("Phases", lines)


def _single_steps(picture: Picture) -> str:
    table = matrix.single_tasks(picture)
    if not table.columns:
        return ""
    (row,) = matrix.cells(picture, table)
    # A fan-out may be called `step` too: its matrix must not look like this list.
    first = "single step" if any(fan.var.casefold() == "step" for fan in picture.spec.items) else "step"
    lines = [f"| {first} | state | title |", "| --- | --- | --- |"]
    for (name, title), one in zip(table.columns, row.marks, strict=True):
        cell = markdown_cell(name)
        lines.append(f"| {cell} | {one} | {cell if title == name else markdown_cell(title)} |")
    return section("Steps", lines)


# --- fan-outs --------------------------------------------------------------------------------------------


def _fan_out(picture: Picture, table: Matrix) -> str:
    lines = list(_unknown_items(picture, table.var))
    batches = _by_batch(picture, table)
    drawn = {number: _drawn(picture, table, paths) for number, paths in batches.items()}
    if len(batches) > 1:
        for number, (rows, one) in drawn.items():
            lines.append(f"- Batch {number}: {one}, {counted(len(rows), 'item')}")
    for number, (rows, _) in drawn.items():
        if len(batches) > 1:
            lines += ["", f"### {markdown_cell(table.var)}: batch {number}", ""]
        elif lines:
            lines.append("")
        lines += _heading(table)
        lines += rows
    if not lines:
        lines.append("There are no items.")
    return section(f"Each {markdown_cell(table.var)}", lines)


def _unknown_items(picture: Picture, var: str) -> Iterator[str]:
    if matrix.is_expanded(picture, var):
        return
    maker = next(fan for fan in picture.spec.items if fan.var == var)
    source = f"they come from {markdown_code(maker.name)}" if maker.given is None else "they belong to items"
    if var in picture.unexpanded:
        yield f"The items are not known yet: {source}, which has not finished."
    else:
        parents = sum(1 for name, _ in picture.items if name == var)
        yield f"Not all items are known yet: {source}, which has finished {counted(parents, 'time')} so far."


def _by_batch(picture: Picture, table: Matrix) -> dict[int, list[Path]]:
    numbers = picture.batches(table.var)
    grouped: dict[int, list[Path]] = {}
    for path in table.rows:
        grouped.setdefault(numbers[path], []).append(path)
    return dict(sorted(grouped.items()))


def _heading(table: Matrix) -> list[str]:
    titles = matrix.headings(table.columns)
    return [
        f"| {markdown_cell(table.var)} | " + " | ".join(titles) + " |",
        "| --- |" + " :-: |" * len(titles),
    ]


def _drawn(picture: Picture, table: Matrix, paths: Iterable[Path]) -> tuple[list[str], str]:
    """The rows of one matrix, and one symbol for all of it with its meaning."""
    rows = list(matrix.cells(picture, table, paths))
    labels = markdown_cells([row.label for row in rows])
    joined = {marks: " | ".join(marks) for marks in {row.marks for row in rows}}  # most rows are alike
    lines = [f"| {label} | {joined[row.marks]} |" for label, row in zip(labels, rows, strict=True)]
    return lines, _standing([one for row in rows for one in row.marks])


def _standing(marks: list[str]) -> str:
    """One symbol for several tasks, in words too. If all that is left of them is blocked, so are they."""
    one = matrix.overall(marks)
    return MARKS[BLOCKED] if _is_blocked(marks) else f"{one} {_WORDS[one]}"


def _is_blocked(marks: list[str]) -> bool:
    """Whether something is left of these tasks, and all of it is blocked."""
    return MARKS[BLOCKED] in marks and set(marks) <= {DONE_MARK, MARKS[SKIPPED], MARKS[BLOCKED]}


# --- gates and leftovers ---------------------------------------------------------------------------------


def _gates(picture: Picture) -> str:
    specs = {gate.name: gate for gate in picture.spec.gates}
    lines = []
    for gate, standing in matrix.gates(picture).items():
        one = _GATE_MARKS.get(standing, NOT_STARTED_MARK)
        spec = specs.get(step_of(gate))
        ask = f": {markdown_cell(spec.ask)}" if spec and spec.ask else ""
        lines.append(f"- {one} {markdown_code(gate)} ({standing or 'not reached yet'}){ask}")
    return section("Gates", lines)


def _orphans(picture: Picture) -> str:
    orphans = [f"- {markdown_code(task)}" for task in picture.orphans()]
    if not orphans:
        return ""
    said = "On record, but the pipeline no longer has them. Their files are kept."
    return section("No longer in the pipeline", [said, "", *and_more(orphans)])


def section(title: str, lines: list[str]) -> str:
    """A heading and what stands below it; "" if nothing does."""
    return _paragraph([f"## {title}", "", *lines]) if lines else ""


def _paragraph(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
