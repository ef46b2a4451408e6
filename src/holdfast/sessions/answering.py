"""Whether an answer about a task means anything now: what its files look like, unasked. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast import clock
from holdfast import events as ev
from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.products import part_path
from holdfast.decisions import ASK
from holdfast.engine.drawing import draw_both
from holdfast.errors import StorageError
from holdfast.folding import fold
from holdfast.layout import ProjectLayout
from holdfast.pipeline.graph import Graph, in_order
from holdfast.pipeline.nodes import Node
from holdfast.recovery.sections import is_memory
from holdfast.runs.choosing import Choice, Request
from holdfast.runs.looking import artifacts_of, loading
from holdfast.sessions.judging import judge_for
from holdfast.sessions.session import copied
from holdfast.state import COMPLETED, SKIPPED, RunState, TaskState


def objection(layout: ProjectLayout, state: RunState, task: str, choice: str) -> str:
    """Why `keep`, `restore` or `continue` would do nothing about this task; "" if it would do something."""
    with _looked_at(layout, state) as (graph, artifacts):
        node, record = graph.nodes[task], state.task(task)
        inputs = Inputs(graph, state, artifacts, layout.root)
        if task in state.recalls:
            return ""  # a redo that has not begun is taken back
        if is_memory(node.spec):
            return _of_section(inputs, node)
        if record.status == COMPLETED:
            return _of_finished(node, artifacts, record, choice)
        return _of_given_up(node, artifacts, record, choice) or _of_open(inputs, node)


def asked_again(layout: ProjectLayout, state: RunState, task: str, choice: str) -> str:
    """Why the question that a task waits with would be asked again after this answer; "" if it would not."""
    answered = copied(state)
    fold(answered, ev.Decided(step_id=task, choice=choice), answered.seq, clock.now())
    with _looked_at(layout, answered) as (graph, artifacts):
        inputs, node = Inputs(graph, answered, artifacts, layout.root), graph.nodes[task]
        quarantine, same_run = layout.run(state.run_id).quarantine, Choice(state.run_id, False, state.params)
        judge = judge_for(inputs, layout, Request(), same_run, quarantine, None, {})
        decision = judge.decide(node, inputs.ingredients(node))
    return decision.reason if (decision.action, decision.about) == (ASK, state.task(task).question) else ""


def left_out_with(layout: ProjectLayout, state: RunState, task: str) -> tuple[list[str], list[str]]:
    """What goes with a task that is skipped: those that need its output, and those that gather without it then."""
    with _looked_at(layout, state) as (graph, _):
        gone, gathers = {graph.nodes[task]}, set[Node]()
        for node in in_order(graph):
            before = node.goes_with(is_finished=state.task(node.id).status == COMPLETED)
            if node.is_task and (gone.intersection(before) or _lacks_all(node, gone)):
                gone.add(node)
            if node in gone or node in gathers:
                gathers.update(consumer for consumer, _ in node.consumers if consumer.kind == "gather")
        without = [node.id for node in graph.tasks() if node not in gone and gathers.intersection(node.parents)]
        return [node.id for node in graph.tasks() if node in gone and node.id != task], without


def _lacks_all(node: Node, gone: set[Node]) -> bool:
    """Whether every source that a section could be made from is gone."""
    return bool(node.material) and "source" in node.spec.sources and gone.issuperset(node.material)


@contextmanager
def _looked_at(layout: ProjectLayout, state: RunState) -> Iterator[tuple[Graph, Artifacts]]:
    """The run's graph, and its files and objects to look at."""
    try:
        with artifacts_of(layout, state.run_id) as artifacts:
            _, graph = draw_both(state, loading(artifacts.objects))
            yield graph, artifacts
    except OSError as error:
        raise StorageError.from_os(error, "look at") from error


def _of_finished(node: Node, artifacts: Artifacts, record: TaskState, choice: str) -> str:
    files = record.accepted.files if record.accepted is not None else ()
    kinds = {file.path: artifacts.files.check(file, node.names).kind for file in files}
    if choice == "continue":
        return "it is finished, and not half finished"
    if all(kind == look.SEALED for kind in kinds.values()):
        if choice == record.decided:  # said before, of an input that differs: who says it again may not know
            return ""
        return "its files are as they were accepted" if files else "it has no files"
    if choice == "keep" and look.CHANGED not in kinds.values():
        bad = ", ".join(path for path, kind in kinds.items() if kind != look.SEALED)
        return f"{bad} is damaged: without its seal nobody can tell an edit from damage"
    return ""


def _of_section(inputs: Inputs, node: Node) -> str:
    path = inputs.memory_path(node.spec, node.path)
    found = inputs.artifacts.sections.look(path, node.names)
    is_there = found.seal is not None and found.kind in (look.SEALED, look.CHANGED)
    return "" if is_there else f"{path} has no section of it with a seal"


def _of_given_up(node: Node, artifacts: Artifacts, record: TaskState, choice: str) -> str:
    """Of work that is no longer finished, because somebody has decided so or objected: it does not come back.

    What only is out of date may: then the answer holds. A half-finished text of the new round can be kept, too.
    """
    if record.accepted is None or record.before is not None or choice == "continue":
        return ""
    files = record.accepted.files
    kinds = {artifacts.files.check(file, node.names).kind for file in files}
    is_whole = kinds == {look.SEALED} and not any(artifacts.tree.look(part_path(file.path)) for file in files)
    if choice == "keep" and look.CHANGED not in kinds and not is_whole:
        return ""
    return "it is left out" if record.status == SKIPPED else "it is to be done again"


def _of_open(inputs: Inputs, node: Node) -> str:
    tree, paths = inputs.artifacts.tree, inputs.paths(node).values()
    if any(tree.look(path) or tree.look(part_path(path)) for path in paths):
        return ""
    return f"there is no {' or '.join(paths)}" if paths else "it has no files"
