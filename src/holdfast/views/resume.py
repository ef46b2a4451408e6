"""RESUME.md: a letter to whoever continues this run and has never seen the project. Pure.

Its overview is also evidence: `letter.py` reads it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast import layout
from holdfast.clock import iso
from holdfast.escaping import exact_json, markdown_cell, markdown_code, markdown_line
from holdfast.pipeline.nodes import step_of, task_id
from holdfast.pipeline.spec import ItemsSpec, StepSpec, before_a_phase, step_edges
from holdfast.state import (
    BLOCKED,
    COMPLETED,
    FAILED,
    IN_PROGRESS,
    NEEDS_REVIEW,
    PENDING,
    SKIPPED,
    WAITS_FOR_PERSON,
)
from holdfast.views import letter, matrix
from holdfast.views.checkpoint import LISTED_MAX, command_words, phase_mark, phase_words, section
from holdfast.views.issues import decision_lines, issue_lines, state_words
from holdfast.views.picture import READY, Picture
from holdfast.views.stamp import stamp
from holdfast.views.summary import cost_line
from holdfast.wording import counted, some_of

HIGH, MEDIUM, LOW = "High", "Medium", "Low"
_MEANING = {HIGH: "others wait for it", MEDIUM: "half-finished", LOW: "not started"}


def render(picture: Picture) -> str:
    """RESUME.md with its stamp."""
    finished = picture.state.status == COMPLETED
    parts = [
        _opening(picture),
        _overview(picture),
        _progress(picture),
        _outputs(picture) if finished else _incomplete(picture),
        section(letter.KNOWN_ISSUES, issue_lines(picture) or ["None."]),
        section(letter.DECISIONS, decision_lines(picture)),
        "" if finished else _next_steps(picture),
        _locations(picture),
        section("Cost so far", [f"{cost_line(picture)}."]),
    ]
    return stamp("\n".join(filter(None, parts)), picture.state.run_id, picture.state.seq)


def priorities(picture: Picture) -> dict[str, str]:
    """Every unfinished task's priority, the most urgent first.

    High: others wait for it, and it waits for no task itself. Medium: half-finished. Low: not started.
    """
    awaited, ready = _awaited(picture), set(picture.ready)
    found: dict[str, list[str]] = {HIGH: [], MEDIUM: [], LOW: []}
    asked = {task for task, record in picture.talked_about.items() if record.question}
    undone = asked.union(picture.open_tasks)
    for task in [task for task in picture.tasks if task in undone] if undone else ():
        record = picture.state.task(task)
        half = record.cut_off or bool(record.question) or record.status in (FAILED, IN_PROGRESS, NEEDS_REVIEW)
        urgent = (half or task in ready) and step_of(task) in awaited
        found[HIGH if urgent else MEDIUM if half else LOW].append(task)
    return {task: level for level, tasks in found.items() for task in tasks}


def _awaited(picture: Picture) -> set[str]:
    """The names of steps that something else needs, or that a later phase waits for."""
    needed = {name for name, consumers in step_edges(picture.spec).items() if consumers}
    return needed | before_a_phase(picture.spec)


def _opening(picture: Picture) -> str:
    state = picture.state
    name = markdown_line(state.pipeline)
    by = f"; last run in process {state.pid} on {markdown_cell(state.host)}" if state.host else ""
    lines = [
        f"# {name} is complete" if state.status == COMPLETED else f"# How to continue {name}",
        "",
        f"Generated {iso(state.updated_at or 0.0)} by Holdfast{by}.",
        "Holdfast runs the steps of a pipeline, keeps what they made, and goes on where it stopped.",
        "",
    ]
    if state.status == COMPLETED:
        lines.append(letter.COMPLETE)
    else:
        lines += [
            f"This run is not finished.{_why_stopped(picture.reason)}"
            " What is done is kept and proved: continuing repeats none of it.",
            "",
            *_awaited_answers(picture),
            f"To continue, in this folder: {markdown_code(picture.continue_command())}",
            "",
            "If that process is still at work, a second one is refused and nothing happens. If there is no command"
            " `holdfast`, it is `python -m holdfast`.",
        ]
    return "\n".join(lines) + "\n"


def _awaited_answers(picture: Picture) -> list[str]:
    """What a person has to say first, where nothing else can go on."""
    if picture.reason.startswith("the budget"):  # an agent that reads this must not raise its own limit
        return ["A person has to say first how much may be spent; the amount below is twice the cost so far.", ""]
    needs = picture.needs() if picture.reason == WAITS_FOR_PERSON else []
    if not needs:
        return []
    more = f" ({len(needs) - 1} more: see the next steps below)" if len(needs) > 1 else ""
    return [f"A person is waited for first: {command_words(needs[0].command)}{more}", ""]


def _why_stopped(reason: str) -> str:
    if reason == READY:
        return f" It waited for people: {READY}."
    return f" It stopped because: {markdown_cell(reason)}." if reason else ""


def _overview(picture: Picture) -> str:
    state = picture.state
    lines = [
        f"- {letter.PIPELINE}{letter.exact(state.pipeline)}",
        f"- {letter.FILE}{letter.exact(state.file) if state.file else 'not recorded'}",
        f"- {letter.RUN}{letter.exact(state.run_id)}",
        "- Project: the folder in which this file lies",
    ]
    lines += [f"- {letter.PARAMETER}{markdown_code(key)}: {_json(value)}" for key, value in state.params.items()]
    if state.budget_usd is not None:
        lines.append(f"- {letter.BUDGET}{_json(state.budget_usd)}")
    lines += [f"- {letter.TAG}{letter.exact(key)}: {_json(value)}" for key, value in state.tags.items()]
    for fan in picture.spec.items:
        known = len(picture.rows(fan.var))
        more = "" if matrix.is_expanded(picture, fan.var) else " so far; the others are not known yet"
        lines.append(f"- Items of {markdown_code(fan.var)}: {known}{more}")
    return section(letter.OVERVIEW, lines)


def _progress(picture: Picture) -> str:
    lines = list(_counted(picture))
    if picture.phase is not None:
        lines.append(f"- Current phase: {markdown_cell(picture.phase)}")
    for phase in picture.spec.phases:
        one, words = phase_mark(picture, phase.name), phase_words(picture, phase.name)
        lines.append(f"  - {one} {markdown_cell(phase.name)} ({words})")
    batch = picture.batch
    if batch is not None:
        lines.append(f"- Current batch: {batch}")
    lines += _by_item(picture)
    ahead = [gate for gate, standing in matrix.gates(picture).items() if standing != "approved"]
    lines += [f"- Gate that is open: {markdown_code(gate)}" for gate in ahead[:LISTED_MAX]]
    if picture.state.last_completed:
        lines.append(f"- Finished last: {markdown_code(picture.state.last_completed)}")
    return section("Progress", [*lines, *_by_step(picture)])


def _counted(picture: Picture) -> Iterator[str]:
    counts = picture.counts
    share = f" ({100 * picture.done // picture.total} %)" if picture.total else ""
    skipped = f", and {picture.skipped} skipped" if picture.skipped else ""
    yield f"- Finished: {picture.done} of {picture.total} tasks{share}{skipped}"
    yield f"- In progress: {counts.get(IN_PROGRESS, 0)}"
    blocked = counts.get(BLOCKED, 0)
    waiting = counts.get(PENDING, 0) + blocked
    share = "all" if blocked == waiting else f"{blocked} of them"
    held = f", {share} blocked: what they wait for needs a person" if blocked else ""
    yield f"- Not started: {waiting}{held}"
    if counts.get(FAILED):
        yield f"- Failed, another attempt is due: {counts[FAILED]}"
    if counts.get(NEEDS_REVIEW):
        yield f"- Waiting for human review: {counts[NEEDS_REVIEW]}"


def _by_item(picture: Picture) -> Iterator[str]:
    """Which items are finished, which are begun, and which are not, by name."""
    for fan in picture.spec.items:
        steps = [step.name for step in picture.spec.steps if step.each == fan.var]
        found: dict[str, list[str]] = {"finished": [], "in progress": [], "not started": []}
        for row in picture.rows(fan.var):
            standing = {picture.status(task_id(name, row)) for name in steps}
            is_begun = bool(standing - {PENDING, BLOCKED})
            word = "finished" if standing <= {COMPLETED, SKIPPED} else "in progress" if is_begun else "not started"
            found[word].append(markdown_code("/".join(row)))
        for word, names in found.items():
            if names:
                yield f"- {markdown_cell(fan.var)} {word}: {some_of(names)}"


def _by_step(picture: Picture) -> Iterator[str]:
    """What a stranger wants to know of the work itself: its steps in their order, and how far each is.

    Of very many, those at which the work is.
    """
    makers = [fan for fan in picture.spec.items if fan.name in picture.by_step]
    steps: list[StepSpec | ItemsSpec] = [*picture.spec.steps, *makers]
    left = Counter([step_of(task) for task in picture.open_tasks])
    is_left_out = picture.skipped > 0
    skipped = Counter(step_of(t) for t in picture.tasks if is_left_out and picture.status(t) == SKIPPED)
    known = {step.name: len(picture.by_step.get(step.name, ())) for step in steps}
    if not steps:
        return
    begin = next((place for place, step in enumerate(steps) if left[step.name]), len(steps))
    begin = max(0, min(begin, len(steps) - LISTED_MAX))
    yield from ("", "| step | for each | finished |", "| --- | --- | --- |")
    for step in steps[begin : begin + LISTED_MAX]:
        more = "" if step.each is None or matrix.is_expanded(picture, step.each) else " known so far"
        each = markdown_cell(step.each) if step.each else ""
        finished = known[step.name] - left[step.name] - skipped[step.name]
        left_out = f", {skipped[step.name]} skipped" if skipped[step.name] else ""
        title = markdown_cell(getattr(step, "title", step.name))
        yield f"| {title} | {each} | {finished} of {known[step.name]}{more}{left_out} |"
    if len(steps) > LISTED_MAX:
        left_out = f"{len(steps) - LISTED_MAX} of {len(steps)} steps are left out here"
        yield from ("", f"{left_out}: {markdown_code(layout.CHECKPOINT_VIEW)} has all.")


def _incomplete(picture: Picture) -> str:
    levels = priorities(picture)
    if not levels:
        return ""
    lines = ["| task | status | priority |", "| --- | --- | --- |"]
    for task in list(levels)[:LISTED_MAX]:
        meaning = f"{levels[task]} ({_MEANING[levels[task]]})"
        lines.append(f"| {markdown_code(task)} | {state_words(picture, task)} | {meaning} |")
    if len(levels) > LISTED_MAX:
        rest = list(levels.values())[LISTED_MAX:]
        counted = ", ".join(f"{rest.count(level)} {level}" for level in _MEANING if level in rest)
        lines += ["", f"... and {len(rest)} more: {counted}. {letter.CUT_SHORT}"]
    return section("Incomplete tasks", lines)


def _next_steps(picture: Picture) -> str:
    steps = [
        "See how the run stands: `holdfast status`",
        f"Read every task's state on one page: `cat {layout.CHECKPOINT_VIEW}`",
        f"Look for half-finished files:\n   - still growing when it stopped{_cut_off(picture)}:"
        f" `find . -name '*{layout.PART_SUFFIX}'`\n   - without their marker, or damaged: `holdfast scan`",
        "See what would run, and why, without changing anything: `holdfast plan`",
    ]
    needs = picture.needs()
    steps += [
        f"{markdown_code(need.task)} needs a person: {markdown_cell(need.why) or 'it waits'}\n"
        f"   - {command_words(need.command)}"
        for need in needs[:LISTED_MAX]
    ]
    if len(needs) > LISTED_MAX:
        steps.append(f"... and {len(needs) - LISTED_MAX} more that need a person: `holdfast status`")
    steps.append(f"Continue: {markdown_code(picture.continue_command())}")
    return section("Next steps", [f"{number}. {step}" for number, step in enumerate(steps, start=1)])


def _cut_off(picture: Picture) -> str:
    """The tasks whose last attempt may have left something behind."""
    records = picture.talked_about
    begun = [task for task in picture.tasks if task in records] if records else []
    half = [task for task in begun if records[task].cut_off or records[task].status == IN_PROGRESS]
    return f" (expected of {some_of([*map(markdown_code, half)])})" if half else ""


def _outputs(picture: Picture) -> str:
    """Where a finished run put its results: each file of a lone step, and how many of a fanned-out one."""
    lines = []
    for step in picture.spec.steps:
        record = picture.state.tasks.get(step.name)
        if step.each:
            records = [picture.state.task(task) for task in picture.by_step.get(step.name, ())]
            made = counted([record.status for record in records].count(COMPLETED), "file")
            files = [f"{markdown_code(path)} ({made})" for path in step.files.values()]
            files += [f"{markdown_code(step.appends)}, a section an item"] if step.appends is not None else []
        else:
            accepted = record.accepted if record is not None and record.status == COMPLETED else None
            files = [markdown_code(file.path) for file in accepted.files] if accepted else []
        lines += [f"- {markdown_cell(step.title)}: {file}" for file in files]
    return section("Outputs", lines)


def _locations(picture: Picture) -> str:
    run = f"{layout.STATE_DIR}/{layout.RUNS_DIR}/{picture.state.run_id}"
    results = [f"- Results so far: {markdown_code(f'{run}/{layout.PROGRESS}')}"] if picture.state.sections else []
    lines = [
        f"- Every task's state: {markdown_code(layout.CHECKPOINT_VIEW)}",
        *results,
        f"- Summary for tools: {markdown_code(f'{run}/{layout.SUMMARY}')}",
        f"- The journal, which is the truth: {markdown_code(f'{run}/{layout.JOURNAL}')}",
        f"- Tasks as SQL: {markdown_code(f'{layout.STATE_DIR}/{layout.TODOS_DB}')}",
        f"- Logs of steps: {markdown_code(f'{run}/{layout.LOGS_DIR}')}",
        f"- Copies of accepted files: {markdown_code(f'{layout.STATE_DIR}/{layout.OBJECTS_DIR}')}",
        f"- Whatever was found damaged: {markdown_code(f'{run}/{layout.QUARANTINE_DIR}')}",
        "- What was half-finished or edited, before it was written anew: beside the file, as `NAME.bak.TIME`",
    ]
    for step in picture.spec.steps if picture.state.status != COMPLETED else ():  # else `_outputs` has them
        for path in step.files.values():
            lines.append(f"- {markdown_cell(step.title)} writes {markdown_code(path)}")
        if step.appends is not None:
            lines.append(f"- {markdown_cell(step.title)} keeps {markdown_code(step.appends)}, a section an item")
    return section("Where things are", lines)


def _json(value: object) -> str:
    return markdown_code(exact_json(value))
