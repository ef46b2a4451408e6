"""Steps whose text opens a memory file: with record or objects/ lost, the file still has what such a step gave."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast import decisions
from holdfast import events as ev
from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.looks import Look
from holdfast.artifacts.parts import UNKNOWN, Ingredients, shorten
from holdfast.artifacts.products import spend_told
from holdfast.decisions import Action, Decision, Foretold
from holdfast.pipeline import templates
from holdfast.pipeline.nodes import Node
from holdfast.recovery.actions import Do
from holdfast.recovery.evidence import Checker
from holdfast.recovery.sections import section_text
from holdfast.state import TaskState
from holdfast.values import digest, encode_json


class Openings:
    """Decides about heads without files whose record, or whose text in objects/, is lost."""

    def __init__(self, inputs: Inputs, refusal: Checker, living: frozenset[str]) -> None:
        self.inputs = inputs
        self._refusal = refusal
        self._living_runs = living

    def decide(self, node: Node, made_of: Ingredients) -> Decision | None:
        """Adopt what opens the file, or make it anew; None if the task opens none, or a person edited it."""
        lost = None
        for path in self._files(node):
            found = self.inputs.artifacts.sections.look(path, node.names)
            if found.kind == look.CHANGED:
                return None
            if self._fits(node, found, made_of):
                return Decision(
                    decisions.ADOPT, f"its text opens {path}", (path,), about="sealed", looks={path: found}
                )
            lost = lost or Decision(decisions.RUN, f"its text opens {path}, and is lost there")
        return lost

    def healing(self, node: Node, record: TaskState) -> Decision | None:
        """How the text comes back that objects/ has lost: from a file that it opens; None if none has it."""
        ref = record.accepted.value_ref if record.accepted is not None else ""
        for path in self._files(node):
            found = self.inputs.artifacts.sections.look(path, node.names)
            if found.kind == look.SEALED and digest(encode_json(section_text(found))) == ref:
                words = f"its value is missing from objects/, and still opens {path}"
                return Decision(decisions.HEAL, words, (path,), looks={path: found})
        return None

    def _files(self, node: Node) -> Iterator[str]:
        for step in self.inputs.graph.spec.memories:
            fields = {*self.inputs.graph.fan_of(step.name)[len(node.path) :]}
            if step.head == node.spec.name and fields.isdisjoint(templates.fields(step.appends or "")):
                yield self.inputs.memory_path(step, node.path)

    def _fits(self, node: Node, found: Look, made_of: Ingredients) -> bool:
        seal = found.seal
        if found.kind != look.SEALED or seal is None or seal.run in self._living_runs:
            return False
        same = seal.input_digest in (made_of.digest, self.inputs.earlier_digest(node, made_of.parts))
        same = same or UNKNOWN in made_of.parts.values()
        return same and not self._refusal(node, lambda: section_text(found))

    def made(self, node: Node, decision: Decision, made_of: Ingredients) -> tuple[TaskState, bytes]:
        """The task as its text in the file says, and the text, as the value it was."""
        (found,) = decision.looks.values()
        assert found.seal is not None
        cost_usd, tokens = spend_told(found.seal, self.inputs.state.run_id)
        made = TaskState(
            round=found.seal.round,
            version=found.seal.step_version,
            input_digest=found.seal.input_digest,
            inputs=shorten(made_of.parts),
            evidence="sealed",
            cost_usd=cost_usd,
            input_tokens=tokens,
        )
        return made, encode_json(section_text(found))

    def keep(self, decision: Decision) -> Action:
        """Put the text into objects/, as the value it was."""
        (found,) = decision.looks.values()

        def put() -> Iterable[ev.Event]:
            self.inputs.artifacts.objects.put(encode_json(section_text(found)))
            return ()

        return Do(Foretold(), put)
