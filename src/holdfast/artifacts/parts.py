"""The inputs of a task by name, each as a digest: put together, shortened for the record, compared. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec

UNKNOWN = "?"
"""The digest of an input whose value is lost: unknown is not different."""

SHORT = 12
"""How much of a part's digest is recorded: enough to say which input changed."""


class Ingredients(msgspec.Struct, frozen=True, gc=False):
    """What a task would be made of now: each input by name, as a digest, and the one digest of all of them."""

    parts: dict[str, str]
    digest: str

    @property
    def comparable(self) -> str:
        """The digest of all; unknown if one of them is: then there is nothing to compare with later."""
        return UNKNOWN if UNKNOWN in self.parts.values() else self.digest


def digest_of_given(parts: Mapping[str, str]) -> str:
    """The one digest of all that a task is given; "" if something of it is unknown.

    Files from outside are not among that: a step that fails may itself have changed them. Nor is the source of a
    section, which is chosen when it is read.
    """
    given = {name: part for name, part in parts.items() if name != "reads" and not name.startswith("source ")}
    return "" if UNKNOWN in given.values() else digest_of_named("", given)


def digest_of(identity: str, parts: Iterable[tuple[str, str]]) -> str:
    """The one digest of all inputs of a step, or an items function, of that identity, in this order."""
    text = "".join([identity, *[f"\n{key}={part}" for key, part in parts]])
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_named(identity: str, parts: Mapping[str, str]) -> str:
    """The same, in the order of their names: whoever wrote them down in whatever order means the same."""
    form, pick = _form(identity, tuple(parts))
    return hashlib.sha256((form % pick(parts)).encode()).hexdigest()


@lru_cache(maxsize=4096)
def _form(identity: str, names: tuple[str, ...]) -> tuple[str, Callable[[Mapping[str, str]], Any]]:
    """What `digest_of` hashes, with a place for each part, and what picks them: all tasks of a step share it."""
    ordered = sorted(names)
    lines = [identity, *[f"{name}=" for name in ordered]]
    form = "\n".join([line.replace("%", "%%") + "%s" * (n > 0) for n, line in enumerate(lines)])
    return form, itemgetter(*ordered) if ordered else lambda parts: ()


def shorten(parts: Mapping[str, str]) -> dict[str, str]:
    """The parts as they are recorded; the version has a field of its own."""
    return {key: value[:SHORT] for key, value in parts.items() if key != "version"}


def changed_parts(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of the inputs that differ, in words."""
    short = shorten(now)
    names = [*short, *(name for name in before if name not in short)]
    return [name for name in names if before.get(name) != short.get(name)]


def differing(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The inputs that are known on both sides and are not the same. `then` may say "?xyz": unknown when it was
    recorded, but xyz by the seal."""
    short = shorten(now)
    return [
        name
        for name in {**short, **then}
        if UNKNOWN not in (short.get(name), then.get(name))
        and short.get(name, "") != then.get(name, "").removeprefix(UNKNOWN)
    ]
