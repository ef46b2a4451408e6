"""The first lines of a run: what is started, or what is continued and from where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.cli.printing import money, plain
from holdfast.events import RunContinued
from holdfast.folding import fold
from holdfast.layout import ProjectLayout
from holdfast.runs.choosing import Choice
from holdfast.runs.looking import draw_run
from holdfast.sessions.session import copied
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, SKIPPED, RunState
from holdfast.wording import counted, shortened, some_of

# Drawing the graph only to name three tasks must not delay a large run.
_DRAWN_MAX = 20_000
_NEXT_SHOWN = 3
_VALUE_MAX = 200


def beginning(
    choice: Choice, pipeline: str, state: RunState, layout: ProjectLayout, *, fresh_attempts: bool
) -> Iterator[str]:
    """The lines; `state` is what the record said before this session, empty for a new run."""
    if choice.is_new:
        given = "".join(f", {name}={_shown(value)}" for name, value in choice.params.items())
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
    following = [] if choice.was_completed else _following(state, layout, fresh_attempts)
    if following:
        yield f"  continuing from: {some_of(following, _NEXT_SHOWN)}"
    yield f"  cost so far: {money(state.cost_usd)}"


def _finished(state: RunState) -> str:
    done = sum(1 for record in state.tasks.values() if record.status in (COMPLETED, SKIPPED))
    return counted(done, "finished step")


def _parameters(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name in {**old, **new}:
        if name not in new:
            yield f"{name}: {_shown(old[name])} -> no longer a parameter"
        elif name not in old:
            yield f"{name}: {_shown(new[name])} (a new parameter)"
        elif old[name] != new[name]:
            yield f"{name}: {_shown(old[name])} -> {_shown(new[name])}"
        else:
            yield f"{name}: {_shown(new[name])}"


def _shown(value: Any) -> str:
    return shortened(plain(value), _VALUE_MAX)


def _following(state: RunState, layout: ProjectLayout, fresh_attempts: bool) -> list[str]:
    """The tasks that will be worked on first: what was under way, then what can start, also once more."""
    going = [task for task, record in state.tasks.items() if record.status in (IN_PROGRESS, FAILED)]
    if len(state.tasks) > _DRAWN_MAX:
        return going
    state = copied(state)
    fold(state, RunContinued(fresh_attempts=fresh_attempts), state.seq, state.updated_at or 0.0)
    return sorted(draw_run(layout, state).next_steps(), key=lambda task: task not in going)
