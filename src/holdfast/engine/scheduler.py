"""What may start, and in which order: the graph's counters, moved by what happened. Pure: no I/O, no clock.

Theory. Every node has a condition:

    OPEN      not through
    HELD      waits for a person itself, or stands behind one that does (by DATA or AFTER)
    OK        completed
    SKIPPED   left out on purpose

A node whose producers are all through is *considered*: the runner looks at record and files, and answers with
`settle`, `hold` or `enqueue`. A node whose producer is opened again (sent back, damaged, redone) is opened
too, and considered again when the producer is through, also a task that waits for a person: if its input is then
the same, it is trusted (or waits on) and the cascade stops there. Costs per event are proportional to the edges
of the node it touches.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from holdfast.engine.limits import Limit, make_limits
from holdfast.pipeline.graph import Graph
from holdfast.pipeline.nodes import HELD, OK, OPEN, SATISFIED, SETTLE, SKIPPED, Node


class Scheduler:
    """Counters over one graph. Calls come from one thread at a time: whoever holds the commit."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.limits: dict[str, Limit] = make_limits(graph.spec.limits)
        self.to_consider: deque[Node] = deque()
        self.running: dict[str, Node] = {}
        self.recalled: dict[str, Node] = {}
        self._users: dict[str, frozenset[str]] = {}  # of what is recalled: the tasks that are made from it
        self._ready: dict[str | None, list[tuple[int, int, int, Node]]] = {}
        self.due: dict[str, float] = {}  # what is not to be tried again before then, by id
        self._delayed: list[tuple[float, int, Node]] = []
        self.take_fresh()

    def take_fresh(self) -> None:
        """Look at nodes that the graph has made since."""
        fresh, self.graph.fresh = self.graph.fresh, []
        for node in fresh:
            if not node.unmet:  # most wait for something
                self._reconsider(node)

    # --- answers to "consider this" ----------------------------------------------------------------------

    def settle(self, node: Node, condition: int = OK) -> None:
        """It is through: completed, or skipped."""
        node.stuck = False
        self._change(node, condition)

    def hold(self, node: Node) -> None:
        """It waits for a person; what stands behind it is blocked."""
        node.stuck = True
        self._change(node, HELD)

    def release(self, node: Node) -> None:
        """A person has spoken, or it is tried again: consider it afresh."""
        self.due.pop(node.id, None)
        node.stuck = False
        self._change(node, HELD if node.blockers else OPEN)
        self._reconsider(node)

    def enqueue(self, node: Node, *, half: bool = False) -> None:
        """It may run as soon as there is room."""
        node.queued = True
        limit = node.spec.limit if node.kind == "step" else None
        entry = (-node.rank, 0 if half else 1, node.order, node)
        heapq.heappush(self._ready.setdefault(limit, []), entry)

    def delay(self, node: Node, due: float) -> None:
        """It may run again, but not before `due`."""
        self.due[node.id] = due
        heapq.heappush(self._delayed, (due, node.order, node))

    # --- starting and ending -------------------------------------------------------------------------------

    def take(self, now: float) -> Node | None:
        """The best node that may start now, marked running; None if there is none."""
        best: list[tuple[int, int, int, Node]] | None = None
        for limit, heap in self._ready.items():
            if heap and not heap[0][3].queued:
                self._drop_stale(heap)
            if heap and (best is None or heap[0] < best[0]) and (limit is None or self._room(limit, now)):
                best = heap
        return self._start(heapq.heappop(best)[3], now) if best is not None else None

    def end(self, node: Node) -> None:
        """Its body is no longer running."""
        self.end_overdue(node)
        if self.limits:
            self.give_room(node)

    def end_overdue(self, node: Node) -> None:
        """A body that had given its room away is no longer running."""
        node.running = False
        self.running.pop(node.id, None)

    def give_room(self, node: Node) -> None:
        """It counts no more against its limit: it has ended, or its time is up and it may never end."""
        if node.kind == "step" and node.spec.limit:
            self.limits[node.spec.limit].end()

    def next_due(self, now: float) -> float | None:
        """Seconds until something may start by the passing of time alone."""
        waits = [max(0.0, self._delayed[0][0] - now)] if self._delayed else []
        for limit, heap in self._ready.items():
            self._drop_stale(heap)
            wait = self.limits[limit].wait_s(now) if heap and limit else None
            if wait:
                waits.append(wait)
        return min(waits) if waits else None

    @property
    def timed(self) -> bool:
        """Whether something waits for time to pass: a delay, or a rate."""
        return bool(self._delayed) or (bool(self.limits) and any(map(self._waits_for_rate, self._ready)))

    def _waits_for_rate(self, limit: str | None) -> bool:
        return limit is not None and bool(self._ready[limit]) and self.limits[limit].spec.per_minute is not None

    def has_work(self) -> bool:
        """Whether anything is ready or delayed."""
        for heap in self._ready.values():
            self._drop_stale(heap)
        return bool(self._delayed) or any(self._ready.values())

    def _start(self, node: Node, now: float) -> Node:
        node.queued = False
        node.running = True
        self.running[node.id] = node
        if node.kind == "step" and node.spec.limit:
            self.limits[node.spec.limit].start(now)
        return node

    def _room(self, limit: str, now: float) -> bool:
        return self.limits[limit].wait_s(now) == 0.0

    def _drop_stale(self, heap: list[tuple[int, int, int, Node]]) -> None:
        """Forget entries whose node was opened again by a producer since it was queued."""
        while heap and not heap[0][3].queued:
            heapq.heappop(heap)

    def release_due(self, now: float) -> None:
        """Look again at what was only waiting for its next attempt."""
        while self._delayed and self._delayed[0][0] <= now:
            _, _, node = heapq.heappop(self._delayed)
            self.due.pop(node.id, None)
            if node.condition == OPEN and not node.queued:
                self._reconsider(node)

    # --- sending back --------------------------------------------------------------------------------------

    def recall(self, node: Node) -> None:
        """Its output was sent back: nothing new may use it. It runs when all that is made from it has ended."""
        node.recalled = True
        self.recalled[node.id] = node
        self._users[node.id] = frozenset(user.id for user in made_from([node]))
        node.stuck = False
        self._change(node, HELD if node.blockers else OPEN)

    def recalls_due(self) -> Iterator[Node]:
        """Recalled nodes of whose consumers none runs, however far behind: its objection would come too late."""
        for node in list(self.recalled.values()):
            if not node.running and self._users[node.id].isdisjoint(self.running):
                yield node

    def rewound(self, node: Node) -> None:
        """The recall took effect."""
        node.recalled = False
        del self.recalled[node.id], self._users[node.id]
        self._reconsider(node)

    # --- the counters --------------------------------------------------------------------------------------

    def _change(self, node: Node, condition: int) -> None:
        """Give `node` its condition and pass on what follows, breadth first (chains are long)."""
        if not node.consumers:
            node.condition = condition
            return
        work: deque[tuple[Node, int]] = deque()
        while True:
            old, node.condition = node.condition, condition
            is_through = old == OPEN and condition == OK
            for consumer, kind in node.consumers if old != condition else ():
                if is_through and consumer.condition == OPEN and not (consumer.stuck or consumer.blockers):
                    consumer.unmet -= 1  # far the commonest: nothing else about it changes
                    self._reconsider(consumer)
                else:
                    self._pass_on(consumer, kind, old, condition, work)
            if not work:
                return
            node, condition = work.popleft()

    def _pass_on(self, consumer: Node, kind: int, old: int, new: int, work: deque[tuple[Node, int]]) -> None:
        was, now = SATISFIED[kind][old], SATISFIED[kind][new]
        if kind != SETTLE and (old == HELD) != (new == HELD):
            consumer.blockers += 1 if new == HELD else -1
        if now and not was:
            consumer.unmet -= 1
            # A task that waits for a person does so about what was there before: it is looked at again.
            consumer.stuck = consumer.stuck and not consumer.is_task
        elif was and not now:
            consumer.unmet += 1
            consumer.queued = False
            consumer.digest = ""
        condition = self._condition(consumer)
        if condition != consumer.condition:
            work.append((consumer, condition))
        if now and not was:
            self._reconsider(consumer)

    def _condition(self, node: Node) -> int:
        """What a node's condition is when only its producers have moved."""
        if node.stuck or node.blockers:
            return HELD
        if node.unmet:
            return OPEN
        return node.condition if node.condition != HELD else OPEN

    def _reconsider(self, node: Node) -> None:
        """Have it looked at if all its producers are through.

        Virtual nodes have nothing to consider; they go through the same queue so that `_change` stays flat.
        """
        if node.unmet == 0 and not node.running and not node.recalled and not node.stuck:
            self.to_consider.append(node)


def made_from(targets: Iterable[Node], but: Callable[[Node], bool] = lambda node: False) -> Iterator[Node]:
    """The tasks that take the output of one of these, through whatever lies between, in the order of the graph.

    Those of which `but` says so are left out, and what is made from them alone.
    """
    stack = list(targets)
    seen: set[Node] = set()
    while stack:
        producer = stack.pop()
        for consumer, _ in producer.consumers:
            if consumer not in seen and _is_fed(consumer, producer) and not but(consumer):
                seen.add(consumer)
                stack.append(consumer)
    return (node for node in sorted(seen, key=lambda node: node.order) if node.is_task)


def _is_fed(consumer: Node, producer: Node) -> bool:
    """Whether it takes what the other gives, or is made by it; an order alone hands nothing on."""
    if consumer.is_virtual:
        return consumer.kind != "order"
    return producer in consumer.parents or producer in consumer.material or producer.kind == "items"


def skipped_producer(node: Node, *, is_finished: bool) -> str:
    """The task that was left out, and with which this one is; "" if there is none."""
    for before in node.goes_with(is_finished=is_finished):
        if before.condition == SKIPPED:
            return before.id
    # A section may be made from any of its sources: it is left out only if all of them were.
    nothing_left = node.material and all(source.condition == SKIPPED for source in node.material)
    return node.material[0].id if nothing_left and "source" in node.spec.sources else ""
