"""A finished run's outputs, read and verified when they are asked for."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.artifacts.keeping import Artifacts
from holdfast.errors import CheckpointCorruptionError
from holdfast.layout import ProjectLayout
from holdfast.pipeline.nodes import split_task_id, step_of
from holdfast.runs.looking import artifacts_of
from holdfast.state import COMPLETED
from holdfast.views.picture import Picture


class Outputs(Mapping[str, Any]):
    """Step -> output; of a fanned-out step a dict by item, nested like the items."""

    def __init__(self, picture: Picture, layout: ProjectLayout) -> None:
        self._picture = picture
        self._layout = layout

    def __getitem__(self, step: str) -> Any:
        if step not in set(self):
            raise KeyError(step)
        with artifacts_of(self._layout, self._picture.state.run_id) as artifacts:
            return self._load(step, artifacts)

    def __iter__(self) -> Iterator[str]:
        names = (step_of(task) for task in self._picture.tasks if self._is_done(task))
        return iter(dict.fromkeys(names))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _is_done(self, task: str) -> bool:
        return self._picture.record(task).status == COMPLETED

    def _load(self, step: str, artifacts: Artifacts) -> Any:
        result: dict[str, Any] = {}
        for task in self._picture.tasks:
            name, path = split_task_id(task)
            if name != step or not self._is_done(task):
                continue
            if self._picture.record(task).value_lost:
                again = f"holdfast resume {self._picture.state.run_id} --redo {shlex.quote(task)}"
                raise CheckpointCorruptionError(
                    f"The value of {task} was lost with the record.", fix=f"Make it again: {again}"
                )
            accepted = self._picture.record(task).accepted
            assert accepted is not None
            value = artifacts.load(accepted)
            if not path:
                return value
            inner = result
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = value
        return result
