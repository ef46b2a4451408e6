"""Finding one loop in a graph of names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping


def find_loop(edges: Mapping[str, Collection[str]]) -> list[str] | None:
    """Names along one loop, the first repeated at the end (`["a", "b", "a"]`); None if there is none.

    Iterative, because item lists may chain a hundred thousand entries.
    """
    finished: set[str] = set()
    for start in edges:
        if start not in finished:
            loop = _loop_from(start, edges, finished)
            if loop:
                return loop
    return None


def _loop_from(start: str, edges: Mapping[str, Collection[str]], finished: set[str]) -> list[str] | None:
    path = [start]
    on_path = {start}
    pending: list[Iterator[str]] = [iter(edges.get(start, ()))]
    while pending:
        follower = next(pending[-1], None)
        if follower is None:
            pending.pop()
            done = path.pop()
            on_path.discard(done)
            finished.add(done)
        elif follower in on_path:
            return [*path[path.index(follower) :], follower]
        elif follower not in finished:
            path.append(follower)
            on_path.add(follower)
            pending.append(iter(edges.get(follower, ())))
    return None


def reachable(start: str, edges: Mapping[str, Collection[str]]) -> set[str]:
    """Every name that can be reached from `start`, without `start` itself unless a loop leads back."""
    seen: set[str] = set()
    pending = list(edges.get(start, ()))
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending.extend(edges.get(name, ()))
    return seen
