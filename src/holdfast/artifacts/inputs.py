"""What a task is made from: the digest of its inputs, told apart by part, and the arguments of its function."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.artifacts.keeping import Artifacts, LostValueError
from holdfast.artifacts.outside import OutsideHashes, patterns_of, reads_of
from holdfast.artifacts.parts import UNKNOWN, Ingredients, digest_of, digest_of_named
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.names import ID_BYTES_MAX
from holdfast.pipeline.nodes import TAKEN, Node, as_items, before_id, gather_id, items_before, step_of, task_id
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, Source, StepSpec
from holdfast.pipeline.templates import SEGMENT_BYTES_MAX, around, as_fields, is_plain, render_path
from holdfast.state import COMPLETED, SKIPPED, Accepted, RunState
from holdfast.values import digest, digest_of_fields, encode_json

PATHS_KEPT = 4096
AT_HAND_MAX = 8

_NOT_IDENTITY = ("after", "batch")
_NO_PATHS: dict[str, str] = {}


class Inputs:
    """Digests and arguments of the tasks of one run."""

    def __init__(self, graph: Graph, state: RunState, artifacts: Artifacts | None, root: Path) -> None:
        self.graph = graph
        self.state = state
        self._artifacts = artifacts  # None: only digests of tasks that take nothing are asked for
        self.root = root
        self._outside = OutsideHashes()
        self._params: dict[str, str] = {}
        self._taken: dict[str, list[tuple[str, str]]] = {}  # by step: see `_params_of`
        self._texts: dict[str, str] | None = None  # the parameters as templates take them
        self._memory_paths: dict[tuple[str, ...], str] = {}
        self._paths: dict[str, str | dict[str, str]] = {}  # of the tasks at hand: each is asked for several times
        self._sides: dict[str, tuple[str, str] | None] = {}  # by step: what its only path has around an item

    @property
    def artifacts(self) -> Artifacts:
        assert self._artifacts is not None
        return self._artifacts

    # --- digests -------------------------------------------------------------------------------------------

    def parts(self, node: Node, version: int | None = None) -> dict[str, str]:
        """Every input of a task by name, each as a digest. What changed between two of these is why it runs."""
        spec, is_step, tasks = node.spec, node.kind == "step", self.state.tasks
        parts = {"version": str(version or spec.version)} if is_step else {}
        item, path = node.item, node.path
        if item is not None:
            parts["item"] = path[0] if len(item) == 1 == len(path) else self._item_digest(node)
        for parent in node.parents:
            record = tasks.get(parent.id)
            parts[parent.part] = record.output_digest if record is not None else ""
            if not parts[parent.part]:
                parts[parent.part] = self._output_digest(parent)
        taken = self._taken.get(spec.name)
        for key, name in self._params_of(spec) if taken is None else taken:
            parts[key] = self._param_digest(name)
        if is_step and spec.reads:
            parts["reads"] = self.reads_digest(node)
        return parts

    def ingredients(self, node: Node) -> Ingredients:
        """What a task would be made of now."""
        parts = self.parts(node)
        return Ingredients(parts, self.digest(node, parts))

    def digest(self, node: Node, parts: Mapping[str, str]) -> str:
        """The one digest that a seal carries as `in`; the order of a function's parameters is not part of it."""
        now = digest_of_named(node.spec.identity, parts)
        record = self.state.tasks.get(node.id)
        if record is not None and record.input_digest not in ("", UNKNOWN, now):
            before = self.earlier_digest(node, parts)
            return before if before == record.input_digest else now
        return now

    def earlier_digest(self, node: Node, parts: Mapping[str, str]) -> str:
        """The same as earlier versions had it: names in the order in which somebody wrote them.

        What they finished stands: an upgrade alone redoes nothing.
        """
        written = dict(parts)
        item = node.item or {}
        if "item" in parts and not (len(node.path) == 1 == len(item)):
            fields = {key: value for key, value in item.items() if key not in _NOT_IDENTITY}
            written["item"] = digest(encode_json([list(node.path), fields]))
        for key in parts:
            if key.startswith("param "):
                written[key] = digest(encode_json(self.state.params.get(key.removeprefix("param "))))
        return digest_of(node.spec.identity, written.items())

    def is_made_from(self, input_digest: str, node: Node, parts: Mapping[str, str]) -> bool:
        """Whether that is the digest of these inputs, as it is put together now or was by earlier versions."""
        return input_digest == self.digest(node, parts) or input_digest == self.earlier_digest(node, parts)

    def _item_digest(self, node: Node) -> str:
        item = node.item or {}
        fields = item if len(item) == 1 else {key: item[key] for key in item if key not in _NOT_IDENTITY}
        if len(node.path) == 1 and len(fields) == 1:  # nothing but its id, however it is ordered
            return node.path[0]
        return digest_of_fields([list(node.path), fields])

    def _params_of(self, spec: StepSpec | ItemsSpec) -> list[tuple[str, str]]:
        """The run's parameters that a step takes, each with its name among the inputs."""
        found = self._taken.get(spec.name)
        if found is None:
            names = [source.name for source in spec.sources.values() if source.kind == "param"]
            found = self._taken[spec.name] = [(f"param {name}", name) for name in names]
        return found

    def _param_digest(self, name: str) -> str:
        known = self._params.get(name)
        if known is None:
            known = self._params[name] = digest_of_fields(self.state.params.get(name))
        return known

    def _output_digest(self, producer: Node) -> str:
        if producer.kind == "past":
            return self._past_digest(producer)
        if producer.kind != "gather":
            record = self.state.tasks.get(producer.id)
            return record.output_digest or UNKNOWN if record is not None else UNKNOWN
        if not producer.digest:
            producer.digest = self._gather_digest(producer, producer.spec.name)
        return producer.digest

    def _gather_digest(self, gather: Node, name: str) -> str:
        hasher = hashlib.sha256()
        for key, inner in self.gathered(name, gather.path):
            if inner.kind == "gather":
                inner_digest = self._gather_digest(inner, name)
            elif self.state.task(inner.id).status == SKIPPED:
                continue
            else:
                inner_digest = self.state.task(inner.id).output_digest or UNKNOWN
            if inner_digest == UNKNOWN:
                return UNKNOWN
            hasher.update(f"{key}\n{inner_digest}\n".encode())
        return hasher.hexdigest()

    def gathered(self, name: str, path: tuple[str, ...]) -> list[tuple[str, Node]]:
        fan = self.graph.fan_of(name)
        items = self.graph.items.get((fan[len(path)], path), [])
        deeper = len(fan) > len(path) + 1
        found = []
        for item in items:
            inner = (*path, item["id"])
            node_id = gather_id(name, inner) if deeper else task_id(name, inner)
            found.append((item["id"], self.graph.nodes[node_id]))
        return found

    def producers(self, node: Node) -> Iterator[Node]:
        """The tasks whose output this one takes, or a phase's checklist, also through gathers."""
        stack = list(node.parents) if node.is_task else self._listed(node)
        while stack:
            parent = stack.pop()
            if parent.kind == "past":
                yield from (section for _, section in self.sections_before(parent))
            elif parent.kind == "gather":
                stack += [inner for _, inner in self.gathered(parent.spec.name, parent.path)]
            else:
                yield parent
        if node.is_task and "source" in node.spec.sources:
            yield from self._sources_needed(node)

    def _listed(self, phase: Node) -> list[Node]:
        sources = [source for taken in phase.spec.checklist_sources for source in taken.values()]
        taken = {self.graph.related(source.name, (), ()): None for source in sources if source.kind == "step"}
        return [self.graph.nodes[node_id] for node_id in taken]

    def spoiled(self, node: Node) -> Iterator[tuple[Node, str]]:
        """Large files that this task reads itself and that are not what was accepted: whose, and which."""
        for producer in self.producers(node):
            accepted = self.state.task(producer.id).accepted
            for file in accepted.files if accepted is not None else ():
                if file.kind == "path" and not self.artifacts.files.is_still(file):
                    yield producer, file.path

    def _sources_needed(self, node: Node) -> list[Node]:
        """The best source of a section, if all of them were lost: one must come back before it can be made."""
        finished = [source for source in node.material if self._is_done(source)]
        lost = [source for source in finished if self.state.task(source.id).value_lost]
        return lost[:1] if len(lost) == len(finished) else []

    def reads_digest(self, node: Node) -> str:
        """What the files are that a step reads from outside, in one digest."""
        values = self.fields(node)
        hasher = hashlib.sha256()
        patterns = [p for template in node.spec.reads for p in patterns_of(node.id, template, values)]
        for path in reads_of(self.root, patterns):
            hasher.update(os.fsencode(f"{path}\n{self._outside.of(self.root / path)}\n"))  # any name will do
        return hasher.hexdigest()

    # --- memory --------------------------------------------------------------------------------------------

    def sections_before(self, past: Node) -> list[tuple[str, Node]]:
        """The sections that a node of the past stands for, by item, in the order of the items."""
        name, (*above, item) = past.spec.name, past.path
        items = self.graph.items.get((past.spec.each, tuple(above)), [])
        before = items_before(items, item)
        return [(other, self.graph.nodes[task_id(name, (*above, other))]) for other in before]

    def _past_digest(self, past: Node) -> str:
        if not past.digest:
            hasher = hashlib.sha256()
            for item, section in self.sections_before(past):
                record = self.state.task(section.id)
                if record.status == SKIPPED:
                    continue
                if not record.output_digest or record.output_digest == UNKNOWN:
                    return UNKNOWN
                hasher.update(f"{item}\n{record.output_digest}\n".encode())
            past.digest = hasher.hexdigest()
        return past.digest

    def _is_done(self, node: Node) -> bool:
        return self.state.task(node.id).status == COMPLETED

    def best_source(self, node: Node) -> tuple[str, Any]:
        """The first of a memory step's sources that is finished and can be read back: its name, and its output."""
        for producer in node.material:
            if self._is_done(producer):
                try:
                    return producer.spec.name, self._loaded(producer.spec.name, producer)
                except LostValueError:
                    continue
        names = ", ".join(producer.id for producer in node.material)
        raise LostValueError(f"none of its sources ({names}) can be read back")

    def section_digests(self, node: Node, parts: Mapping[str, str]) -> set[str]:
        """The digests that a section made now may carry: one for each source that it could be made from."""
        made = [parts]
        for producer in node.material:
            key = f"source {producer.spec.name}"
            made.append({**parts, key: self.state.task(producer.id).output_digest})
        return {self.digest(node, one) for one in made} | {self.earlier_digest(node, one) for one in made}

    def memory_path(self, step: StepSpec, path: tuple[str, ...]) -> str:
        """The memory file of a step, for the task (or its fan-out) at `path`."""
        around = dict(zip(self.graph.fan_of(step.name)[:-1], path, strict=False))
        key = (step.appends or "", *around.values())
        known = self._memory_paths.get(key)
        if known is None:
            known = self._memory_paths[key] = render_path(step.appends or "", {**self._run_fields(), **around})
        return known

    def head_of(self, node: Node) -> Node | None:
        """The task whose text opens the memory file that `node` has a section in, if one does."""
        head = node.spec.head
        if head is None:
            return None
        return self.graph.nodes[self.graph.related(head, node.path, self.graph.fan_of(node.spec.name))]

    def remembered(self, step: StepSpec, path: str) -> list[Node]:
        """The tasks whose sections are in one memory file, in the order of the items."""
        positions = self.graph.positions(step.each or "")
        found = [place for place in positions if self.memory_path(step, place) == path]
        return [self.graph.nodes[task_id(step.name, place)] for place in sorted(found, key=positions.__getitem__)]

    # --- paths ---------------------------------------------------------------------------------------------

    def fields(self, node: Node) -> dict[str, str]:
        """What a template may name: items, parameters, run_id."""
        return {**self._run_fields(), **dict(zip(self.graph.fans[node.spec.name], node.path, strict=True))}

    def _run_fields(self) -> Mapping[str, str]:
        """Those of them that are the same for all tasks; not to be changed."""
        known = self._texts
        if known is None or known["run_id"] != self.state.run_id:
            known = self._texts = {**as_fields(self.state.params), "run_id": self.state.run_id}
        return known

    def paths(self, node: Node) -> dict[str, str]:
        """Output key -> the file this task writes, relative to the project."""
        known = self._written(node)
        return {"": known} if isinstance(known, str) else known

    def _written(self, node: Node) -> str | dict[str, str]:
        """What a task writes: the path of its only file, or those of several."""
        known = self._paths.get(node.id)
        if known is not None:
            return known
        spec = node.spec
        if not isinstance(spec, StepSpec) or spec.writes is None:
            return _NO_PATHS
        if isinstance(spec.writes, str):
            known = self._plain_path(node) or self._path(node, spec.writes)
        else:
            known = {key: self._path(node, template) for key, template in spec.writes.items()}
        if len(self._paths) >= PATHS_KEPT:
            self._paths.clear()
        self._paths[node.id] = known
        return known

    def _plain_path(self, node: Node) -> str:
        """The path of a task's only file where nothing is in it but its own item, as in most; else ""."""
        sides = self._sides_of(node)
        return f"{sides[0]}{node.path[0]}{sides[1]}" if sides is not None and is_plain(node.path[0]) else ""

    def _sides_of(self, node: Node) -> tuple[str, str] | None:
        """What is before and behind the item in the path of a task of this step; None if it is not so simple."""
        name = node.spec.name
        if name not in self._sides:
            fan = self.graph.fans[name]
            sides = around(node.spec.writes, fan[0]) if len(fan) == 1 else None
            is_short = sides is not None and len(sides[0]) + len(sides[1]) + ID_BYTES_MAX <= SEGMENT_BYTES_MAX
            self._sides[name] = sides if is_short else None
        return self._sides[name]

    def _path(self, node: Node, template: str) -> str:
        return render_path(template, self.fields(node))

    # --- arguments -----------------------------------------------------------------------------------------

    def are_at_hand(self, node: Node) -> bool:
        """Whether its arguments are a few small values that the record holds: no file has to be read for them."""
        if len(node.parents) > AT_HAND_MAX or node.material:
            return False
        for parent in node.parents:
            accepted = None if parent.is_virtual else self.state.task(parent.id).accepted
            if accepted is None or accepted.files or accepted.value_ref:
                return False
        return True

    def arguments(self, node: Node, sources: Mapping[str, Source], ctx: Any, output: Any = None) -> dict[str, Any]:
        """The keyword arguments of a step, an items function, a check or a checklist item."""
        own = node.is_task and sources is node.spec.sources  # then `parents` are in the order of its parameters
        parents = iter(node.parents) if own else None
        found = {}
        for parameter, source in sources.items():
            if parents is not None and source.kind in TAKEN:
                found[parameter] = self._loaded(source.name, next(parents))
            else:
                found[parameter] = self._argument(node, source, ctx, output)
        return found

    def _argument(self, node: Node, source: Source, ctx: Any, output: Any) -> Any:
        if source.kind in ("step", "items"):
            return self._output(source.name, node)
        if source.kind == "memory":
            fan = self.graph.fan_of(source.name)
            return self._loaded(source.name, self.graph.nodes[before_id(source.name, node.path[: len(fan)])])
        if source.kind == "source":
            return self.best_source(node)[1]
        if source.kind == "param":
            # A fresh copy: a step that changes its argument must not change it for others.
            return _copied(self.state.params.get(source.name))
        if source.kind == "item":
            fan = self.graph.fan_of(node.spec.name)
            return node.path[fan.index(source.name)]
        return output if source.kind == "output" else ctx

    def _output(self, name: str, node: Node) -> Any:
        fan = self.graph.fan_of(node.spec.name) if node.is_task else ()
        producer = self.graph.nodes[self.graph.related(name, node.path, fan)]
        return self._loaded(name, producer)

    def _loaded(self, name: str, node: Node) -> Any:
        if node.kind == "past":
            before = self.sections_before(node)
            return {item: self._loaded(name, task) for item, task in before if self._is_done(task)}
        if node.kind != "gather":
            record = self.state.task(node.id)
            if record.value_lost:
                raise LostValueError(f"the value of {node.id} was lost with the record")
            return self.artifacts.load(record.accepted or Accepted())
        return {
            key: self._loaded(name, inner)
            for key, inner in self.gathered(name, node.path)
            if inner.kind == "gather" or self.state.task(inner.id).status == COMPLETED
        }


def known_items(spec: PipelineSpec, state: RunState, artifacts: Artifacts) -> dict[str, list[dict[str, Any]]]:
    """The items each completed items function made, by its task id; one whose value is lost is left out."""
    makers = {fan.name for fan in spec.items if fan.given is None}
    found = {}
    for task, record in state.tasks.items() if makers else ():
        accepted = record.accepted
        if step_of(task) not in makers or record.status != COMPLETED or accepted is None:
            continue
        try:
            found[task] = as_items(artifacts.load_value(accepted.value, accepted.value_ref))
        except LostValueError:
            continue  # it will be made again
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value
