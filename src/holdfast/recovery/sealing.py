"""The seal that all files of one finished task share, from its record. Pure."""

from __future__ import annotations

from holdfast import seals
from holdfast.artifacts.products import EMPTY_REST, output_digest, set_digest, task_seal
from holdfast.pipeline.nodes import Node
from holdfast.seals import Seal
from holdfast.state import Accepted, TaskState
from holdfast.values import digest


def set_seal(run_id: str, node: Node, record: TaskState, accepted: Accepted) -> Seal:
    """The seal of a task's files, but for what is particular to one of them.

    Consumers know an output by its first form: the seal says so, if these files are no longer that.
    """
    rest = value_digest(node, accepted)
    is_migrated = accepted == record.accepted and record.output_digest != output_digest(accepted.files, rest)
    return seals.vary(
        task_seal(node.id, node.spec, run_id, record),
        set_digest=set_digest(accepted.files),
        value_digest=rest,
        known_as=record.output_digest if is_migrated else "",
    )


def value_digest(node: Node, accepted: Accepted) -> str:
    """What the value beside a task's files is known by."""
    if accepted.value_ref:
        return accepted.value_ref
    data = bytes(accepted.value)
    return digest(data) if data else no_rest(node)


def no_rest(node: Node) -> str:
    """What stands for the value of a step that may give one beside its files, and gave none."""
    return EMPTY_REST if isinstance(node.spec.writes, dict) else ""


def spend_told(seal: Seal | None, run_id: str) -> tuple[float, int]:
    """The cost and tokens that a seal tells of this run: what another run has made, that one has paid for."""
    return (seal.cost_usd, seal.tokens) if seal is not None and seal.run == run_id else (0.0, 0)
