"""progress.md: the readable partial result, one section per finished item, in the items' order. Pure."""

from __future__ import annotations

from holdfast.clock import iso
from holdfast.escaping import markdown_block, markdown_code, markdown_line
from holdfast.pipeline.nodes import split_task_id, step_of
from holdfast.state import COMPLETED, SKIPPED, Section
from holdfast.views.checkpoint import and_more, progress_words
from holdfast.views.matrix import is_expanded
from holdfast.views.picture import Picture
from holdfast.views.stamp import stamp


def render(picture: Picture) -> str:
    """progress.md with its stamp."""
    state = picture.state
    finished = sections(picture)
    parts = [
        f"# {markdown_line(state.pipeline)}: results so far",
        f"Run {markdown_code(state.run_id)}, {iso(state.updated_at or 0.0)}. {progress_words(picture)}.",
        *(_section(task, section) for task, section in finished),
    ]
    if not finished:
        parts.append("No section has been written yet.")
    parts += _missing(picture)
    return stamp("\n\n".join(parts) + "\n", state.run_id, state.seq)


def sections(picture: Picture) -> list[tuple[str, Section]]:
    """The sections of completed tasks, in the order of items, then of steps; not of one that is redone."""
    found = [
        (task, section)
        for task, section in picture.state.sections.items()
        if picture.state.task(task).status == COMPLETED
    ]
    order = _Order(picture)
    return sorted(found, key=lambda entry: order.key(entry[0]))


def _section(task: str, section: Section) -> str:
    title = markdown_line(section.title) or markdown_line(task)
    sources = ", ".join(markdown_code(source) for source in section.sources)
    origin = f"From {markdown_code(task)}" + (f". Sources: {sources}" if sources else "")
    text = markdown_block(section.text)
    return "\n\n".join(filter(None, [f"## {title}", origin, text]))


def _missing(picture: Picture) -> list[str]:
    """What will still write a section: unfinished tasks of the steps that have written one before."""
    writers = {step_of(task) for task in picture.state.sections}
    open_tasks = [
        f"- {markdown_code(task)}: {picture.status(task).replace('_', ' ')}"
        for task in picture.tasks
        if step_of(task) in writers and picture.state.task(task).status not in (COMPLETED, SKIPPED)
    ]
    unknown = [
        f"- the items of {markdown_code(fan.var)} are not all known yet"
        for fan in picture.spec.items
        if not is_expanded(picture, fan.var)
    ]
    lines = [*unknown, *and_more(open_tasks)]
    return ["## Still missing", "\n".join(lines)] if lines else []


class _Order:
    """Where a task stands in the pipeline: its fan-out, its item's position, its step."""

    def __init__(self, picture: Picture) -> None:
        members = picture.spec.producers
        self.steps = {member.name: number for number, member in enumerate(members)}
        self.fans = {member.name: picture.spec.fan_path(member.each) for member in members}
        self.groups: dict[str, int] = {}  # an outermost fan-out stands where its first step does
        for name, fan in self.fans.items():
            if fan:
                self.groups.setdefault(fan[0], self.steps[name])
        self.places = {
            (var, *parent, item["id"]): number
            for (var, parent), items in picture.items.items()
            for number, item in enumerate(items)
        }

    def key(self, task: str) -> tuple[int, tuple[int, ...], int]:
        name, path = split_task_id(task)
        step, fan = self.steps.get(name, len(self.steps)), self.fans.get(name, ())
        item = tuple(self.places.get((var, *path[: depth + 1]), len(self.places)) for depth, var in enumerate(fan))
        return self.groups[fan[0]] if fan else step, item, step
