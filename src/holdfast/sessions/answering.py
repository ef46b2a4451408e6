"""Whether an answer about a task means anything now: what its files look like, unasked. Read-only."""

from __future__ import annotations

from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.products import part_path
from holdfast.engine.drawing import draw_both
from holdfast.errors import StorageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.nodes import Node
from holdfast.recovery.sections import is_memory
from holdfast.runs.listing import load_value
from holdfast.state import COMPLETED, RunState, TaskState
from holdfast.stores.objects import ObjectStore
from holdfast.stores.tree import WorkTree


def objection(layout: ProjectLayout, state: RunState, task: str, choice: str) -> str:
    """Why `keep`, `restore` or `continue` would do nothing about this task; "" if it would do something."""
    objects = ObjectStore(layout.objects, state.run_id, layout.tmp, read_only=True)
    tree = WorkTree(layout.root, layout.tmp)
    try:
        _, graph = draw_both(state, lambda accepted: load_value(objects, accepted))
        node, artifacts = graph.nodes[task], Artifacts(tree, objects)
        if is_memory(node.spec):
            return ""
        if state.task(task).status == COMPLETED:
            return _of_finished(node, artifacts, state.task(task), choice)
        return _of_open(Inputs(graph, state, artifacts, layout.root), node)
    except OSError as error:
        raise StorageError.from_os(error, "look at") from error
    finally:
        objects.close()
        tree.close()


def _of_finished(node: Node, artifacts: Artifacts, record: TaskState, choice: str) -> str:
    files = record.accepted.files if record.accepted is not None else ()
    kinds = {file.path: artifacts.check(file, node.names).kind for file in files}
    if choice == "continue":
        return "it is finished, and not half finished"
    if all(kind == look.SEALED for kind in kinds.values()):
        return "its files are as they were accepted" if files else "it has no files"
    if choice == "keep" and look.CHANGED not in kinds.values():
        bad = ", ".join(path for path, kind in kinds.items() if kind != look.SEALED)
        return f"{bad} is damaged: without its seal nobody can tell an edit from damage"
    return ""


def _of_open(inputs: Inputs, node: Node) -> str:
    tree, paths = inputs.artifacts.tree, inputs.paths(node).values()
    if any(tree.exists(path) or tree.exists(part_path(path)) for path in paths):
        return ""
    return f"there is no {' or '.join(paths)}" if paths else "it has no files"
