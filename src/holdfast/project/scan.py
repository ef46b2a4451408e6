"""`scan`: what the files of a project say, told without believing any record. Read-only.

A record, if there is one, only tells which items and parameters there are, so that paths can be known, and which
files had been accepted: one that has lost its seal is then damaged, and not half-finished.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from holdfast.artifacts.inputs import Inputs, known_items
from holdfast.artifacts.keeping import Artifacts
from holdfast.engine.attempt import Attempts
from holdfast.engine.recorder import NoRecorder
from holdfast.errors import StorageError, UsageError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.inferring import Items, is_inferred
from holdfast.pipeline.names import did_you_mean, printable
from holdfast.pipeline.nodes import split_task_id, step_of
from holdfast.pipeline.unfolding import build_graph
from holdfast.recovery.scan import DAMAGED, HALF, MARKED, FileFinding, Scan, infer, path_values
from holdfast.recovery.sources import read_views
from holdfast.recovery.strangers import Stranger, Strangers
from holdfast.runs.listing import read_run
from holdfast.runs.looking import artifacts_of, as_recorded
from holdfast.sessions.judging import checker_of
from holdfast.state import COMPLETED, RunState


class Scanned(msgspec.Struct, frozen=True):
    """All that the files say."""

    run_id: str  # as the record says; "" without one
    findings: list[FileFinding] = []
    strangers: list[Stranger] = []
    unknown_items: list[str] = []  # fan-outs of which nothing is known


def scan_project(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    *,
    run_id: str | None = None,
    params: Mapping[str, Any] | None = None,
    known_params: Mapping[str, Any] | None = None,
    step: str | None = None,
) -> Scanned:
    """Look at every file that the tasks of a pipeline would have written; with `step` only at that step's."""
    _require_step(compiled, step)
    recorded = read_run(layout, run_id).state if run_id else RunState()
    compiled = as_recorded(compiled, recorded)
    values = recorded.params if run_id else known_params or {}
    known = {name: value for name, value in values.items() if name in compiled.params.names}
    state = RunState(run_id=run_id or "", params=compiled.params.parse(params or {}, base=known))
    try:
        with artifacts_of(layout, run_id or "none") as artifacts:
            return _scan(compiled, layout, recorded, state, artifacts, step)
    except OSError as error:
        raise StorageError.from_os(error, "look at") from error


def _require_step(compiled: CompiledPipeline, step: str | None) -> None:
    names = [known.name for known in compiled.spec.steps]
    if step is not None and step not in names:
        raise UsageError(f"There is no step '{printable(step, 160)}'.{did_you_mean(step, names)}")


def _scan(
    compiled: CompiledPipeline,
    layout: ProjectLayout,
    recorded: RunState,
    state: RunState,
    artifacts: Artifacts,
    step: str | None,
) -> Scanned:
    spec = compiled.spec
    known = known_items(spec, recorded, artifacts)
    views = partial(read_views, layout, spec, state.run_id)
    inferred, sure = infer(spec, known, recorded.tasks, views, artifacts.tree, state)
    graph = build_graph(spec, {**known, **inferred})
    inputs = Inputs(graph, state, artifacts, layout.root)
    recorder = NoRecorder(artifacts.objects, artifacts.tree)
    attempts = Attempts(inputs, compiled, recorder)
    scan = Scan(inputs, checker_of(attempts), inferred)
    found = _believable(graph, scan, inferred, sure) if inferred else scan.findings()
    findings = [_as_recorded(finding, recorded) for finding in found] if recorded.tasks else list(found)
    return Scanned(
        state.run_id,
        [finding for finding in findings if step is None or step_of(finding.task) == step],
        _strangers(compiled, layout, scan) if step is None else [],
        [fan.var for fan in spec.items if not any(var == fan.var for var, _ in graph.items)],
    )


def _believable(
    graph: Graph, scan: Scan, inferred: Items, sure: Collection[tuple[str, ...]]
) -> Iterator[FileFinding]:
    """The findings without those about items that a file's name suggests and nothing proves.

    What proves an item proves those that it lies in, too.
    """
    doubtful: dict[tuple[str, ...], list[FileFinding]] = {}
    proved = {above for path in sure for above in _down_to(path)}
    for finding in scan.findings():
        path = split_task_id(finding.task)[1]
        if finding.run and finding.kind != DAMAGED:
            proved.update(_down_to(path))
        if path in proved or not is_inferred(graph, graph.nodes[finding.task], inferred):
            for above in _down_to(path):
                yield from doubtful.pop(above, ()) if above in proved else ()
            yield finding
        else:
            doubtful.setdefault(path, []).append(finding)
    for finding in (finding for found in doubtful.values() for finding in found):
        scan.disown(finding.path)


def _down_to(path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """An item and those that it lies in, the outermost first."""
    return [path[:length] for length in range(1, len(path) + 1)]


def _as_recorded(finding: FileFinding, recorded: RunState) -> FileFinding:
    """The finding; an accepted file that has lost its seal is damaged, as `verify` and `run` say."""
    record = recorded.tasks.get(finding.task)
    if finding.kind not in (HALF, MARKED) or record is None or record.status != COMPLETED:
        return finding
    accepted = record.accepted.files if record.accepted is not None else ()
    if all(file.path != finding.path for file in accepted):
        return finding
    return msgspec.structs.replace(finding, kind=DAMAGED, detail="it was accepted, and has lost its seal")


def _strangers(compiled: CompiledPipeline, layout: ProjectLayout, scan: Scan) -> list[Stranger]:
    found = Strangers(compiled.spec, scan.artifacts.tree, path_values(scan.state), scan.files())
    return list(found.find(_own_files(compiled, layout)))


def _own_files(compiled: CompiledPipeline, layout: ProjectLayout) -> frozenset[str]:
    """The pipeline's own file is no stranger."""
    prefix = f"{layout.root}/"
    file = compiled.file or ""
    return frozenset({file.removeprefix(prefix)} if file.startswith(prefix) else ())
