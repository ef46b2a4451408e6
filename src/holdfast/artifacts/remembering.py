"""Which sections belong into a memory file, and putting them there.

The file is derived: every accepted section is in objects/, and the file is written from them in the order of the
items when a batch is through, or when a section was found missing. Both go through `_write`.

Crash story: the file is replaced before the event that says so. Killed in between, the next run plans the same
bytes, finds them there, and records it. What the old file held, and nobody else has, is copied before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts import memory
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import LostValueError
from holdfast.artifacts.memory import Block, Book, Rewriting, Section
from holdfast.artifacts.products import SECTION, UNWRITTEN, for_file, output_digest, seal_of
from holdfast.errors import MISSING, UnreadableError
from holdfast.events import FileRecord
from holdfast.pipeline.nodes import Node, batch_of, step_of, task_id
from holdfast.pipeline.spec import StepSpec
from holdfast.state import COMPLETED, Accepted, TaskState
from holdfast.values import digest

EMPTY = Book(b"", {}, {})
NOBODY: frozenset[str] = frozenset()

PROBLEMS = {memory.BROKEN: "damaged", memory.EDITED: "changed", memory.INTACT: "another version"}


class Remembering:
    """Keeps the memory files of one run. Called by whoever holds the commit."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs

    def turn(self, page: Node) -> list[ev.Event]:
        """A batch is through, or the head is there: have it in the file; gives the events that record it."""
        step, batch = page.spec, batch_of(page)
        path = self.inputs.memory_path(step, page.path)
        self._bring_along(step, path)
        if batch is None:
            return self._write(page, path, NOBODY, NOBODY)
        due = frozenset(node.id for node in self._batch(page, batch) if self._is_due(node))
        return self._write(page, path, due, due) if due else []

    def mend(self, path: str, node: Node, with_it: Iterable[str]) -> list[ev.Event]:
        """Put a section back, and with it whatever else the file has lost; edits of these sections are undone."""
        return self._write(node, path, NOBODY, frozenset({node.id, *with_it}))

    def _bring_along(self, step: StepSpec, path: str) -> None:
        """Have a file that is on record elsewhere at `path` before it is begun there: a person's notes are in it.

        Its sections notice that, one by one, when they are judged.
        """
        tree = self.inputs.artifacts.tree
        if tree.look(path) is not None:
            return
        records = [self.inputs.state.task(node.id) for node in self.inputs.remembered(step, path)]
        written = [record.accepted for record in records if record.accepted and _kind(record) == SECTION]
        for old in dict.fromkeys(accepted.files[0].path for accepted in written):
            if old != path and tree.look(old) is not None:
                tree.rename(old, path, sync=True)
                return

    # --- what belongs there --------------------------------------------------------------------------------

    def _batch(self, page: Node, batch: int) -> Iterator[Node]:
        graph = self.inputs.graph
        for item, number in graph.batches(page.spec.each, page.path).items():
            if number == batch:
                yield graph.nodes[task_id(page.spec.name, (*page.path, item))]

    def _is_due(self, node: Node) -> bool:
        record = self.inputs.state.task(node.id)
        return record.status == COMPLETED and _kind(record) == UNWRITTEN

    def _wanted(self, place: Node, path: str, due: frozenset[str], book: Book) -> list[Section]:
        """The head, and each section that is in the file by now, or is due, in the order of the items."""
        head = self._head(place)
        found = [head] if head is not None else []
        for node in self.inputs.remembered(place.spec, path):
            record = self.inputs.state.task(node.id)
            if record.status == COMPLETED and (_kind(record) == SECTION or node.id in due):
                found.append(self._section(node, record, book))
        return found

    def _section(self, node: Node, record: TaskState, book: Book) -> Section:
        assert record.accepted is not None
        (file,) = record.accepted.files
        seal = for_file(seal_of(self.inputs.state.run_id, node, record), file)
        block = book.find(node.names)
        if block is not None and block.kind == memory.INTACT and block.sha256 == file.sha256:
            return Section(node.names, seal, None)  # it is there: nobody needs to fetch it
        return Section(node.names, seal, self.inputs.artifacts.sections.body(file))

    def _head(self, place: Node) -> Section | None:
        head = self.inputs.head_of(place)
        if head is None:
            return None
        record = self.inputs.state.task(head.id)
        if record.status != COMPLETED or record.accepted is None or record.value_lost:
            return None
        try:
            text = self.inputs.artifacts.load(record.accepted)
        except LostValueError:
            return None  # what stands in the file is all there is of it
        body, added = seals.with_newline(str(text).encode())
        file = FileRecord("", "", len(body), digest(body), "text", added)
        as_file = replace(record, accepted=Accepted((file,)), output_digest=output_digest([file], ""))
        return Section(head.names, for_file(seal_of(self.inputs.state.run_id, head, as_file), file), body)

    # --- writing -------------------------------------------------------------------------------------------

    def _write(self, place: Node, path: str, due: frozenset[str], replace: frozenset[str]) -> list[ev.Event]:
        """Bring the file to what it shall be. `due` are new in it; `replace` take the place of what is there."""
        step = place.spec
        book, events = self._read(step, path)
        wanted = self._wanted(place, path, due, book)
        change = memory.rewrite(book, wanted, replace | _heads_replaced(step, wanted, book))
        events += self._keep_what_vanishes(step, path, change)
        was_empty = not book.data and self.inputs.artifacts.tree.look(path) is not None
        if change.data != book.data:
            self.inputs.artifacts.books.replace(path, change.data)
        events += self._healed(step, path, change, due, was_empty)
        written = tuple(section.task for section in wanted if section.task in due and _is_there(section, book))
        if written or change.data != book.data:
            sha = digest(change.data)
            events.append(ev.MemoryWritten(step_id=step.name, path=path, sections=written, sha256=sha))
        return events

    def _read(self, step: StepSpec, path: str) -> tuple[Book, list[ev.Event]]:
        """The file as it is; what cannot be read, is no text or another task's is out of the way, and told."""
        try:
            book = self.inputs.artifacts.books.read(path)
            if not (book.is_garbage or _is_strangers(step, book)):
                return book, []
        except UnreadableError as error:
            if error.why == MISSING:
                return EMPTY, []
        to = self.inputs.artifacts.tree.set_aside(path)
        return EMPTY, [ev.ArtifactSetAside(step_id=step.name, path=path, to=to, reason="damaged")]

    def _keep_what_vanishes(self, step: StepSpec, path: str, change: Rewriting) -> list[ev.Event]:
        """Copy the old file if something in it that is replaced is kept nowhere else."""
        lost = [block for block in change.replaced.values() if not self._is_kept(block)]
        if not lost:
            return []
        damaged = any(block.kind == memory.BROKEN for block in lost)
        to = self.inputs.artifacts.books.keep_copy(path, damaged=damaged)
        return [ev.ArtifactSetAside(step_id=step.name, path=path, to=to, reason=PROBLEMS[lost[0].kind])]

    def _is_kept(self, block: Block) -> bool:
        return block.kind == memory.INTACT and self.inputs.artifacts.objects.has(block.sha256)

    def _healed(
        self, step: StepSpec, path: str, change: Rewriting, due: frozenset[str], was_empty: bool
    ) -> Iterator[ev.Event]:
        """What was put back, section by section; a head that is written for the first time is no surprise."""
        first = path not in self.inputs.state.memories
        problems = dict.fromkeys(change.new, "empty" if was_empty else "missing")
        problems |= {task: PROBLEMS[block.kind] for task, block in change.replaced.items()}
        for task, problem in problems.items():
            is_head = step_of(task) == step.head
            if task not in due and not (is_head and (first or problem == PROBLEMS[memory.INTACT])):
                yield ev.ArtifactHealed(step_id=task, path=path, problem=problem)


def _is_there(section: Section, book: Book) -> bool:
    """Whether a section is in the file once it is written: put in, or whole in it before."""
    block = book.find(section.names)
    return section.body is not None or (block is not None and block.kind == memory.INTACT)


def _is_strangers(step: StepSpec, book: Book) -> bool:
    """Whether a finished file of another step stands in its place: those are no words that a person wrote here."""
    name = step_of(book.is_artifact_of) if book.is_artifact_of else step.name
    return name not in (step.name, *step.was, step.head)


def _kind(record: TaskState) -> str:
    """Whether a finished section is in its file: SECTION or UNWRITTEN."""
    return record.accepted.files[0].kind if record.accepted and record.accepted.files else ""


def _heads_replaced(step: StepSpec, wanted: list[Section], book: Book) -> frozenset[str]:
    """The head, if its step gave another text since; one that a person edited is left as it is."""
    if step.head is None or not wanted or step_of(wanted[0].task) != step.head:
        return NOBODY
    block = book.find(wanted[0].names)
    return frozenset({wanted[0].task}) if block is not None and block.kind == memory.INTACT else NOBODY
