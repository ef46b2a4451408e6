"""The first lines of a run: what is started, or what is continued and from where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.cli.printing import money, plain
from holdfast.state import COMPLETED, SKIPPED
from holdfast.wording import counted, shortened, some_of

if TYPE_CHECKING:
    from holdfast.project.run import Beginning
    from holdfast.state import RunState

_NEXT_SHOWN = 3
_VALUE_MAX = 200


def beginning_lines(beginning: Beginning) -> Iterator[str]:
    """The lines: what the record said before this session, if it is no new run."""
    choice, state, pipeline = beginning.choice, beginning.state, beginning.compiled.spec.name
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
            yield f"{name}: {_shown(old[name])} -> no longer a parameter"
        elif name not in old:
            yield f"{name}: {_shown(new[name])} (a new parameter)"
        elif old[name] != new[name]:
            yield f"{name}: {_shown(old[name])} -> {_shown(new[name])}"
        else:
            yield f"{name}: {_shown(new[name])}"


def _shown(value: Any) -> str:
    return shortened(plain(value), _VALUE_MAX)
