"""Events of older formats, brought to today's one small step at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.errors import CheckpointCorruptionError

FORMAT = 1
"""Of the lines that this version writes."""

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: dict[int, Upgrade] = {}
"""Format v -> the function that turns an event of v into one of v + 1."""


def upgrade(
    event: dict[str, Any], v: int, upgrades: Mapping[int, Upgrade] = UPGRADES, to: int = FORMAT
) -> dict[str, Any]:
    """`event`, written in format `v`, as format `to` has it. Fields no step knows are kept."""
    for version in range(v, to):
        step = upgrades.get(version)
        if step is None:
            raise CheckpointCorruptionError(
                f"No upgrade from format {version} to {version + 1} for an event of format {v}.",
                fix="Use a Holdfast that still knows that format.",
            )
        event = step(event)
    return event
