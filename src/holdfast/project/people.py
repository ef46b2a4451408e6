"""What people decide about a run: approve, reject, decide, retry, note. They only record, at any time.

Each function checks its names against the run first, appends one event to the journal, brings the views up to it
(unless an engine does that), and gives back the sentence that says what was recorded. A wrong name is a
UsageError, and nothing is written. What is recorded has been done: views that cannot be written then are told, and
no error, or whoever repeats the command would say it twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from holdfast import clock
from holdfast import events as ev
from holdfast.errors import StorageError, UsageError
from holdfast.journal.lines import encode_event
from holdfast.layout import ProjectLayout
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.names import did_you_mean, printable, which_task
from holdfast.pipeline.nodes import called_now, step_of
from holdfast.recovery.unfinished import PARTIAL_MIN_CHARS
from holdfast.runs.listing import read_picture, read_run, refuse_strange_run, run_layout
from holdfast.runs.looking import draw_run_both
from holdfast.runs.opening import open_journal, open_lease
from holdfast.sessions.answering import asked_again, left_out_with, objection
from holdfast.sessions.editing import kept_events, wanted
from holdfast.state import BLOCKED, COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PENDING, SENT_BACK, SKIPPED
from holdfast.views.matrix import gates
from holdfast.views.picture import GONE, Picture, answers
from holdfast.views.shelf import ViewShelf
from holdfast.views.soundness import pages_behind
from holdfast.wording import some_of, writable

_NAME_SHOWN_MAX = 160
_RETRYABLE = (NEEDS_REVIEW, FAILED, SKIPPED)


def approve(layout: ProjectLayout, run_id: str, name: str, *, by: str = "") -> str:
    """Let a gate, or a phase whose checklist objects (`phase:NAME`), pass."""
    picture = read_picture(layout, run_id)
    standings = gates_and_phases(picture)
    name = _meant(name, standings, standings)
    _require(name, standings, "gate or phase")
    if standings[name] == "approved":
        return f"{name} is approved already."
    behind = _record(layout, run_id, ev.GateApproved(step_id=name, by=by))
    if standings[name] == "started":
        return f"{name} is approved; it had started already.{behind}"
    is_reached = standings[name] not in ("", SENT_BACK)
    return f"{name} is approved{'' if is_reached else '; it is not reached yet'}.{behind}"


def reject(layout: ProjectLayout, run_id: str, name: str, to: str, feedback: str) -> str:
    """Send the finished task `to` back with `feedback`, in the name of a gate, a phase or a task."""
    picture = read_picture(layout, run_id)
    name = _meant(called_now(name, picture.spec, picture.tasks), known_names(picture), gates_and_phases(picture))
    _require(name, known_names(picture), "gate, phase or task")
    to = _task(picture, to)
    if to in picture.state.recalls:
        raise UsageError(f"{to} is being sent back already.", fix="Wait until it has been redone.")
    if picture.status(to) != COMPLETED:
        raise UsageError(f"{to} is {_words(picture.status(to))}; only finished work can be sent back.")
    if name in picture.tasks and picture.status(name) == IN_PROGRESS and open_lease(layout).holder() is not None:
        raise UsageError(f"{name} is running.", fix="Reject when it has ended.")
    targets = {to: _text(feedback, "The feedback")}
    return f"{to} is sent back.{_record(layout, run_id, ev.RewindRequested(step_id=name, targets=targets))}"


def retry(layout: ProjectLayout, run_id: str, tasks: Sequence[str] | None) -> str:
    """Give tasks a fresh set of attempts: those named, or (None) all that failed or were left out."""
    picture = read_picture(layout, run_id)
    if tasks is None:
        chosen = [task for task in picture.tasks if picture.status(task) in _RETRYABLE]
    else:
        chosen = list(dict.fromkeys(_task(picture, task) for task in tasks))
        for task in chosen:
            _require_retryable(picture, task)
    if not chosen:
        return "There is nothing to retry."
    behind = _record(layout, run_id, ev.RetryRequested(step_ids=tuple(chosen)))
    return f"To be tried again: {some_of(chosen)}.{behind}"


def decide(layout: ProjectLayout, run_id: str, task: str, choice: str, *, by: str = "") -> str:
    """Answer what is asked about a task, or say beforehand what shall be done about it."""
    picture = read_picture(layout, run_id)
    task = _task(picture, task)
    going_on = open_lease(layout).holder() is not None
    _require_answerable(picture, task, choice, going_on=going_on)
    _require_effect(layout, picture, task, choice)
    gone, without = left_out_with(layout, picture.state, task) if choice == "skip" else ([], [])
    if choice == "redo" and picture.record(task).status == COMPLETED:
        # Finished and in use, perhaps right now: it is sent back, so that whoever takes it ends first.
        behind = _record(layout, run_id, ev.RewindRequested(step_id="", targets={task: ""}))
    else:
        open_ones = [other for other in gone if picture.status(other) != COMPLETED and not going_on]
        along = [ev.TaskSkipped(step_id=other, reason=f"{task} was skipped") for other in open_ones]
        behind = _record(layout, run_id, ev.Decided(step_id=task, choice=choice, by=by), *along)
    when = "" if going_on else " by the next resume"
    return f"{task}: {MEANINGS[choice]}{when}.{_goes_with(gone, without)}{behind}"


def _require_effect(layout: ProjectLayout, picture: Picture, task: str, choice: str) -> None:
    """UsageError where the files are such that the answer would change nothing."""
    asked = answers(picture.record(task))
    if asked:
        why = asked_again(layout, picture.state, task, choice) if choice != "skip" else ""
        if why:
            words = f"{task} would only be asked about again after '{choice}': {why}."
            others = ", ".join(other for other in asked if other != choice)
            raise UsageError(words, fix=f"Put that right first, or use {others} or skip.")
    elif choice in ("keep", "restore", "continue") and not picture.record(task).question:
        wrong = objection(layout, picture.state, task, choice)
        if wrong:
            raise UsageError(f"There is nothing to {choice} about {task}: {wrong}.")


def _goes_with(gone: list[str], without: list[str]) -> str:
    """What else a skipped task takes with it: whoever skips a review may not mean to lose the chapter."""
    words = f" So will what needs its output: {some_of(gone)}." if gone else ""
    return words + (f" To be made without it: {some_of(without)}." if without else "")


MEANINGS = {
    "keep": "what is there will be kept and accepted as it is",
    "restore": "what is there now will be set aside, and the accepted version put back",
    "redo": "it will be done again",
    "continue": f"its half-finished text will be continued; one under {PARTIAL_MIN_CHARS} characters is made anew",
    "skip": "it will be left out",
}


def _require_answerable(picture: Picture, task: str, choice: str, *, going_on: bool) -> None:
    """UsageError where an answer would mean nothing, with the one that would."""
    status, record = picture.status(task), picture.record(task)
    if status == IN_PROGRESS and going_on:
        raise UsageError(f"{task} is running.", fix="Decide when it, or the run, has ended.")
    fitting = answers(record) if record.question else ()
    if fitting and choice not in (*fitting, "skip"):
        words = f"{record.error.removesuffix('.')}. '{choice}' is no answer to that."
        raise UsageError(f"{task} waits for another answer: {words}", fix=f"Use {', '.join(fitting)} or skip.")
    if choice == "restore" and record.accepted is None and not fitting:
        raise UsageError(f"{task} was never accepted: there is nothing to restore.", fix="Use redo, or skip.")
    if choice == "skip" and status == COMPLETED and not record.question:
        raise UsageError(f"{task} is finished: there is nothing to skip.")
    runs_anyway = record.before is None and not record.decided  # else it counts again if its inputs come back
    if choice == "redo" and status in (PENDING, BLOCKED) and not record.question and runs_anyway:
        raise UsageError(f"{task} is not done yet: it runs anyway.", fix=f"holdfast resume {picture.state.run_id}")


def note(layout: ProjectLayout, run_id: str, text: str) -> str:
    """Put a note into the run's record; RESUME.md shows it."""
    read_picture(layout, run_id)
    return "The note is recorded." + _record(layout, run_id, ev.NoteAdded(text=_text(text, "The note")))


def known_names(picture: Picture) -> list[str]:
    """Everything in a run that a person can name: its tasks, gates and phases."""
    return [*picture.tasks, *gates_and_phases(picture)]


def gates_and_phases(picture: Picture) -> dict[str, str]:
    """Each gate and phase with its standing; "" if it is not reached yet."""
    phases = {f"phase:{phase.name}": "" for phase in picture.spec.phases}
    return gates(picture) | phases | picture.state.phases


def _meant(name: str, known: Collection[str], standings: Mapping[str, str]) -> str:
    """What is meant by a phase's name alone, or by that of a gate after every batch: the one that waits."""
    if name in known:
        return name
    if f"phase:{name}" in known:
        return f"phase:{name}"
    own = {gate: how for gate, how in standings.items() if step_of(gate) == name}
    waiting = [gate for gate, how in own.items() if how == "reached"]
    if own and len(waiting) != 1:
        how_many = f"{len(waiting)} of these wait" if waiting else "none of these waits"
        fix = f"Name the one that is meant: {some_of(waiting or [*own])}."
        raise UsageError(f"{name} asks after every batch, and {how_many} for approval now.", fix=fix)
    return waiting[0] if waiting else name


def _require(name: str, known: Iterable[str], what: str) -> None:
    names = list(known)
    if name in names:
        return
    hint = did_you_mean(name, names)
    if not hint and names and len(names) <= 10:
        hint = f" There are: {', '.join(names)}."
    raise UsageError(f"There is no {what} '{printable(name, _NAME_SHOWN_MAX)}'.{hint}")


def _task(picture: Picture, named: str) -> str:
    """The task that is meant, also by an earlier name of its step; UsageError if there is none."""
    task = called_now(named, picture.spec, picture.tasks)
    if task in picture.orphans():
        raise UsageError(f"{task} {GONE}.", fix="Its files are kept. To work on it, put that back and run it.")
    if task not in picture.tasks:
        hint = which_task(task, picture.tasks)
        if not hint and len(picture.tasks) <= 10:
            hint = f" There are: {', '.join(picture.tasks)}."
        raise UsageError(f"There is no task '{printable(task, _NAME_SHOWN_MAX)}'.{hint}")
    return task


def _require_retryable(picture: Picture, task: str) -> None:
    status = picture.status(task)
    if status in _RETRYABLE:
        return
    question = picture.record(task).question
    if question:
        command = next((need.command for need in picture.needs() if need.task == task), "")
        raise UsageError(f"{task} waits for an answer, not for another attempt.", fix=f"Answer: {command}")
    fix = (
        f"To do it again: holdfast resume {picture.state.run_id} --redo {shlex.quote(task)}"
        if status == COMPLETED
        else ""
    )
    raise UsageError(f"{task} is {_words(status)}: there is nothing to retry.", fix=fix)


def _words(status: str) -> str:
    return status.replace("_", " ")


def _text(text: str, what: str) -> str:
    """Words from the command line, as the journal can hold them: bytes that are no UTF-8 are spelt out."""
    if not text.strip():
        raise UsageError(f"{what} is empty.")
    return writable(text)


def _record(layout: ProjectLayout, run_id: str, *events: ev.Event) -> str:
    """Record a word; gives what has to be said of the views if they could not be brought up to it."""
    run = run_layout(layout, run_id)
    refuse_strange_run(layout, run_id)
    open_lease(layout).holder()  # if that cannot be asked, nothing is recorded
    history = read_run(layout, run_id)
    if history.journal_damage:  # the snapshot knows more than the journal: what is recorded now must come after it
        open_journal(run).repair(known_seq=history.state.seq)
    append(layout, run_id, events)
    try:
        refresh_views(layout, run_id)
    except (OSError, StorageError) as error:
        why = error if isinstance(error, StorageError) else StorageError.from_os(error, "write")
        return f" The views are behind, and the next command writes them: {why.message}"
    return ""


def refresh_views(layout: ProjectLayout, run_id: str, *, unedited: bool = False) -> None:
    """Write all views, unless an engine is at work: it refreshes them itself, and at once after a decision.

    What an edited view asks for is recorded first; with `unedited`, nothing is done if any view was edited.
    """
    if open_lease(layout).holder() is not None:
        return
    shelf = ViewShelf(layout, layout.run(run_id))
    try:
        picture, graph = _drawn(layout, run_id)
        edited = shelf.edited(picture.spec)
        if edited and unedited:
            return
        wishes = wanted(layout, edited, picture, picture.spec)
        if wishes:
            append(layout, run_id, wishes)
            picture, graph = _drawn(layout, run_id)
        kept = kept_events(layout, shelf.write(picture, graph, sync=True))
        if kept:
            append(layout, run_id, kept)
            shelf.write(*_drawn(layout, run_id), sync=True)  # they know of it too
    finally:
        shelf.close()


def behind(layout: ProjectLayout, run_id: str) -> list[str]:
    """The pages that a kill left behind the journal, and no engine at work is going to write."""
    last = open_journal(layout.run(run_id)).last()
    if last is None or open_lease(layout).holder() is not None:
        return []
    return pages_behind(layout, run_id, last.seq)


def catch_up(layout: ProjectLayout, run_id: str) -> None:
    """Write pages that a kill left behind the journal, if they can be written."""
    with suppress(OSError, StorageError):
        if behind(layout, run_id):
            refresh_views(layout, run_id, unedited=True)


def append(layout: ProjectLayout, run_id: str, events: Sequence[ev.Event]) -> None:
    """Record these events, as anybody may at any time."""
    if not events:
        return
    journal = open_journal(layout.run(run_id))
    try:
        batch = journal.begin()
        try:
            found = tuple(f"the journal: {words}" for words in journal.take_notices())
            ts = clock.iso(clock.now())
            for event in (*events, *([ev.StateMended(findings=found)] if found else [])):
                batch.add(encode_event(event), ts)
        except BaseException:
            batch.abort()
            raise
        batch.commit()
        journal.sync()
    finally:
        journal.close()


def _drawn(layout: ProjectLayout, run_id: str) -> tuple[Picture, Graph]:
    picture, graph = draw_run_both(layout, read_run(layout, run_id).state)
    return replace(picture, is_left=True), graph
