"""What is going on in a run: graph and scheduler as they are now, and the attempts under way.

Touched only inside a commit, or while nothing is being committed: whoever leads holds the board.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from holdfast.artifacts.inputs import Inputs, known_items
from holdfast.artifacts.looks import SEALED
from holdfast.artifacts.parts import Ingredients
from holdfast.engine.attempt import Attempt
from holdfast.engine.commit import Committer
from holdfast.engine.scheduler import Scheduler
from holdfast.errors import StorageError
from holdfast.events import FileRecord
from holdfast.pipeline.compiling import CompiledPipeline
from holdfast.pipeline.nodes import Node, as_items
from holdfast.pipeline.unfolding import build_graph, expand


class Asking(msgspec.Struct, eq=False):
    """A phase's checklist that is being asked: what it objects to."""

    phase: Node
    reasons: tuple[str, ...] = ()


class Board:
    """Shared by those who decide (starting), those who record (outcomes) and the runner."""

    def __init__(self, inputs: Inputs, compiled: CompiledPipeline, committer: Committer) -> None:
        self.inputs = inputs
        self.state = inputs.state
        self.graph = inputs.graph
        self.scheduler = Scheduler(inputs.graph)
        self.compiled = compiled
        self.committer = committer
        self.prepared: dict[str, tuple[Ingredients, str | None]] = {}  # of what is queued; and half-finished text
        self.starting: list[Attempt] = []  # recorded in the open batch
        self.running: dict[str, Attempt] = {}
        self.overruns: dict[str, Attempt] = {}  # timed out, and their threads go on
        self.asked: dict[str, Asking] = {}  # by phase
        self.to_ask: list[Asking] = []  # of those, what nobody has begun to ask
        self.made: dict[str, None] = {}  # tasks that this process has finished
        self.on_order: Callable[[], None] = lambda: None  # an item, or a batch, that others wait for is through
        self.on_halt: Callable[[], None] = lambda: None
        self.interrupted = False
        self.trouble: StorageError | None = None  # what the machine did to one task, and not to the record
        self.stopping = False
        self.over_budget = False

    def halt(self, error: OSError | StorageError, doing: str = "work on") -> StorageError:
        """The machine failed a task: start nothing new, and let what runs keep what it has been paid for."""
        told = error if isinstance(error, StorageError) else StorageError.from_os(error, doing)
        if self.committer.failed is None:  # else that came first
            self.trouble = self.trouble or told
        self.stopping = True
        self.on_halt()
        return told

    def through(self, node: Node) -> None:
        """A completed task: an items function first unfolds what it made."""
        if node.kind == "items":
            self._expand(node)
        self.scheduler.settle(node)

    def _expand(self, node: Node) -> None:
        accepted = self.state.task(node.id).accepted
        assert accepted is not None
        items = as_items(self.inputs.artifacts.load_value(accepted.value, accepted.value_ref))
        if self.graph.items.get((node.spec.var, node.path)) == items:
            return
        expand(self.graph, node.spec.var, node.path, items)
        self.scheduler.take_fresh()

    def recall(self, targets: Mapping[str, str]) -> None:
        """Send these tasks' outputs back, once their started consumers have ended."""
        for target in targets:
            node = self.graph.nodes.get(target)
            if node is not None:
                self.scheduler.recall(node)

    def release(self, node_id: str) -> None:
        """A person has spoken about something that waited for it."""
        node = self.graph.nodes.get(node_id)
        if node is not None and node.stuck:
            self.scheduler.release(node)

    def ask_again(self, node_id: str) -> None:
        """Work was sent back in this one's name: waiting or passed, it is considered afresh."""
        node = self.graph.nodes.get(node_id)
        if node is not None and (node.stuck or not node.is_task):
            self.scheduler.release(node)

    def look_again(self, node_id: str) -> None:
        """A person has decided about a task: if it waits, for them or for its turn, it is considered afresh."""
        node = self.graph.nodes.get(node_id)
        if node is not None and (node.stuck or node.queued):
            node.queued = False
            self.scheduler.release(node)

    def rebuild(self) -> None:
        """Draw the graph anew from the state; finished work is recognised by id and considered again."""
        limits, due = self.scheduler.limits, self.scheduler.due
        items = known_items(self.graph.spec, self.state, self.inputs.artifacts)
        self.graph = self.inputs.graph = build_graph(self.graph.spec, items)
        self.scheduler = Scheduler(self.graph)
        self.scheduler.limits, self.scheduler.due = limits, due
        for attempt in (*self.running.values(), *self.starting, *self.overruns.values()):
            node = self.graph.nodes.get(attempt.node.id)
            if node is not None:  # else its item has vanished: what it gives is recorded and left alone
                attempt.node = node
                node.running = True
                self.scheduler.running[node.id] = node
        self.recall(dict.fromkeys(self.state.recalls, ""))

    def look_at_touched(self) -> bool:
        """Have tasks considered afresh whose files somebody touched since this process wrote them; are there any?

        It costs one look at the name of each file, and is asked once, when all the work is done.
        """
        nodes = dict.fromkeys(node for node, _ in self._touched())
        for node in nodes:
            self.scheduler.release(node)
        return bool(nodes)

    def spoiled(self) -> list[str]:
        """The touched files that are not whole, although that was looked after: something spoils them again."""
        check = self.inputs.artifacts.files.check
        return [file.path for node, file in self._touched() if check(file, node.names).kind != SEALED]

    def _touched(self) -> Iterator[tuple[Node, FileRecord]]:
        for task in self.made:
            node, accepted = self.graph.nodes.get(task), self.state.task(task).accepted
            for file in accepted.files if node is not None and accepted is not None else ():
                if node is not None and self.inputs.artifacts.files.is_touched(file):
                    yield node, file

    def is_idle(self) -> bool:
        """Nothing runs or is asked, nothing is about to, and no body is overdue."""
        return not (self.running or self.starting or self.overruns or self.asked)
