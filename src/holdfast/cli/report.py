"""The first and the last lines of a run, and the tally of what this session did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import events as ev
from holdfast.cli.printing import money, plain
from holdfast.layout import QUARANTINE_DIR, REFUSED_DIR
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, SKIPPED
from holdfast.wording import addressed, counted, shortened, some_of, span

if TYPE_CHECKING:
    from holdfast.project import Project
    from holdfast.project.run import Beginning, RunResult
    from holdfast.state import RunState
    from holdfast.views.picture import Picture

_NEXT_SHOWN = 3
_VALUE_MAX = 200
NEEDS_MAX = 20


class Tally(msgspec.Struct):
    """What this session did, counted from its events."""

    is_new: bool = True  # nothing of the run is on record from before
    cost_usd: float = 0.0  # booked now: what was taken over from seals was paid before
    completed: set[str] = set()
    adopted: list[str] = []  # tasks whose files somebody else had made
    has_quarantined: bool = False  # something of the work tree was found damaged, and is kept
    has_refused: bool = False  # an output was refused, and is kept
    is_idle: bool = True  # nothing ran, was adopted, healed, kept, moved, migrated or set aside

    def count(self, event: Any) -> None:
        if isinstance(event, ev.NodeExited) and event.status == COMPLETED:
            self.completed.add(event.step_id)
        if isinstance(event, ev.TaskAdopted) and event.evidence in ("marker", "exists"):
            self.adopted.append(event.step_id)
        if isinstance(event, ev.ArtifactSetAside) and event.to.startswith(f"{QUARANTINE_DIR}/"):
            is_refused = event.to.startswith(f"{QUARANTINE_DIR}/{REFUSED_DIR}/")
            self.has_refused = self.has_refused or is_refused
            self.has_quarantined = self.has_quarantined or not is_refused
        if isinstance(event, ev.UsageRecorded):
            self.cost_usd += event.cost_usd
        if isinstance(event, _DOES_SOMETHING):
            self.is_idle = False


_DOES_SOMETHING = (
    ev.NodeEntered,
    ev.TaskAdopted,
    ev.ArtifactHealed,
    ev.ArtifactSetAside,
    ev.TaskKept,
    ev.ValueMigrated,
    ev.ArtifactMoved,
)


# --- the first lines ---------------------------------------------------------------------------------------------


def first_lines(beginning: Beginning) -> Iterator[str]:
    """What is started, or what is continued and from where, as the record said before this session."""
    choice, state, pipeline = beginning.choice, beginning.state, beginning.compiled.spec.name
    if choice.is_new:
        given = "".join(f", {name}={_value(value)}" for name, value in choice.params.items())
        if not choice.found_again:
            yield f"{pipeline}: new run {choice.run_id}{given}"
            return
        yield f"{pipeline}: run {choice.run_id}, its record is lost{given}"
        yield "Files that are whole are taken over and not paid for again."
        yield "Not known any more: attempts, decisions, notes, what steps without files have cost."
        return
    doing = "looking at completed" if choice.was_completed else "continuing"
    yield f"{pipeline}: {doing} run {choice.run_id}"
    yield from (f"  {line}" for line in _parameters(state.params, choice.params))
    yield f"  on record: {_finished(state)}"
    if state.last_completed:
        yield f"  last completed: {state.last_completed}"
    following = beginning.following()
    if following:
        yield f"  continuing from: {some_of(following, _NEXT_SHOWN)}"
    yield f"  cost so far: {money(state.cost_usd)}"


def _finished(state: RunState) -> str:
    done = sum(1 for record in state.tasks.values() if record.status in (COMPLETED, SKIPPED))
    return counted(done, "finished step")


def _parameters(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in {**old, **new}:
        if name not in new:
            yield f"{name}: {_value(old[name])} -> no longer a parameter"
        elif name not in old:
            yield f"{name}: {_value(new[name])} (a new parameter)"
        elif old[name] != new[name]:
            yield f"{name}: {_value(old[name])} -> {_value(new[name])}"
        else:
            yield f"{name}: {_value(new[name])}"


def _value(value: Any) -> str:
    return shortened(plain(value), _VALUE_MAX)


# --- the last lines ----------------------------------------------------------------------------------------------


def last_lines(result: RunResult, tally: Tally, project: Project, directory: str, seconds: float) -> Iterator[str]:
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
    if result.not_up_to_date:
        yield f"Not up to date: {result.not_up_to_date}."
    where = result.quarantine.relative_to(result.directory)
    if tally.has_quarantined:
        yield f"What was set aside as damaged is in {where}."
    if tally.has_refused:
        yield f"What was refused is kept in {where / REFUSED_DIR}."
    if result.status == COMPLETED:
        yield from _left_out_lines(picture, project)
        yield _completed(picture, tally, seconds, is_proved=not (result.unread or result.left_alone))
        return
    yield _headline(result.status, picture, tally, seconds)
    if result.status == IN_PROGRESS:
        yield "State is saved: nothing finished is lost."
    yield from needs_lines(picture, project, directory)
    yield f"Continue with: {addressed(picture.continue_command(), directory)}"


def orphan_lines(picture: Picture) -> Iterator[str]:
    """What is on record and no longer in the pipeline."""
    orphans = picture.orphans()
    if orphans:
        yield f"No longer in the pipeline, files kept: {some_of(orphans)}."


def _left_out_lines(picture: Picture, project: Project) -> Iterator[str]:
    """What a complete run does not have: whoever reads the result must not look for it there."""
    left_out = [task for task in picture.tasks if picture.status(task) == SKIPPED]
    if left_out:
        command = project.typing(picture.state.run_id)("holdfast retry --all")
        yield f"Left out: {some_of(left_out)}. To have that done after all: {command}"


def _completed(picture: Picture, tally: Tally, seconds: float, *, is_proved: bool) -> str:
    done, total, cost = picture.done, picture.total, _cost(picture, tally)
    ran, skipped = _done_now(picture, tally), picture.skipped
    left_out = f", {skipped} skipped" if skipped else ""
    if tally.is_idle and not tally.is_new:
        run = picture.state.run_id
        verified = " and verified" if is_proved else ""
        of = f"all {total}" if total > 1 and not skipped else f"{done} of {total}"
        return f"Nothing to do: {of} steps of run {run} are complete{verified}{left_out}, {cost}."
    how = f"{done - ran} reused, {ran} ran now{left_out}"
    return f"Completed: {done} of {total} steps ({how}) in {span(seconds)}, {cost}."


def _headline(status: str, picture: Picture, tally: Tally, seconds: float) -> str:
    words = {FAILED: "Failed", IN_PROGRESS: "Interrupted"}.get(status, "Paused")
    reason = f" ({picture.state.reason})" if picture.state.reason and status != IN_PROGRESS else ""
    left_out = f", {picture.skipped} skipped" if picture.skipped else ""
    far = f"{picture.done} of {picture.total} steps done ({_done_now(picture, tally)} now){left_out}"
    return f"{words}{reason}: {far} in {span(seconds)}, {_cost(picture, tally)}."


def _done_now(picture: Picture, tally: Tally) -> int:
    """How many finished tasks this session made; others that it made were sent back, or their items are gone."""
    return sum(task in tally.completed and picture.status(task) == COMPLETED for task in picture.tasks)


def _cost(picture: Picture, tally: Tally) -> str:
    state = picture.state
    return f"cost {money(state.cost_usd)} ({money(tally.cost_usd)} now, {money(state.wasted_cost_usd)} wasted)"


def needs_lines(picture: Picture, project: Project, directory: str) -> Iterator[str]:
    """What waits for a person, why, and the command for each."""
    needs = picture.needs()
    if not needs:
        return
    yield "Needs a person:"
    typed = project.typing(picture.state.run_id)
    for need in needs[:NEEDS_MAX]:
        yield f"  {need.task}: {need.why}"
        yield f"      {typed(need.command)}"
    if len(needs) > NEEDS_MAX:
        yield f"  and {len(needs) - NEEDS_MAX} more: {addressed('holdfast status --json', directory)}"
