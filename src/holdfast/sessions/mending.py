"""What opening a run mends: copies and paid calls that objects/ has lost; and the events that tell of it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast import events as ev
from holdfast.artifacts.keeping import Artifacts
from holdfast.state import COMPLETED, RunState
from holdfast.stores.protocols import Objects
from holdfast.wording import counted

MENDED_CHARS_MAX = 1 << 20
"""So much of what was mended stands in one event, and at most one key more."""


def mend_objects(
    artifacts: Artifacts, state: RunState, *, prove: bool
) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """Make copies that are lost or rotten again from the files that are whole; values cannot be.

    Gives what was found and done, and the paid calls of each task that can no longer be replayed.
    """
    objects = artifacts.objects
    objects.mend(prove=prove)
    records = [r.accepted for r in state.tasks.values() if r.status == COMPLETED and r.accepted is not None]
    stored = [file for accepted in records for file in accepted.files if file.stored]
    gone = [f for f in stored if not objects.keeps(f.sha256, prove=prove)]
    made = sum(artifacts.keep_again(file) for file in gone)
    mended = [*objects.damage, *([_made_again(made)] if made else [])]
    calls = _lost_calls(objects, state)
    words = "is missing from objects/ or damaged; the call is made, and paid, again"
    due = [task for task in calls if state.task(task).status != COMPLETED]
    mended += [f"{task}: the result of its paid call '{key:.60}' {words}" for task in due for key in calls[task]]
    return mended, calls


def _lost_calls(objects: Objects, state: RunState) -> dict[str, tuple[str, ...]]:
    """Paid calls that can no longer be replayed: their step must be able to make them once more."""
    found = {}
    for task, records in state.once.items():
        # Those of finished work are many, and rarely replayed: whether they are there is enough.
        is_there = objects.keeps if state.task(task).status == COMPLETED else objects.is_whole
        refs = {key: once.result_ref for key, once in records.items() if once.result_ref}
        lost = tuple(key for key, ref in refs.items() if not is_there(ref))
        if lost:
            found[task] = lost
    return found


def _made_again(copies: int) -> str:
    one = "copy was missing from objects/ and was made again from its file"
    return counted(copies, one, "copies were missing from objects/ and were made again from their files")


def mended_events(findings: Sequence[str], calls: Mapping[str, Sequence[str]]) -> Iterator[ev.StateMended]:
    """The events that tell it: as many as it takes, for a line of the journal does not hold any number of keys."""
    told: list[str] = []
    lost: dict[str, list[str]] = {}
    size = 0
    lines = [("", words) for words in findings]
    for task, words in (*lines, *((task, key) for task, keys in calls.items() for key in keys)):
        if task:
            lost.setdefault(task, []).append(words)
        else:
            told.append(words)
        size += len(task) + len(words)
        if size > MENDED_CHARS_MAX:
            yield _state_mended(told, lost)
            told, lost, size = [], {}, 0
    if told or lost:
        yield _state_mended(told, lost)


def _state_mended(told: Sequence[str], lost: Mapping[str, Sequence[str]]) -> ev.StateMended:
    return ev.StateMended(findings=tuple(told), lost_calls={task: tuple(keys) for task, keys in lost.items()})
