"""How a walk begins: a walker over all tasks that can be known, to look only, or to act.

Known are the items on record, and those that views and the names of files suggest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.artifacts.inputs import Inputs, known_items
from holdfast.artifacts.keeping import Artifacts
from holdfast.engine.attempt import Attempts
from holdfast.engine.recorder import NoRecorder
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import build_graph
from holdfast.pipeline.inferring import Items
from holdfast.pipeline.spec import PipelineSpec
from holdfast.recovery.judge import Judge
from holdfast.recovery.scan import infer
from holdfast.recovery.sources import NO_VIEWS, Views
from holdfast.runs.choosing import Choice, Request
from holdfast.runs.looking import artifacts_of
from holdfast.sessions.judging import judge_for
from holdfast.sessions.walking import Record, Walker
from holdfast.state import RunState
from holdfast.stores.paper import Paper


@contextmanager
def looking(
    spec: PipelineSpec,
    layout: ProjectLayout,
    state: RunState,
    request: Request,
    compiled: CompiledPipeline | None = None,
    views: Views = NO_VIEWS,
    paper: Paper | None = None,
) -> Iterator[Walker]:
    """A walker that changes nothing on disk: what it would do is on `paper`, migrations too if that is given.

    Without `compiled` no `check` is asked.
    """
    quarantine, rehearses = layout.run(state.run_id).quarantine, paper is not None
    paper = paper or Paper(layout.root)
    choice = Choice(state.run_id, False, state.params)

    def make_judge(inputs: Inputs) -> Judge:
        recorder = NoRecorder(inputs.artifacts.objects, inputs.artifacts.tree)
        attempts = Attempts(inputs, compiled, recorder) if compiled else None
        return judge_for(inputs, layout, request, choice, quarantine, attempts, views.done)

    with artifacts_of(layout, state.run_id, paper=paper, quick=request.quick) as artifacts:
        yield make_walker(spec, state, artifacts, make_judge, views=views, rehearses=rehearses)


def make_walker(
    spec: PipelineSpec,
    state: RunState,
    artifacts: Artifacts,
    make_judge: Callable[[Inputs], Judge],
    *,
    views: Views,
    record: Record | None = None,
    rehearses: bool = False,
) -> Walker:
    """A walker over all tasks that can be known: also those of items that files and views only suggest."""
    known, inferred, sure = known_items(spec, state, artifacts), Items(), frozenset[tuple[str, ...]]()
    if state.rebuilt or state.tasks:  # a new run has none to be found
        inferred, sure = infer(spec, known, state.tasks, lambda: views, artifacts.tree, state)
    graph = build_graph(spec, {**known, **inferred})
    inputs = Inputs(graph, state, artifacts, artifacts.tree.root)
    judge = make_judge(inputs)
    return Walker(inputs, judge, known=known, inferred=inferred, sure=sure, record=record, rehearses=rehearses)
