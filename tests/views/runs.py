"""Small runs told as events, and the pictures drawn from them."""

import msgspec

from holdfast import events as ev
from holdfast.engine.drawing import draw
from holdfast.engine.scheduler import Scheduler
from holdfast.events import FileRecord
from holdfast.folding import fold
from holdfast.pipeline.definition import Pipeline
from holdfast.pipeline.spec import PipelineSpec
from holdfast.pipeline.unfolding import build_graph
from holdfast.state import RunState

BEGAN = 1_767_969_022.0  # 2026-01-09T14:30:22Z


class Story:
    """A run that is told event by event; every event comes a second after the one before."""

    def __init__(self, pipe, *, run_id="run-1", params=None, file="book.py"):
        self.state = RunState()
        self.spec = pipe if isinstance(pipe, PipelineSpec) else pipe.compile().spec
        self.tell(
            ev.RunStarted(
                run_id=run_id,
                pipeline=self.spec.name,
                ordinal=1,
                params=params or {},
                file=file,
                host="box",
                pid=7,
            ),
            ev.PipelineDeclared(spec=msgspec.Raw(msgspec.json.encode(self.spec))),
        )

    def tell(self, *events):
        for event in events:
            seq = self.state.seq + 1
            fold(self.state, event, seq, BEGAN + seq)
        return self

    def start(self, *tasks):
        for task in tasks:
            self.tell(ev.NodeEntered(step_id=task, node=task.partition("[")[0]))
        return self

    def finish(self, *tasks, value=None, files=(), cost=0.0):
        for task in tasks:
            self.start(task)
            if cost:
                self.tell(ev.UsageRecorded(step_id=task, input_tokens=100, output_tokens=20, cost_usd=cost))
            raw = msgspec.Raw(msgspec.json.encode(value)) if value is not None else msgspec.Raw()
            self.tell(
                ev.NodeExited(
                    step_id=task,
                    node=task.partition("[")[0],
                    status="completed",
                    duration=1.5,
                    value=raw,
                    files=tuple(FileRecord("", path, 12, "ab" * 32, "text") for path in files),
                )
            )
        return self

    def fail(self, task, error="it broke", status="failed"):
        self.start(task)
        return self.tell(
            ev.NodeExited(step_id=task, node=task.partition("[")[0], status=status, error=error, kind="error")
        )

    def picture(self):
        return draw(self.state, value_of)

    def graph(self):
        """The graph of this moment, for edges."""
        items = {
            task: value_of(record.accepted)
            for task, record in self.state.tasks.items()
            if record.accepted is not None and task.partition("[")[0] in {fan.name for fan in self.spec.items}
        }
        graph = build_graph(self.spec, items)
        Scheduler(graph)
        return graph


def value_of(accepted):
    return msgspec.json.decode(bytes(accepted.value))


def items(*ids, **after):
    """Items as the engine stores them; `after` by id."""
    return [{"id": name} | ({"after": after[name]} if name in after else {}) for name in ids]


def book():
    """A book: an outline, chapters made by a function, two steps for each, and the whole."""
    pipe = Pipeline("book", params={"topic": str})
    pipe.step(title="Outline", writes="outline.md")(outline)
    pipe.items("chapter")(chapters)
    pipe.step(each="chapter", title="Research", writes="research/{chapter}.md")(research)
    pipe.step(each="chapter", title="Draft", writes="drafts/{chapter}.md")(draft)
    pipe.step(title="Book", writes="book.md")(assemble)
    return pipe


def outline(topic): ...


def chapters(outline): ...


def research(chapter, outline): ...


def draft(chapter, research): ...


def assemble(draft): ...


def half_written_book():
    """Two batches of chapters: the first is being written, one chapter of it has failed for good."""
    story = Story(book(), params={"topic": "Async IO"})
    story.finish("outline", files=["outline.md"], cost=0.25)
    story.finish("chapters", value=items("ch01", "ch02", "ch03", ch03=["ch01"]))
    story.finish("research[ch01]", files=["research/ch01.md"], cost=0.5)
    story.finish("draft[ch01]", files=["drafts/ch01.md"], cost=0.125)
    story.fail("research[ch02]", "no answer", status="needs_review")
    return story.start("research[ch03]")
