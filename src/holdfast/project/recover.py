"""Rebuild a run from whatever evidence is left: journal, snapshots, views, files. What `recover` does.

recover          find the run, go through all its tasks, act, record, refresh the views
rebuild          the same pass, for `run` and `resume` of a run whose record was lost

Crash story. Recovery only appends events; a doubtful file is set aside before the event that says so. Killed at
any point, the next recovery (or run) begins again: what is on record by then is trusted, the rest is
decided anew from the files as they are. Only the last event, `recovered`, says that the pass was finished. A
second recovery finds nothing to do, and records nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast import clock, decisions
from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs
from holdfast.decisions import Planned, Step
from holdfast.engine.attempt import Attempts
from holdfast.engine.commit import Entry
from holdfast.engine.drawing import draw, draw_graph
from holdfast.engine.recorder import NoRecorder
from holdfast.errors import EXIT_OK, EXIT_WAITING, StorageError
from holdfast.folding import fold
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.spec import renamed_steps
from holdfast.recovery.disagreeing import Disagreement, disagreements
from holdfast.recovery.judge import Judge
from holdfast.recovery.scan import path_values
from holdfast.recovery.sources import Views, read_letter, read_views
from holdfast.recovery.strangers import Strangers
from holdfast.runs.choosing import Choice, Request, choose
from holdfast.runs.history import damage_before
from holdfast.runs.listing import list_runs, read_run, refuse_strange_run, run_ids
from holdfast.runs.looking import as_recorded, loading
from holdfast.sessions.editing import foreseen_wishes, kept_events, lost_wishes, turned_back, wanted
from holdfast.sessions.plan_pass import PlanPass, looking, pass_over
from holdfast.sessions.session import OpenRun, copied, encoded_spec, locked, make_folders
from holdfast.snapshots import snapshots
from holdfast.state import COMPLETED, IN_PROGRESS, PAUSED, WAITS_FOR_PERSON, RunState
from holdfast.stores import readable
from holdfast.views.picture import decode_spec, needs_of
from holdfast.views.shelf import ViewShelf
from holdfast.views.soundness import note_on_todos

STRETCH = 2500
"""So many nodes are considered in one batch: the append lock is not held for longer."""


RECORDED_MAX = 50
"""So many disagreements, or notes, stand in the journal; the report has them all."""


class Recovery(msgspec.Struct, frozen=True):
    """What was found, and what was done about it (or would be)."""

    run_id: str
    is_lost: bool  # the record of the run was lost, or there never was one
    is_first: bool  # there never was one: no seal and no view speaks of it
    tasks: list[Planned]
    orphans: list[str] = []
    disagreements: list[Disagreement] = []
    remarks: tuple[str, ...] = ()
    unknown_items: list[str] = []
    kept: list[str] = []  # views that stood in the way, and where they are now
    recorded: int = 0  # events
    is_complete: bool = False  # after it; nothing is left to do
    actions: list[Step] = []  # of a dry run: what would be done to the files of tasks, in that order
    not_up_to_date: str = ""  # the view that could not be written, and why

    @property
    def found_anything(self) -> bool:
        """Whether there is a run here, or something to make one from."""
        telling = (decisions.ADOPT, decisions.ASK)
        return not self.is_first or bool(self.recorded) or any(task.action in telling for task in self.tasks)

    @property
    def exit_code(self) -> int:
        return EXIT_WAITING if any(task.action == decisions.ASK for task in self.tasks) else EXIT_OK


def recover(
    compiled: CompiledPipeline, layout: ProjectLayout, request: Request, *, dry_run: bool = False
) -> Recovery:
    """Rebuild the run that `request` means; with `dry_run` only say what that would do."""
    try:
        return _recover(compiled, layout, request, dry_run=dry_run)
    except OSError as error:
        raise StorageError.from_os(error, "work on") from error


def _recover(compiled: CompiledPipeline, layout: ProjectLayout, request: Request, *, dry_run: bool) -> Recovery:
    runs = list_runs(layout)
    choice = _choose(compiled, layout, request)
    if dry_run:
        return _foresee(compiled, layout, request, choice)
    if choice.is_new and not choice.found_again:  # no seal: are there files with plain markers, at least?
        foreseen = _foresee(compiled, layout, request, choice)
        if not foreseen.found_anything:
            return foreseen
    make_folders(layout)
    with locked(layout, choice.run_id) as lock:
        if list_runs(layout) != runs:  # another engine was at work until now
            choice = _choose(compiled, layout, request)
        is_first = choice.is_new and not choice.found_again
        choice = replace(choice, found_again=choice.is_new)
        with OpenRun(compiled, layout, request, choice, lock) as opened:
            return replace(_carry_out(opened), is_first=is_first)


def _choose(compiled: CompiledPipeline, layout: ProjectLayout, request: Request) -> Choice:
    """The run that is meant; one of which no record, letter or seal tells may have left another view."""
    choice = choose(compiled, layout, request)
    if not choice.is_new or choice.found_again:
        return choice
    known = run_ids(layout)
    left = [
        view.run_id for view in read_views(layout, compiled.spec, "").claims if view.run_id not in ("", *known)
    ]
    return choose(compiled, layout, replace(request, resume=left[0])) if left else choice


def rebuild(opened: OpenRun, shelf: ViewShelf) -> None:
    """Go through the evidence about a run whose record was lost, before its engine starts."""
    committer = opened.committer
    advance, committer.on_batch = committer.on_batch, lambda: None
    try:
        opened.say((), durable=False)  # what the run begins with is in the inbox
        views = read_views(opened.layout, opened.compiled.spec, opened.choice.run_id)
        before = _statuses(opened.state)
        passed = _go_over(opened, views)
        wishes = _lost_wishes(opened.layout, passed, views)
        found = list(disagreements(passed.planned, before, views, turned_back(wishes)))
        copies = shelf.copy_pages(_telling_more(opened.layout, found))
        opened.say([*wishes, *_notes(_elsewhere(passed)), _recovered(passed, found)], durable=True)
        _keep_pages(opened, shelf, copies)
        # At once: as long as a page counts lines of the lost journal, nobody could tell what an edit of it means.
        opened.say(_refresh_views(opened, passed, shelf), durable=False)
    finally:
        committer.on_batch = advance


# --- looking -----------------------------------------------------------------------------------------------


def _foresee(compiled: CompiledPipeline, layout: ProjectLayout, request: Request, choice: Choice) -> Recovery:
    """What `_carry_out` would do about the tasks, in a state of its own."""
    state, damage = _read(layout, choice.run_id, quick=request.quick)
    compiled = as_recorded(compiled, state)
    history_end = state.seq
    wishes = foreseen_wishes(layout, compiled.spec, state)
    opening = list(_opening(compiled, choice, state))
    for event in opening:
        fold(state, event, state.seq, clock.now())
    before = _statuses(state)
    for event in wishes:
        fold(state, event, state.seq, clock.now())
    views = read_views(layout, compiled.spec, choice.run_id)
    told = views if state.rebuilt else views.newer_than(history_end)
    with looking(compiled.spec, layout, state, request, compiled, views) as passed:
        passed.go()
        remarks = [*damage, *passed.inputs.artifacts.objects.damage, *_elsewhere(passed).values()]
        wishes += _lost_wishes(layout, passed, views)
        report = _report(choice, passed, told, before, remarks, turned_back(wishes))
        return replace(report, actions=list(dict.fromkeys(passed.steps)))


def _read(layout: ProjectLayout, run_id: str, *, quick: bool) -> tuple[RunState, list[str]]:
    """The run as it is on record, if it is; and what is damaged of it."""
    run = layout.run(run_id)
    refuse_strange_run(layout, run_id)
    if not (readable.is_there(run.journal) or snapshots(run.dir)):
        return RunState(), []
    history = read_run(layout, run_id, must_begin=False)
    before = [] if quick else damage_before(run, history)
    return history.state, [*history.damage, *history.journal_damage, *before]


def _opening(compiled: CompiledPipeline, choice: Choice, state: RunState) -> Iterator[ev.Event]:
    """The events that a recovery begins with, as far as decisions hang on them."""
    spec = encoded_spec(compiled)
    if not state.run_id:  # a run without record, or one that lost its beginning
        name, ordinal = compiled.spec.name, choice.ordinal
        yield ev.RunStarted(
            run_id=choice.run_id, pipeline=name, ordinal=ordinal, params=choice.params, rebuilt=True
        )
        yield ev.PipelineDeclared(spec=spec)
    elif bytes(state.spec) != bytes(spec):
        yield ev.PipelineDeclared(spec=spec, renamed=renamed_steps(decode_spec(state), compiled.spec))


# --- acting ------------------------------------------------------------------------------------------------


def _carry_out(opened: OpenRun) -> Recovery:
    state, committer = opened.state, opened.committer
    begun = committer.position.seq
    shelf: ViewShelf = opened.closing(ViewShelf(opened.layout, opened.run_layout))
    wishes = _wishes(opened, shelf)
    beginning = opened.declared() if state.run_id else opened.started()
    opened.say(beginning, durable=False)
    before = _statuses(state)
    opened.say([*wishes, *opened.told()], durable=False)
    views = read_views(opened.layout, opened.compiled.spec, opened.choice.run_id)
    passed = _go_over(opened, views)
    told = views if state.rebuilt else views.newer_than(begun)
    elsewhere = _elsewhere(passed)
    remarks = [*opened.damage, *elsewhere.values()]
    lost = _lost_wishes(opened.layout, passed, views)
    report = _report(opened.choice, passed, told, before, remarks, turned_back([*wishes, *lost]))
    kept: list[ev.ArtifactSetAside] = []
    has_news = committer.position.seq > begun or state.rebuilt
    if has_news:
        copies = shelf.copy_pages(_telling_more(opened.layout, report.disagreements)) if state.rebuilt else {}
        notes = [*lost, *_notes(elsewhere), _recovered(passed, report.disagreements)]
        opened.say([*notes, *_stopped(opened, passed)], durable=bool(copies))
        kept = _keep_pages(opened, shelf, copies)
    with opened.snapshot_beside() if has_news else nullcontext():
        shown = state.seq
        moved = _refresh_views(opened, passed, shelf)
    if moved:
        opened.say(moved, durable=False)
    if state.seq > shown:
        _refresh_views(opened, passed, shelf)  # no view is older than the journal after a recovery
    kept += moved
    words = [f"{view.path} was {view.reason}; kept as {view.to}" for view in kept]
    recorded, is_complete = committer.position.seq - begun, state.status == COMPLETED
    behind = note_on_todos(opened.layout, state)
    return replace(report, kept=words, recorded=recorded, is_complete=is_complete, not_up_to_date=behind)


def _telling_more(layout: ProjectLayout, found: Sequence[Disagreement]) -> tuple[Path, ...]:
    """The pages of a lost run that say more than could be rebuilt: they contradict it, or have notes."""
    if found:
        return (layout.checkpoint_view, layout.resume_view)
    return (layout.resume_view,) if read_letter(layout).has_words else ()


def _keep_pages(opened: OpenRun, shelf: ViewShelf, copies: Mapping[Path, Path]) -> list[ev.ArtifactSetAside]:
    """Keep pages of a lost run as they are. All that could be understood of them is on record by now."""
    kept = kept_events(opened.layout, shelf.keep_pages(copies))
    opened.say(kept, durable=False)
    return kept


def _wishes(opened: OpenRun, shelf: ViewShelf) -> list[ev.Event]:
    """What somebody wants who edited a view; those of a lost run are evidence, and are read as such."""
    edited = shelf.edited(opened.compiled.spec)
    if not edited or opened.choice.is_new or not opened.state.run_id or opened.state.rebuilt:
        return []
    picture = draw(opened.state, loading(opened.objects))
    return wanted(opened.layout, edited, picture, opened.compiled.spec)


def _lost_wishes(layout: ProjectLayout, passed: PlanPass, views: Views) -> list[ev.Event]:
    """What an edited checkpoint.md asks for of a run whose record was lost; the pass is through."""
    if not passed.state.rebuilt:
        return []
    found = lost_wishes(layout, passed.graph.spec, passed.state, views)
    passed.report.send_back(turned_back(found))
    return found


class _Stretch(Entry):
    """A part of the pass, as one batch of the journal."""

    durable = False

    def __init__(self, passed: PlanPass) -> None:
        self.passed = passed
        self.goes_on = True

    def apply(self) -> None:
        self.goes_on = self.passed.advance(STRETCH)


def _go_over(opened: OpenRun, views: Views) -> PlanPass:
    """Decide about every task and act on it, in batches."""

    def make_judge(inputs: Inputs) -> Judge:
        recorder = NoRecorder(opened.objects, opened.tree)
        attempts = Attempts(inputs, opened.compiled, recorder)
        return opened.judge(inputs, attempts, views.done)

    record = opened.committer.record
    spec, artifacts = opened.compiled.spec, opened.artifacts
    passed = pass_over(spec, opened.state, artifacts, make_judge, views=views, record=record)
    stretch = _Stretch(passed)
    while stretch.goes_on:
        opened.record(stretch)
    return passed


def _notes(elsewhere: Mapping[str, str]) -> Iterator[ev.Event]:
    """What somebody should know before the rest runs."""
    for task, words in itertools.islice(elsewhere.items(), RECORDED_MAX):
        yield ev.NoteAdded(text=words, impact="else its step runs again", step_id=task)
    if len(elsewhere) > RECORDED_MAX:
        yield ev.NoteAdded(text=f"and {len(elsewhere) - RECORDED_MAX} more such files: holdfast scan lists them")


def _elsewhere(passed: PlanPass) -> dict[str, str]:
    """Tasks of a lost run that are still to run, and a file that each seems to have written at another path."""
    state, inputs = passed.state, passed.inputs
    is_over = passed.report.counts().keys().isdisjoint(decisions.RUNS)
    if not state.rebuilt or (is_over and not passed.open_fans()):
        return {}
    paths = {path for node in passed.graph.tasks() for path in inputs.paths(node).values()}
    found = Strangers(passed.graph.spec, inputs.artifacts.tree, path_values(state), paths).find()
    return {stranger.task: f"{stranger.path} {stranger.detail}" for stranger in found if stranger.task}


def _recovered(passed: PlanPass, found: list[Disagreement]) -> ev.Recovered:
    words = tuple(one.words() for one in found[:RECORDED_MAX])
    more = (f"and {len(found) - RECORDED_MAX} more",) if len(found) > RECORDED_MAX else ()
    return ev.Recovered(counts=passed.report.counts(), disagreements=(*words, *more))


def _stopped(opened: OpenRun, passed: PlanPass) -> Iterator[ev.Event]:
    """A run that was complete, or is found again, and has something left to do, is no longer complete."""
    state = opened.state
    is_over = passed.report.counts().keys() <= {decisions.TRUST, decisions.HEAL}
    is_open = state.rebuilt or state.status == IN_PROGRESS or (state.status == COMPLETED and not is_over)
    if is_open and _only_waits(opened, passed):
        yield ev.RunStopped(status=PAUSED, reason=WAITS_FOR_PERSON)
    elif is_open and (state.rebuilt or state.status == COMPLETED):
        yield ev.RunStopped(status=IN_PROGRESS, reason="recovered, and not continued yet")


def _only_waits(opened: OpenRun, passed: PlanPass) -> bool:
    """Whether nothing can start before a person has spoken."""
    if not needs_of(opened.state, opened.compiled.spec):
        return False
    return not draw_graph(passed.recorded_graph(), opened.state).next_steps()


def _refresh_views(opened: OpenRun, passed: PlanPass, shelf: ViewShelf) -> list[ev.ArtifactSetAside]:
    """Draw all views, with the items that are only inferred so far: a view must not know less than before.

    Gives what was moved out of their way.
    """
    state, graph = copied(opened.state), passed.recorded_graph()
    picture = replace(draw_graph(graph, state), is_left=True)
    # A view never knows more than the journal keeps.
    return kept_events(opened.layout, shelf.write(picture, graph, sync=True, first=opened.committer.make_durable))


# --- telling -----------------------------------------------------------------------------------------------


def _statuses(state: RunState) -> dict[str, str]:
    return {task: record.status for task, record in state.tasks.items()}


def _report(
    choice: Choice,
    passed: PlanPass,
    views: Views,
    before: Mapping[str, str],
    remarks: Sequence[str],
    wished: Mapping[str, str],
) -> Recovery:
    return Recovery(
        choice.run_id,
        choice.is_new,
        choice.is_new and not choice.found_again,
        list(passed.planned.values()),
        passed.orphans(),
        list(disagreements(passed.planned, before, views, wished)),
        (*remarks, *views.problems),
        passed.open_fans(),
    )
