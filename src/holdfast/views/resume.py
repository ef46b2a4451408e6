"""RESUME.md: a letter to whoever continues this run and has never seen the project. Pure."""

from __future__ import annotations

import msgspec

from holdfast import layout
from holdfast.clock import iso
from holdfast.escaping import markdown_cell, markdown_code, markdown_line
from holdfast.picture import Picture
from holdfast.pipeline.reach import step_edges
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, SKIPPED, Note
from holdfast.views import matrix
from holdfast.views.checkpoint import LISTED_MAX, and_more, phase_mark, progress_words
from holdfast.views.stamp import stamp
from holdfast.views.summary import cost_line

HIGH, MEDIUM, LOW = "High", "Medium", "Low"
_MEANING = {HIGH: "others wait for it", MEDIUM: "half-finished", LOW: "not started"}
_SURPRISES_SHOWN = 20


def render(picture: Picture) -> str:
    """RESUME.md with its stamp."""
    finished = picture.state.status == COMPLETED
    parts = [
        _opening(picture),
        _overview(picture),
        _progress(picture),
        _outputs(picture) if finished else _incomplete(picture),
        _issues(picture),
        _decisions(picture),
        "" if finished else _next_steps(picture),
        _locations(picture),
        _section("Cost so far", [f"{cost_line(picture)}."]),
    ]
    return stamp("\n".join(filter(None, parts)), picture.state.run_id, picture.state.seq)


def priorities(picture: Picture) -> dict[str, str]:
    """Every unfinished task's priority, the most urgent first.

    High: others wait for it, and it waits for no task itself. Medium: half-finished. Low: not started.
    """
    awaited, ready = _awaited(picture), set(picture.ready)
    found: dict[str, list[str]] = {HIGH: [], MEDIUM: [], LOW: []}
    for task in picture.tasks:
        record = picture.state.task(task)
        if record.status in (COMPLETED, SKIPPED) and not record.question:
            continue
        half = record.cut_off or bool(record.question) or record.status in (FAILED, IN_PROGRESS, NEEDS_REVIEW)
        urgent = (half or task in ready) and task.partition("[")[0] in awaited
        found[HIGH if urgent else MEDIUM if half else LOW].append(task)
    return {task: level for level, tasks in found.items() for task in tasks}


def _awaited(picture: Picture) -> set[str]:
    """The names of steps that something else needs, or that a later phase waits for."""
    spec = picture.spec
    names = {name for name, consumers in step_edges(spec).items() if consumers}
    used = [p.name for p in spec.phases if any(step.phase == p.name for step in spec.steps)]
    return names | {step.name for step in spec.steps if step.phase in used[:-1]}


def _opening(picture: Picture) -> str:
    state = picture.state
    by = f", in process {state.pid} on {markdown_cell(state.host)}" if state.host else ""
    lines = [
        f"# How to continue {markdown_line(state.pipeline)}",
        "",
        f"Generated {iso(state.updated_at or 0.0)} by Holdfast{by}.",
        "",
    ]
    if state.status == COMPLETED:
        lines.append("**This run is complete. Nothing is left to do.**")
    else:
        why = f" It stopped because: {markdown_cell(state.reason)}." if state.reason else ""
        lines += [
            f"This run is not finished.{why} What is done is kept and proved: continuing repeats none of it.",
            "",
            f"To continue: {markdown_code(picture.continue_command())}",
        ]
    return "\n".join(lines) + "\n"


def _overview(picture: Picture) -> str:
    state = picture.state
    lines = [
        f"- Pipeline: {markdown_code(state.pipeline)}",
        f"- Pipeline file: {markdown_code(state.file)}" if state.file else "- Pipeline file: not recorded",
        f"- Run: {markdown_code(state.run_id)}",
        "- Project: the folder in which this file lies",
    ]
    lines += [f"- Parameter {markdown_code(key)}: {_json(value)}" for key, value in state.params.items()]
    lines += [f"- Tag {markdown_code(key)}: {_json(value)}" for key, value in state.tags.items()]
    for fan in picture.spec.items:
        known = len(picture.rows(fan.var))
        more = "" if matrix.is_expanded(picture, fan.var) else " so far; the others are not known yet"
        lines.append(f"- Items of {markdown_code(fan.var)}: {known}{more}")
    return _section("Overview", lines)


def _progress(picture: Picture) -> str:
    lines = [f"- {progress_words(picture)}"]
    if picture.phase is not None:
        lines.append(f"- Current phase: {markdown_cell(picture.phase)}")
    lines += [f"  - {phase_mark(picture, p.name)} {markdown_cell(p.name)}" for p in picture.spec.phases]
    if picture.batch is not None:
        lines.append(f"- Current batch: {picture.batch}")
    if picture.state.last_completed:
        lines.append(f"- Finished last: {markdown_code(picture.state.last_completed)}")
    return _section("Progress", lines)


def _incomplete(picture: Picture) -> str:
    levels = priorities(picture)
    if not levels:
        return ""
    lines = ["| task | status | priority |", "| --- | --- | --- |"]
    for task in list(levels)[:LISTED_MAX]:
        meaning = f"{levels[task]} ({_MEANING[levels[task]]})"
        lines.append(f"| {markdown_code(task)} | {_state_words(picture, task)} | {meaning} |")
    if len(levels) > LISTED_MAX:
        rest = list(levels.values())[LISTED_MAX:]
        counted = ", ".join(f"{rest.count(level)} {level}" for level in _MEANING if level in rest)
        lines += ["", f"... and {len(rest)} more: {counted}. All of them are in `{layout.CHECKPOINT_VIEW}`."]
    return _section("Incomplete tasks", lines)


def _state_words(picture: Picture, task: str) -> str:
    record = picture.state.task(task)
    words = picture.status(task).replace("_", " ")
    if record.question:
        words = "waits for an answer"
    elif record.cut_off:
        words += ", was cut off"
    return words + (f", round {record.round}" if record.round else "")


def _issues(picture: Picture) -> str:
    state = picture.state
    errors = [
        f"- {markdown_code(task)} {_state_words(picture, task)}: {markdown_cell(state.tasks[task].error)}"
        for task in picture.tasks
        if task in state.tasks and state.tasks[task].error and state.tasks[task].status != SKIPPED
    ]
    notes = [_note(note) for note in state.notes]
    surprises = [_note(note) for note in state.surprises[-_SURPRISES_SHOWN:]]
    lines = [*and_more(errors), *_latest(notes), *surprises]
    return _section("Known issues", lines or ["None."])


def _note(note: Note) -> str:
    where = f" ({markdown_code(note.task)})" if note.task else ""
    impact = f"; impact: {markdown_cell(note.impact)}" if note.impact else ""
    return f"- {iso(note.at)}{where}: {markdown_cell(note.text)}{impact}"


def _decisions(picture: Picture) -> str:
    lines = []
    for decision in picture.state.decisions:
        where = f" ({markdown_code(decision.task)})" if decision.task else ""
        why = f"; reason: {markdown_cell(decision.why)}" if decision.why else ""
        outcome = f"; outcome: {markdown_cell(decision.outcome)}" if decision.outcome else ""
        lines.append(f"- {markdown_line(decision.what)}{where}{why}{outcome}")
    return _section("Decisions", _latest(lines))


def _latest(lines: list[str]) -> list[str]:
    """The newest of a list that only grows; the journal has the others."""
    if len(lines) <= LISTED_MAX:
        return lines
    return [f"- {len(lines) - LISTED_MAX} older ones: see `holdfast events`", *lines[-LISTED_MAX:]]


def _next_steps(picture: Picture) -> str:
    steps = [
        f"Read `{layout.CHECKPOINT_VIEW}`: every task and its state on one page.",
        f"Look for half-finished files: `find . -name '*{layout.PART_SUFFIX}'`{_cut_off(picture)}",
        "See what would run, and why, without changing anything: `holdfast plan`",
    ]
    needs = picture.needs()
    steps += [
        f"{markdown_code(need.task)} needs a person: {markdown_cell(need.why) or 'it waits'}\n"
        f"   - {markdown_code(need.command)}"
        for need in needs[:LISTED_MAX]
    ]
    if len(needs) > LISTED_MAX:
        steps.append(f"... and {len(needs) - LISTED_MAX} more that need a person: `holdfast status`")
    steps.append(f"Continue: {markdown_code(picture.continue_command())}")
    return _section("Next steps", [f"{number}. {step}" for number, step in enumerate(steps, start=1)])


def _cut_off(picture: Picture) -> str:
    """The tasks whose last attempt may have left something behind."""
    half = [task for task in picture.tasks if _may_be_half_done(picture, task)]
    if not half:
        return ""
    named = ", ".join(markdown_code(task) for task in half[:5])
    more = f" and {len(half) - 5} more" if len(half) > 5 else ""
    return f" (expected from {named}{more})"


def _may_be_half_done(picture: Picture, task: str) -> bool:
    record = picture.state.tasks.get(task)
    return record is not None and (record.cut_off or record.status == IN_PROGRESS)


def _outputs(picture: Picture) -> str:
    """Where a finished run put its results: each file of a lone step, and how many of a fanned-out one."""
    counts: dict[str, int] = {}
    for task in picture.tasks:
        name = task.partition("[")[0]
        counts[name] = counts.get(name, 0) + (picture.state.task(task).status == COMPLETED)
    lines = []
    for step in picture.spec.steps:
        record = picture.state.tasks.get(step.name)
        if step.each:
            files = [f"{markdown_code(path)} ({counts.get(step.name, 0)} files)" for path in step.files.values()]
        else:
            accepted = record.accepted if record is not None and record.status == COMPLETED else None
            files = [markdown_code(file.path) for file in accepted.files] if accepted else []
        lines += [f"- {markdown_cell(step.title)}: {file}" for file in files]
    return _section("Outputs", lines)


def _locations(picture: Picture) -> str:
    run = f"{layout.STATE_DIR}/{layout.RUNS_DIR}/{picture.state.run_id}"
    lines = [
        f"- Every task's state: {markdown_code(layout.CHECKPOINT_VIEW)}",
        f"- Results so far: {markdown_code(f'{run}/{layout.PROGRESS}')}",
        f"- Summary for tools: {markdown_code(f'{run}/{layout.SUMMARY}')}",
        f"- The journal, which is the truth: {markdown_code(f'{run}/{layout.JOURNAL}')}",
        f"- Tasks as SQL: {markdown_code(f'{layout.STATE_DIR}/{layout.TODOS_DB}')}",
        f"- Logs of steps: {markdown_code(f'{run}/{layout.LOGS_DIR}')}",
        f"- Whatever was found damaged: {markdown_code(f'{run}/{layout.QUARANTINE_DIR}')}",
    ]
    for step in picture.spec.steps:
        for path in step.files.values():
            lines.append(f"- {markdown_cell(step.title)} writes {markdown_code(path)}")
    return _section("Where things are", lines)


def _json(value: object) -> str:
    return markdown_code(msgspec.json.encode(value).decode())


def _section(title: str, lines: list[str]) -> str:
    return "\n".join([f"## {title}", "", *lines]) + "\n" if lines else ""
