"""A finished value whose step names a file for it by now: written there, and known to its consumers as before.

Crash story: what stands there is set aside, and the file written and synced, before the event that says so. Killed
in between, the value is still on record, and is written again over what is the same.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts, LostValueError
from holdfast.artifacts.looks import Look
from holdfast.artifacts.parts import Ingredients
from holdfast.artifacts.products import OutputRefusedError, split_output, task_seal
from holdfast.decisions import Decision
from holdfast.pipeline.nodes import Node
from holdfast.state import Accepted


def can_be_written(node: Node, accepted: Accepted, artifacts: Artifacts) -> bool:
    """Whether a value is one that the step's files could be made of; what is lost cannot."""
    try:
        split_output(node.spec, artifacts.load(accepted))
    except (OutputRefusedError, LostValueError):
        return False
    return True


class Writing:
    """Writes finished values to the files that a run's pipeline names."""

    def __init__(self, inputs: Inputs, put_away: Callable[[str, str, Look], list[ev.Event]]) -> None:
        self.inputs = inputs
        self._put_away = put_away

    def write(self, node: Node, decision: Decision, made_of: Ingredients) -> list[ev.Event]:
        """Have the value in its files; gives the events that record it."""
        artifacts, record = self.inputs.artifacts, self.inputs.state.task(node.id)
        paths, events = self.inputs.paths(node), list[ev.Event]()
        for path in paths.values():
            found = artifacts.files.look(path, node.names, node.spec.marker)
            if found.seal is None or found.seal.known_as != record.output_digest:  # else a kill has left it
                events += self._put_away(node.id, path, found)
        seal = task_seal(node.id, node.spec, self.inputs.state.run_id, record)
        output = artifacts.load(record.accepted or Accepted())
        seal = seals.vary(seal, known_as=record.output_digest)
        stored, _ = artifacts.store(node.spec, paths, output, seal, sync=True)
        written = ev.ValueMigrated(
            step_id=node.id,
            version=record.version,
            reason=decision.reason,
            input_digest=record.input_digest,
            inputs=record.inputs,
            files=stored.files,
            value=stored.value,
            value_ref=stored.value_ref,
        )
        return [*events, written]
