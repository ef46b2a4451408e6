"""The last lines of a run: what was done and what it cost, what needs a person, and how to go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.cli.printing import addressed, money
from holdfast.errors import HoldfastError
from holdfast.layout import REFUSED_DIR, ProjectLayout
from holdfast.runs.listing import list_runs, newest
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, SKIPPED, RunState
from holdfast.views.picture import Picture
from holdfast.views.soundness import note_on_todos
from holdfast.wording import some_of, span

if TYPE_CHECKING:
    from holdfast.cli.running import Tally
    from holdfast.commands.run import RunResult

NEEDS_MAX = 20


def ending(
    result: RunResult, tally: Tally, directory: str, layout: ProjectLayout, seconds: float
) -> Iterator[str]:
    """How the run ended. Unless it is complete, the last line is the command that continues it."""
    picture = result.picture
    if tally.adopted:
        yield f"Found finished without a record, taken over as it is, and sealed: {some_of(tally.adopted)}."
    if result.unread:
        yield f"Believed by size, time and inode, without reading them (--quick): {result.unread} files."
    if result.left_alone:
        shown = some_of(result.left_alone)
        yield f"Missing, and left alone because nothing unfinished needs them (--only-needed): {shown}."
    yield from orphan_lines(picture)
    yield from view_lines(layout, picture.state)
    where = layout.run(picture.state.run_id).quarantine.relative_to(layout.root)
    if tally.has_quarantined:
        yield f"What was set aside as damaged is in {where}."
    if tally.has_refused:
        yield f"What was refused is kept in {where / REFUSED_DIR}."
    if result.status == COMPLETED:
        yield from _left_out_lines(picture, directory, layout)
        yield _completed(picture, tally, seconds, is_proved=not (result.unread or result.left_alone))
        return
    yield _headline(result.status, picture, tally, seconds)
    if result.status == IN_PROGRESS:
        yield "State is saved: nothing finished is lost."
    yield from needs_lines(picture, directory, layout)
    yield f"Continue with: {addressed(picture.continue_command(), directory)}"


def orphan_lines(picture: Picture) -> Iterator[str]:
    """What is on record and no longer in the pipeline."""
    orphans = picture.orphans()
    if orphans:
        yield f"No longer in the pipeline, files kept: {some_of(orphans)}."


def view_lines(layout: ProjectLayout, state: RunState) -> Iterator[str]:
    """What keeps a view from showing the run as it is, though it was to be written just now."""
    behind = note_on_todos(layout, state)
    if behind:
        yield f"Not up to date: {behind}."


def _left_out_lines(picture: Picture, directory: str, layout: ProjectLayout) -> Iterator[str]:
    """What a complete run does not have: whoever reads the result must not look for it there."""
    left_out = [task for task in picture.tasks if picture.status(task) == SKIPPED]
    if left_out:
        command = as_typed(directory, layout, picture.state.run_id)("holdfast retry --all")
        yield f"Left out: {some_of(left_out)}. To have that done after all: {command}"


def _completed(picture: Picture, tally: Tally, seconds: float, *, is_proved: bool) -> str:
    done, total, cost = picture.done, picture.total, _cost(picture, tally)
    ran, skipped = _done_now(picture, tally), picture.counts.get(SKIPPED, 0)
    if tally.is_idle and tally.choice is not None and not tally.choice.is_new:
        run = picture.state.run_id
        verified = " and verified" if is_proved else ""
        of = f"all {total}" if total > 1 and not skipped else f"{done - skipped} of {total}"
        return f"Nothing to do: {of} steps of run {run} are complete{verified}, {cost}."
    left_out = f", {skipped} skipped" if skipped else ""
    how = f"{done - ran - skipped} reused, {ran} ran now{left_out}"
    return f"Completed: {done} of {total} steps ({how}) in {span(seconds)}, {cost}."


def _headline(status: str, picture: Picture, tally: Tally, seconds: float) -> str:
    words = {FAILED: "Failed", IN_PROGRESS: "Interrupted"}.get(status, "Paused")
    reason = f" ({picture.state.reason})" if picture.state.reason and status != IN_PROGRESS else ""
    far = f"{picture.done} of {picture.total} steps done ({_done_now(picture, tally)} now)"
    return f"{words}{reason}: {far} in {span(seconds)}, {_cost(picture, tally)}."


def _done_now(picture: Picture, tally: Tally) -> int:
    """How many finished tasks this session made; others that it made were sent back, or their items are gone."""
    return sum(task in tally.completed and picture.status(task) == COMPLETED for task in picture.tasks)


def _cost(picture: Picture, tally: Tally) -> str:
    state = picture.state
    return f"cost {money(state.cost_usd)} ({money(tally.cost_usd)} now, {money(state.wasted_cost_usd)} wasted)"


def needs_lines(picture: Picture, directory: str, layout: ProjectLayout) -> Iterator[str]:
    """What waits for a person, why, and the command for each."""
    needs = picture.needs()
    if not needs:
        return
    yield "Needs a person:"
    typed = as_typed(directory, layout, picture.state.run_id)
    for need in needs[:NEEDS_MAX]:
        yield f"  {need.task}: {need.why}"
        yield f"      {typed(need.command)}"
    if len(needs) > NEEDS_MAX:
        yield f"  and {len(needs) - NEEDS_MAX} more: {addressed('holdfast status --json', directory)}"


def as_typed(directory: str, layout: ProjectLayout, run_id: str | None) -> Callable[[str], str]:
    """How to type a command about that run: `resume` names it, others mean the newest unfinished one."""
    other = run_id if run_id and not _is_meant(layout, run_id) else ""

    def typed(text: str) -> str:
        return addressed(text, directory, "" if "holdfast resume" in text else other)

    return typed


def _is_meant(layout: ProjectLayout, run_id: str) -> bool:
    """Whether a command that names no run means this one."""
    try:
        meant = newest(list_runs(layout, strict=True))
    except HoldfastError:  # another cannot be read just now
        return False
    return meant is not None and meant.run_id == run_id
