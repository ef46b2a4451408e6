"""Events of older formats reach today's step by step."""

import pytest

from holdfast.errors import CheckpointCorruptionError
from holdfast.journal.upgrade import upgrade


def rename_node(event):
    return {**event, "step_id": event["node_id"]}


def add_round(event):
    return {**event, "round": 0}


def test_steps_are_chained_and_unknown_fields_kept():
    """An event of format 1 passes both steps; what no step knows is still there."""
    old = {"event": "node_exit", "node_id": "draft", "colour": "red"}
    assert upgrade(old, 1, {1: rename_node, 2: add_round}, to=3) == {**old, "step_id": "draft", "round": 0}
    assert upgrade(old, 2, {1: rename_node, 2: add_round}, to=3) == {**old, "round": 0}


def test_todays_event_is_untouched():
    """Nothing is done to an event of the current format."""
    assert upgrade({"event": "note"}, 1) == {"event": "note"}


def test_a_missing_step_is_named():
    """An event that cannot be upgraded is never passed on as if it could."""
    with pytest.raises(CheckpointCorruptionError, match="from format 2 to 3"):
        upgrade({}, 1, {1: add_round}, to=3)
