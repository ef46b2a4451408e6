"""Events about paid calls, spend, and what steps say. Pure."""

from __future__ import annotations

from holdfast import events as ev
from holdfast.folding.shared import Handler, own, replace
from holdfast.state import IN_PROGRESS, DecisionRecord, Note, OnceRecord, RunState, Section

_DIGEST_START = 16  # characters; a run has very many paid calls


def _once(state: RunState, event: ev.OnceRecorded, at: float) -> None:
    if event.round != state.task(event.step_id).round:
        return
    records = state.once.setdefault(event.step_id, {})
    made_from = event.input_digest[:_DIGEST_START]
    records[event.key] = OnceRecord(
        event.kind, own(event.result), event.result_ref, made_from=made_from, awaited=event.awaited
    )
    if event.spent:
        task = state.task(event.step_id)
        loose = max(0.0, task.loose_cost_usd - event.spent)
        # A call that outlasts its attempt: what was booked before the timeout has been counted as thrown away.
        late = event.spent - (task.loose_cost_usd - loose) if task.status != IN_PROGRESS else 0.0
        state.wasted_cost_usd = max(0.0, state.wasted_cost_usd - late)
        round_cost = task.round_cost_usd + late
        state.tasks[event.step_id] = replace(task, loose_cost_usd=loose, round_cost_usd=round_cost)


def _usage(state: RunState, event: ev.UsageRecorded, at: float) -> None:
    state.cost_usd += event.cost_usd
    state.input_tokens += event.input_tokens
    state.output_tokens += event.output_tokens
    task = state.task(event.step_id)
    kept = bool(event.once) and not event.inside
    loose = 0.0 if kept else event.cost_usd
    current = event.round == task.round
    if not current:
        state.wasted_cost_usd += event.cost_usd
    state.tasks[event.step_id] = replace(
        task,
        input_tokens=task.input_tokens + event.input_tokens,
        output_tokens=task.output_tokens + event.output_tokens,
        cost_usd=task.cost_usd + event.cost_usd,
        round_cost_usd=task.round_cost_usd + (event.cost_usd if current else 0.0),
        loose_cost_usd=task.loose_cost_usd + (loose if current else 0.0),
    )
    record = state.once.get(event.step_id, {}).get(event.once) if kept and current else None
    if record is not None:
        state.once[event.step_id][event.once] = replace(record, usages=record.usages + 1)


def _section(state: RunState, event: ev.SectionWritten, at: float) -> None:
    state.sections[event.step_id] = Section(event.title, event.text, event.sources)


def _note(state: RunState, event: ev.NoteAdded, at: float) -> None:
    state.notes.append(Note(event.text, event.impact, event.step_id, at))


def _decision(state: RunState, event: ev.DecisionMade, at: float) -> None:
    state.decisions.append(DecisionRecord(event.what, event.why, event.outcome, event.step_id, at))


def _tagged(state: RunState, event: ev.Tagged, at: float) -> None:
    state.tags = {**state.tags, **event.fields}


HANDLERS: dict[type, Handler] = {
    ev.OnceRecorded: _once,
    ev.UsageRecorded: _usage,
    ev.SectionWritten: _section,
    ev.NoteAdded: _note,
    ev.DecisionMade: _decision,
    ev.Tagged: _tagged,
}
