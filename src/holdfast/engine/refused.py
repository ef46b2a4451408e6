"""An output that was refused was paid for: it is kept in quarantine for whoever wants to look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import events as ev
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.products import split_output
from holdfast.pipeline.nodes import Node


class Refused:
    """Keeps what no check, and no rule, let through."""

    def __init__(self, inputs: Inputs, artifacts: Artifacts, quarantine: Path) -> None:
        self._inputs = inputs
        self._artifacts = artifacts
        self._quarantine = quarantine

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
        name = paths[0].rsplit("/", 1)[-1]
        return {paths[0]: self._artifacts.keep_refused(data, name, self._quarantine)}

    def _keep_files(self, node: Node, output: Any) -> dict[str, str]:
        """Files that the step wrote itself to `ctx.out`."""
        paths, (pieces, _) = self._inputs.paths(node), split_output(node.spec, output)
        written = {key: piece for key, piece in pieces.items() if isinstance(piece, Path) and piece.is_file()}
        return {
            paths[key]: self._artifacts.move_refused(piece, self._quarantine) for key, piece in written.items()
        }
