"""What went wrong, what was noted and what was decided, as lines of RESUME.md. Pure."""

from __future__ import annotations

from holdfast.clock import iso
from holdfast.escaping import markdown_cell, markdown_code, markdown_line, markdown_words
from holdfast.pipeline.nodes import step_of
from holdfast.pipeline.spec import before_a_phase, step_edges
from holdfast.state import SKIPPED, Note
from holdfast.views import matrix
from holdfast.views.checkpoint import LISTED_MAX, and_more
from holdfast.views.picture import Picture, is_sent_back
from holdfast.wording import shortened, some_of

_KEPT_AS = "; the damaged one is kept as "  # followed by a name that is never used twice
_SURPRISES_SHOWN = 20
_WORDS_MAX = 2000


def issue_lines(picture: Picture) -> list[str]:
    """Errors with what they hold up, then what people noted, then what was found and mended."""
    state = picture.state
    impacts: dict[str, str] = {}
    unfinished = _unfinished_steps(picture)
    errors = []
    records = picture.talked_about
    for task in [task for task in picture.tasks if task in records] if records else ():
        record = records[task]
        if record.error and record.status != SKIPPED:
            name = step_of(task)
            impacts[name] = impacts.get(name) or _impact(picture, name, unfinished)
            words = f"{state_words(picture, task)}: {markdown_words(record.error)}; impact: {impacts[name]}"
            errors.append(f"- {markdown_code(task)} {words}")
    notes = [_note(note) for note in state.notes]
    open_errors = {(task, record.error) for task, record in records.items() if record.question}
    told = [note for note in state.surprises if (note.task, note.text) not in open_errors]
    surprises = [_note(note) for note in _joined(_once(told))[-_SURPRISES_SHOWN:]]
    return [*and_more(errors), *_latest(notes), *surprises]


def _once(surprises: list[Note]) -> list[Note]:
    """A repaired journal tells of it itself, and so does whoever repaired it, in more words: those are kept."""
    kept_as = [note.text.partition(_KEPT_AS)[2] for note in surprises]
    last = {name: place for place, name in enumerate(kept_as)}
    return [note for place, note in enumerate(surprises) if not kept_as[place] or last[kept_as[place]] == place]


def _joined(surprises: list[Note]) -> list[Note]:
    """What was found, with all that was done about it: set aside, then put back, is one happening."""
    joined: list[Note] = []
    for note in surprises:
        found, _, done = note.text.partition("; ")
        last = joined[-1] if joined else None
        if last is not None and (last.task, last.text.partition("; ")[0]) == (note.task, found):
            text = last.text if done in last.text else f"{last.text}; {done}"
            joined[-1] = Note(text, note.impact or last.impact, note.task, note.at)
        else:
            joined.append(note)
    return joined


def _unfinished_steps(picture: Picture) -> set[str]:
    """The names of steps and items functions with a task that is still to be done, and of closed gates."""
    found = {step_of(task) for task in picture.open_tasks}
    closed = {step_of(gate) for gate, standing in matrix.gates(picture).items() if standing != "approved"}
    return found | closed | {step.name for step in picture.spec.steps if step.each in picture.unexpanded}


def _impact(picture: Picture, step: str, unfinished: set[str]) -> str:
    """What cannot go on because of a task of this step."""
    edges = step_edges(picture.spec)
    waiting: dict[str, None] = {}
    stack = [step]
    while stack:
        for consumer in sorted(edges.get(stack.pop(), ())):
            if consumer not in waiting and consumer != step:
                waiting[consumer] = None
                stack.append(consumer)
    held = [name for name in waiting if name in unfinished]
    if held:
        return f"{some_of([*map(markdown_code, held)])} cannot go on without it"
    if waiting.keys() - {gate.name for gate in picture.spec.gates}:
        return "what was made from it is finished, and may have to be made again"
    return "the next phase waits for it" if step in before_a_phase(picture.spec) else "nothing else waits for it"


def _note(note: Note) -> str:
    where = f" ({markdown_code(note.task)})" if note.task else ""
    impact = f"; impact: {markdown_cell(shortened(note.impact, _WORDS_MAX))}" if note.impact else ""
    return f"- {iso(note.at)}{where}: {markdown_words(shortened(note.text, _WORDS_MAX))}{impact}"


def decision_lines(picture: Picture) -> list[str]:
    """What was decided, why, and what came of it."""
    lines = []
    for decision in picture.state.decisions:
        where = f" ({markdown_code(decision.task)})" if decision.task else ""
        what, why, outcome = (shortened(t, _WORDS_MAX) for t in (decision.what, decision.why, decision.outcome))
        why = f"; reason: {markdown_cell(why)}" if why else ""
        outcome = f"; outcome: {markdown_cell(outcome)}" if outcome else ""
        lines.append(f"- {markdown_line(what)}{where}{why}{outcome}")
    return _latest(lines)


def _latest(lines: list[str]) -> list[str]:
    """The newest of a list that only grows; the journal has the others."""
    if len(lines) <= LISTED_MAX:
        return lines
    return [f"- {len(lines) - LISTED_MAX} older ones: see `holdfast events`", *lines[-LISTED_MAX:]]


def state_words(picture: Picture, task: str) -> str:
    """A task's status as people say it, with what is special about it."""
    record = picture.state.task(task)
    words = picture.status(task).replace("_", " ")
    if record.question:
        words = "waits for an answer"
    elif record.cut_off:
        words += ", was cut off"
    elif is_sent_back(picture.state, task):
        words += ", sent back"
    return words + (f", round {record.round}" if record.round else "")
