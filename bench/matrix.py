"""Row 6: how long it takes to write the page that shows every task, and to read it back."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.engine.drawing import draw
from holdfast.pipeline.spec import ItemsSpec, PipelineSpec, StepSpec
from holdfast.state import COMPLETED, IN_PROGRESS, RunState, TaskState
from holdfast.views import checkpoint
from holdfast.views.picture import Picture
from measure import Row, Sample, Setting, interleave, timed

STEPS = 8


def matrix(setting: Setting) -> Iterator[Row]:
    """checkpoint.md of one wide fan-out, rendered and parsed."""
    items = setting.sizes.matrix_items
    picture = _half_done(items)
    page = checkpoint.render(picture)

    def round_trip() -> Sample:
        return Sample(timed(lambda: checkpoint.parse(checkpoint.render(picture), picture.spec)) * 1000)

    yield interleave(lambda: timed(lambda: _split(page)) * 1000, round_trip, setting.rounds).row(
        "matrix",
        f"checkpoint.md of {items} items x {STEPS} steps: rendered and parsed",
        "the same page split into lines and cells",
        "ms",
        target_value=50,
    )


def _half_done(items: int) -> Picture:
    """A run in the middle: finished, going on and not begun, so that no two rows need look alike."""
    names = [f"step_{number}" for number in range(STEPS)]
    listed = tuple({"id": f"ch{number:04}"} for number in range(items))
    spec = PipelineSpec(
        name="wide",
        items=(ItemsSpec(var="chapter", name="items:chapter", given=listed),),
        steps=tuple(StepSpec(name=name, title=name.title(), each="chapter") for name in names),
    )
    state = RunState(
        run_id="bench", pipeline="wide", spec=msgspec.Raw(msgspec.json.encode(spec)), status=IN_PROGRESS
    )
    for number, item in enumerate(listed):
        for name in names[: number % (STEPS + 1)]:
            state.tasks[f"{name}[{item['id']}]"] = TaskState(status=COMPLETED)
    return draw(state, lambda accepted: None)


def _split(page: str) -> list[list[str]]:
    return [line.split("|") for line in page.splitlines()]
