"""What the artifacts alone say, task by task. Read-only.

Every file is read once, in the order in which they are made from each other, and judged by itself: by its seal,
its marker, its `check`. A seal also says what the file was made from: if that is not what lies there now, it is
stale.
An input that no file tells, such as a value, is unknown, and unknown is not different. Bodies are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast import seals
from holdfast.artifacts import looks as look
from holdfast.artifacts import memory
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.looks import Look
from holdfast.artifacts.parts import UNKNOWN, differing
from holdfast.artifacts.products import EMPTY_REST, no_rest, output_digest, part_path
from holdfast.errors import InTheWayError, UnreadableError
from holdfast.events import FileRecord
from holdfast.pipeline import templates
from holdfast.pipeline.graph import in_order
from holdfast.pipeline.inferring import FilePattern, Items, infer_items, is_inferred, item_paths
from holdfast.pipeline.nodes import Node, split_task_id
from holdfast.pipeline.spec import PipelineSpec
from holdfast.recovery.evidence import Checker
from holdfast.recovery.sections import is_memory, section_body, section_seen
from holdfast.recovery.seeing import NOT_JSON, as_taken, file_seen
from holdfast.recovery.sources import Views
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, RunState, TaskState
from holdfast.stores.protocols import FOLDER, Files

MISSING, EMPTY, HALF, MARKED, SEALED, CHANGED, DAMAGED, STALE, REFUSED = (
    "missing",
    "empty",
    "half-finished",
    "plain marker",
    "sealed",
    "changed",
    "damaged",
    "stale",
    "refused",
)
WHOLE = (SEALED, MARKED)

_USABLE = frozenset({look.SEALED, look.MARKED, look.CHANGED, look.HALF})
_KINDS = {look.MARKED: MARKED, look.FOREIGN: DAMAGED}
_TAIL_BYTES = 16 << 10


class FileFinding(msgspec.Struct, frozen=True):
    """What one file of a task says."""

    task: str
    path: str
    kind: str
    detail: str = ""
    run: str = ""  # from its seal
    cost_usd: float = 0.0


class Scan:
    """One pass over the files of a pipeline's tasks. The state knows run id and parameters; its tasks are ours."""

    def __init__(self, inputs: Inputs, checker: Checker, inferred: Mapping[str, Any]) -> None:
        self.graph = inputs.graph
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self.checker = checker
        self._inferred = inferred  # items functions whose items are inferred: their fields are unknown
        self._edited: set[str] = set()  # tasks whose content is not what they were sealed with
        self._paths: set[str] = set()  # of artifacts; what lies beside one under its name is its own
        self._books: set[str] = set()  # the paths of memory files

    def findings(self) -> Iterator[FileFinding]:
        """Each file of each task that writes one, producers first."""
        for node in in_order(self.graph):
            if node.kind != "step":
                continue
            if is_memory(node.spec):
                yield self._look_at_section(node)
            else:
                yield from self._look_at(node, self.inputs.paths(node))

    def files(self) -> set[str]:
        """The paths of all files that tasks have or would have; call it when the findings are through."""
        return {*self._paths, *self._books}

    def disown(self, path: str) -> None:
        """This file is no task's after all."""
        self._paths.discard(path)

    # --- one task ------------------------------------------------------------------------------------------

    def _look_at(self, node: Node, paths: Mapping[str, str]) -> list[FileFinding]:
        if not paths:
            return []
        self._paths.update(paths.values())
        names, marker = node.names, node.spec.marker
        looks = {
            path: as_taken(node, key, path, self.artifacts.files.look(path, names, marker))
            for key, path in paths.items()
        }
        stale = self._staleness(node, looks)
        refusal = self._remember(node, paths, looks)
        findings = [self._finding(node, path, found, stale, refusal) for path, found in looks.items()]
        return [*findings, *self._streams(node, looks)] if "ctx" in node.spec.sources else findings

    def _look_at_section(self, node: Node) -> FileFinding:
        """One section of a memory file. What it was made from may have changed since: it stands all the same."""
        path = self.inputs.memory_path(node.spec, node.path)
        self._books.add(path)
        found = self.artifacts.sections.look(path, node.names)
        stale, refusal = "", ""
        if found.kind in (look.SEALED, look.CHANGED):
            record = section_seen(path, found)
            refusal = self._known_by(node, [(record, section_body(found))], "", found.kind == look.CHANGED)
            if found.seal is not None and found.seal.step_version != node.spec.version:
                stale = _other_version(found.seal, node)
        return self._finding(node, path, found, stale, refusal)

    def _streams(self, node: Node, looks: Mapping[str, Look]) -> Iterator[FileFinding]:
        for path in looks:
            found = self.artifacts.files.look(part_path(path), node.names, None)
            if found.kind != look.MISSING:
                yield FileFinding(node.id, part_path(path), HALF, "a stream that was cut off")

    def _finding(self, node: Node, path: str, found: Look, stale: str, refusal: str) -> FileFinding:
        kind, detail = _KINDS.get(found.kind, found.kind), found.detail
        if kind == HALF and node.spec.marker is None and detail != NOT_JSON:
            kind, detail = MARKED, "no marker is expected"
        if kind in WHOLE and refusal:
            kind, detail = REFUSED, refusal
        elif kind == SEALED and stale:
            kind, detail = STALE, stale
        seal = found.seal
        return FileFinding(node.id, path, kind, detail, seal.run if seal else "", seal.cost_usd if seal else 0.0)

    def _staleness(self, node: Node, looks: Mapping[str, Look]) -> str:
        """Whether it was made from other inputs than those that are there now; "" also if nobody can tell."""
        sealed = [found.seal for found in looks.values() if found.seal is not None and found.kind == look.SEALED]
        if not sealed or is_inferred(self.graph, node, self._inferred):
            return ""
        seal = sealed[0]
        parts = self.inputs.parts(node)
        is_same = seal.input_digest == UNKNOWN or self.inputs.is_made_from(seal.input_digest, node, parts)
        if is_same or _is_beyond_telling(seal, parts):
            return ""
        if seal.step_version != node.spec.version:
            return _other_version(seal, node)
        producers = list(self.inputs.producers(node))
        others = [producer.id for producer in producers if producer.id in self._edited]
        if others:
            return f"made from another {', '.join(others[:3])}"
        if any(is_inferred(self.graph, producer, self._inferred) for producer in producers):
            return ""  # which items there were, and in which order, only their function could tell
        return "made from other inputs"

    def _remember(self, node: Node, paths: Mapping[str, str], looks: Mapping[str, Look]) -> str:
        """Keep by which digest others know this output; gives what `check` objects to."""
        is_edited = False
        for found in looks.values():
            if found.kind not in _USABLE or found.detail == NOT_JSON:
                return ""
            is_edited = is_edited or found.kind == look.CHANGED
        seen = [file_seen(node, key, path, looks[path]) for key, path in paths.items()]
        seals_ = [found.seal for found in looks.values() if found.seal is not None]
        rest = seals_[0].value_digest if seals_ else no_rest(node)
        known_as = seals_[0].known_as if seals_ else ""
        return self._known_by(node, seen, rest, is_edited, known_as)

    def _known_by(
        self, node: Node, seen: list[tuple[FileRecord, bytes]], rest: str, edited: bool, known_as: str = ""
    ) -> str:
        files = tuple([record for record, _ in seen])
        if edited:
            self._edited.add(node.id)
        accepted = Accepted(files, value_ref="" if rest in ("", EMPTY_REST) else rest)
        known_by = known_as if known_as and not edited else output_digest(files, rest)
        self.state.tasks[node.id] = TaskState(status=COMPLETED, output_digest=known_by, accepted=accepted)
        return self._refusal(node, accepted, seen)

    def _refusal(self, node: Node, accepted: Accepted, seen: list[Any]) -> str:
        def load() -> Any:
            for record, body in seen:
                self.artifacts.recent.keep(record.sha256, body)
            return self.artifacts.load(accepted)

        try:
            return self.checker(node, load)
        except LostValueError:
            return ""  # what it would look at is lost: it cannot object


def _is_beyond_telling(seal: Seal, parts: Mapping[str, str]) -> bool:
    """Whether an input is unknown and nothing that is known differs from what the seal says."""
    return UNKNOWN in parts.values() and not (seal.inputs and differing(seal.made_from, parts))


def _other_version(seal: Seal, node: Node) -> str:
    return f"made by version {seal.step_version} of the step, which is now {node.spec.version}"


# --- items that files suggest ------------------------------------------------------------------------------


def infer(
    spec: PipelineSpec,
    known: Items,
    tasks: Iterable[str],
    views: Callable[[], Views],
    tree: Files,
    state: RunState,
) -> tuple[Items, frozenset[tuple[str, ...]]]:
    """The items that nothing but files, views and task ids tell; and the paths of those that are sure.

    A view or a task's id is sure of an item. What a file's name suggests has to be proved.
    """
    if not spec.makes_items:
        return {}, frozenset()
    listed = [*views().listed, item_paths(spec, tasks)]
    sure = frozenset(path for view in listed for paths in view.values() for path in paths)
    return infer_items(spec, known, listed, named_items(spec, tree, state)), sure


def named_items(spec: PipelineSpec, tree: Files, state: RunState) -> dict[str, list[tuple[str, ...]]]:
    """The items that the names of files suggest, by fan-out. Only their seals can prove that they are items."""
    suggested: dict[str, list[tuple[FilePattern, tuple[str, ...]]]] = {}
    listings: dict[str, frozenset[str]] = {}  # several steps may write to one folder
    for pattern, template in file_patterns(spec, path_values(state)):
        for folder in matching_folders(tree, pattern, template):
            if folder not in listings:
                listings[folder] = _names(tree, folder)
            for name in listings[folder]:
                path = f"{folder}/{name}" if folder else name
                item = pattern.item_at(path)
                if item is not None and templates.check_path(path) is None:
                    suggested.setdefault(path, []).append((pattern, item))
    found: dict[str, list[tuple[str, ...]]] = {}
    for path, readings in suggested.items():
        for var, item in _agreed(tree, path, readings):
            found.setdefault(var, []).append(item)
    for var, item in _remembered_items(spec, tree, state):
        found.setdefault(var, []).append(item)
    return found


def _agreed(
    tree: Files, path: str, readings: Sequence[tuple[FilePattern, tuple[str, ...]]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What a name says if it can be read in one way only; else what its seal says."""
    if len(readings) == 1 and readings[0][0].is_plain:
        pattern, item = readings[0]
        if pattern.fan:
            yield pattern.fan[-1], item
        return
    seal = tail_seal(tree, path)
    for pattern, _ in readings:
        sealed = pattern.item_of(seal.task) if seal is not None and pattern.fan else None
        if sealed is not None:
            yield pattern.fan[-1], sealed


def _remembered_items(spec: PipelineSpec, tree: Files, state: RunState) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The items whose sections stand in memory files, each with its fan-out."""
    for step in spec.memories:
        fan = spec.fan_path(step.each)
        pattern = FilePattern(step, fan[:-1], step.appends or "", path_values(state))
        for folder in matching_folders(tree, pattern, step.appends or ""):
            paths = (f"{folder}/{name}" if folder else name for name in _names(tree, folder))
            for path in (path for path in paths if pattern.item_at(path) is not None):
                for task in _tasks_in(tree, path):
                    name, item = split_task_id(task)
                    if name in (step.name, *step.was) and len(item) == len(fan):
                        yield fan[-1], item


def _tasks_in(tree: Files, path: str) -> list[str]:
    try:
        return [block.task for block in memory.take_apart(tree.read(path)).blocks]
    except UnreadableError:
        return []


def file_patterns(spec: PipelineSpec, values: Mapping[str, str]) -> Iterator[tuple[FilePattern, str]]:
    """What the names of all files of a pipeline look like, each with its template."""
    for step in spec.steps:
        fan = spec.fan_path(step.each)
        for template in step.files.values():
            yield FilePattern(step, fan, template, values), template


def matching_folders(tree: Files, pattern: FilePattern, template: str) -> list[str]:
    """The folders there are in which a template's files can lie."""
    *segments, _ = template.split("/")
    folders = [""]
    for depth, segment in enumerate(segments, 1):
        if not templates.fields(segment):
            plain = templates.render(segment, {})
            folders = [f"{folder}/{plain}" if folder else plain for folder in folders]
            continue
        below = [f"{folder}/{name}" if folder else name for folder in folders for name in _names(tree, folder)]
        folders = [path for path in below if pattern.may_be_folder(path, depth)]
    return [folder for folder in folders if not folder or _is_folder(tree, folder)]


def _is_folder(tree: Files, path: str) -> bool:
    try:
        found = tree.look(path)
    except InTheWayError:  # something on the way is no folder
        return False
    return found is not None and found.kind == FOLDER


def _names(tree: Files, folder: str) -> frozenset[str]:
    try:
        return tree.names(folder)
    except InTheWayError:
        return frozenset()


def path_values(state: RunState) -> dict[str, str]:
    """What stands for the fields of path templates, as far as it is known without an item."""
    values = templates.as_fields(state.params)
    return {**values, "run_id": state.run_id} if state.run_id else values


def tail_seal(tree: Files, path: str) -> Seal | None:
    """The seal of a file, from its last bytes alone: it may be of any size. None if there is none to be read."""
    try:
        tail = tree.tail(path if seals.is_inline(path) else seals.seal_path(path), _TAIL_BYTES)
    except UnreadableError:
        return None
    return seals.take_apart(tail).seal
