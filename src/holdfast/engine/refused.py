"""An output that was refused was paid for: it is kept in quarantine for whoever wants to look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.products import paths_in, split_output
from holdfast.engine.host import StepHost
from holdfast.errors import DefinitionError
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.spec import StepSpec


class Refused:
    """Keeps what no check, and no rule, let through."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._tree = inputs.artifacts.tree

    def keep(self, node: Node, round_number: int, output: Any) -> list[ev.Event]:
        """Put the output away, and say where it is; a value that is neither text nor a file is not kept."""
        if type(output) in (str, bytes):
            kept = self._keep_text(node, output)
        else:
            kept = self._keep_files(node, output) if node.spec.writes is not None else {}
        reason = f"refused in round {round_number}"
        return [ev.ArtifactSetAside(step_id=node.id, path=path, to=to, reason=reason) for path, to in kept.items()]

    def _keep_text(self, node: Node, output: str | bytes) -> dict[str, str]:
        data = output if isinstance(output, bytes) else output.encode(errors="replace")
        paths = list(self._inputs.paths(node).values())
        if node.spec.appends is not None:
            paths = [self._inputs.memory_path(node.spec, node.path)]
        if not paths:
            return {}
        return {paths[0]: self._tree.keep(paths[0].rsplit("/", 1)[-1], data)}

    def _keep_files(self, node: Node, output: Any) -> dict[str, str]:
        """Files that the step wrote itself to `ctx.out`."""
        paths, (pieces, _) = self._inputs.paths(node), split_output(node.spec, output)
        written = {key: piece for key, piece in pieces.items() if isinstance(piece, Path) and piece.is_file()}
        return {paths[key]: self._tree.keep(piece.name, piece) for key, piece in written.items()}


def refuse_others_files(spec: StepSpec, host: StepHost | None, output: Any) -> None:
    """A file is moved into place and sealed: that may happen only to one that was written for it, to `ctx.out`."""
    for path in paths_in(spec, output) if spec.writes is not None else ():
        if host is None or not host.made(path):
            words = f"returned the path {path}, which is not ctx.out and was left where it is"
            if host is not None and host.is_linked_from_out(path):
                words = "left a symbolic link at ctx.out, and what that leads to may be somebody's own"
            raise DefinitionError([f"{words}; write the file to ctx.out and return that, or return its content"])
