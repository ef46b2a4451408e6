"""Rules for names, ids and lists of items: what may become part of a path, a task id or a line of text.

Each `check_...` function returns the problem as the end of a sentence ("has ..."), or None. Items are
checked here too because their rules are rules about ids, at load and again when a function has made them.
"""

from __future__ import annotations

import difflib
import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import DefinitionError, UsageError, ValueRefusedError
from holdfast.values import decode_json, encode_json
from holdfast.wording import some_of

ID_BYTES_MAX = 128

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))]
)
# Letters and marks that show nothing: with them two different ids would look the same.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_TASKS_SHOWN = 5
_SLIP_RATIO = 0.85  # `Writng` for `Writing` is one, `Drafting` for it is not
_RESERVED_NAMES = {"ctx": "the context", "run_id": "the template field of the run's id"}


def printable(text: object, limit: int = 60) -> str:
    """`text` on one line, shortened, with everything that could deceive a terminal or a reader escaped."""
    shown = text if isinstance(text, str) else words_of(text)
    short = shown[: limit + 1]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in short)
    return safe if len(shown) <= limit and len(safe) <= 6 * limit else safe[: limit - 1] + "…"


def as_given(value: object) -> str:
    """A value on one line, a text in quotes: "2 is no whole number" would puzzle a user who gave "2"."""
    return f"'{printable(value)}'" if isinstance(value, str) else printable(value)


def words_of(thing: object) -> str:
    """The repr of anything; a number of very many digits, or a user's own object, may fail at giving one."""
    try:
        return repr(thing)
    except Exception:
        return f"this {type(thing).__name__}"


def as_path(given: Any, argument: str) -> Path:
    """A path as given by a user; UsageError names the argument if it is none."""
    try:
        return Path(given)
    except TypeError:
        raise UsageError(f"{argument} must be a path, not {printable(given)}.") from None


def check_item_id(text: object) -> str | None:
    """The problem with `text` as the id of an item, or None."""
    if not isinstance(text, str):
        return f"is not text but {type(text).__name__}"
    if not text:
        return "is empty"
    if text[0] in ".-":
        return f"begins with '{text[0]}'"
    return _character_problem(text) or _whole_problem(text)


def check_run_id(text: object) -> str | None:
    """The problem with `text` as the id of a run, or None."""
    problem = check_item_id(text)
    if problem is None and not (isinstance(text, str) and _RUN_ID.fullmatch(text)):
        return "has characters other than A-Z a-z 0-9 . _ - (and begins with a letter or digit)"
    return problem


def check_name(text: object) -> str | None:
    """The problem with `text` as the name of a step, fan-out variable or parameter, or None."""
    if not isinstance(text, str):
        return f"is not text but {type(text).__name__}"
    if not text.isidentifier() or keyword.iskeyword(text):
        return "is not a Python name (letters, digits and _, no keyword)"
    if unicodedata.normalize("NFKC", text) != text:
        return "is not in Unicode normal form NFKC, which Python gives parameter names"
    if text in _RESERVED_NAMES:
        return f"is reserved for {_RESERVED_NAMES[text]}"
    return check_item_id(text)


def check_title(text: object) -> str | None:
    """The problem with `text` as a name that people read and type (a pipeline, a phase), or None."""
    if isinstance(text, str) and text.strip() and not text.isprintable():
        return "has characters that cannot be shown on one line"
    return check_heading(text)


def check_heading(text: object) -> str | None:
    """The problem with `text` as a step's title, or None; it is never typed, and escaped where it is shown."""
    if not isinstance(text, str):
        return f"is not text but {type(text).__name__}"
    if not text.strip() or text != text.strip():
        return "is empty, or begins or ends with a space"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "has half a character (a lone surrogate)"
    return "is longer than 128 bytes" if len(text.encode()) > ID_BYTES_MAX else None


def fold(text: str) -> str:
    """The form that two names share if a file system could take one for the other."""
    folded = text.casefold()
    return folded if folded.isascii() else unicodedata.normalize("NFC", folded)


def did_you_mean(text: object, known: Iterable[str]) -> str:
    """` Did you mean X?`, with its leading space, or nothing."""
    close = difflib.get_close_matches(text, list(known), n=1) if isinstance(text, str) else []
    return f" Did you mean {printable(close[0])}?" if close else ""


def which_task(text: str, tasks: Iterable[str]) -> str:
    """The tasks of the step that was named, if it is one of theirs; else what was probably meant, or nothing."""
    known = list(tasks)
    own = [task for task in known if task.startswith(text.partition("[")[0] + "[")]
    near = did_you_mean(text, known) if "[" in text else ""
    if not own or (near and len(own) > _TASKS_SHOWN):
        return near or did_you_mean(text, known)
    return f" There are: {some_of([*map(printable, own)], _TASKS_SHOWN)}."


def is_slip(text: str, known: Iterable[str]) -> bool:
    """Whether it is a known name but for about a letter, not for a number: `Part 1` and `Part 2` are two names."""
    near = difflib.get_close_matches(text, list(known), n=1, cutoff=_SLIP_RATIO)
    return any(re.sub(r"\d", "", name) != re.sub(r"\d", "", text) for name in near)


def normalise_items(raw: object, where: str) -> list[dict[str, Any]]:
    """Every item as a fresh dict with "id", in order; DefinitionError lists all problems, led by `where`."""
    if not isinstance(raw, list | tuple):
        raise DefinitionError(
            [f"{where}: the items are {_a_kind(raw)}; give a list of ids, or of dicts with an id."]
        )
    problems: list[str] = []
    items = [item for index, entry in enumerate(raw) if (item := _entry(index, entry, problems)) is not None]
    problems += _duplicates(items)
    problems += _order_problems(items)
    if problems:
        raise DefinitionError([f"{where}: {problem}" for problem in problems])
    return items


def _character_problem(text: str) -> str | None:
    if _PLAIN.fullmatch(text):  # as most ids are, of thousands of runs and items
        return None
    for index, char in enumerate(text):
        category = unicodedata.category(char)
        # Marks are how many scripts write their vowels; none can stand first.
        allowed = category[0] == "L" or category == "Nd" or char in "._-" or (index and category[0] == "M")
        if not allowed or _INVISIBLE.match(char):
            return f"has the character '{printable(char)}' (allowed: letters, digits and . _ -)"
    return None


def _whole_problem(text: str) -> str | None:
    if len(text.encode()) > ID_BYTES_MAX:
        return f"is longer than {ID_BYTES_MAX} bytes"
    if unicodedata.normalize("NFC", text) != text:
        return "is not in Unicode normal form NFC"
    if text.endswith("."):
        return "ends with a dot"
    if text.split(".", maxsplit=1)[0].casefold() in _DEVICES:
        return "is the name of a device on Windows"
    return None


def _entry(index: int, entry: object, problems: list[str]) -> dict[str, Any] | None:
    if isinstance(entry, str):
        entry = {"id": entry}
    if not isinstance(entry, Mapping):
        problems.append(f"item number {index + 1} is {_a_kind(entry)}; give an id, or a dict with an id.")
        return None
    if "id" not in entry:
        problems.append(f'item number {index + 1} has no "id".')
        return None
    problem = check_item_id(entry["id"])
    if problem:
        problems.append(f"the id '{printable(entry['id'])}' of item number {index + 1} {problem}.")
        return None
    return _fields(entry, problems)


def _fields(entry: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    try:
        item: dict[str, Any] = decode_json(encode_json(dict(entry), f"item {entry['id']}"))
    except ValueRefusedError as refused:
        problems.append(printable(str(refused), 300))
        return None
    after = item.get("after", [])
    if not isinstance(after, list) or not all(isinstance(name, str) for name in after):
        problems.append(f'"after" of item {item["id"]} must be a list of ids.')
        del item["after"]
    batch = item.get("batch", 1)
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        problems.append(f'"batch" of item {item["id"]} is {as_given(batch)}; give a whole number from 1.')
        item["batch"] = 1
    return item


def _duplicates(items: Iterable[dict[str, Any]]) -> list[str]:
    first: dict[str, str] = {}
    problems = []
    for item in items:
        earlier = first.setdefault(fold(item["id"]), item["id"])
        if earlier is not item["id"]:
            same = "is there twice" if earlier == item["id"] else f"differs from {earlier} only in case"
            problems.append(f"the id {item['id']} {same}; ids must be unique.")
    return problems


def _order_problems(items: list[dict[str, Any]]) -> list[str]:
    ids = {item["id"]: item for item in items}
    problems = []
    for item in items:
        for name in item.get("after", ()):
            if name not in ids:
                hint = did_you_mean(name, ids)
                problems.append(f"item {item['id']} comes after '{printable(name)}', which is no item.{hint}")
            elif ids[name].get("batch", 1) > item.get("batch", 1):
                problems.append(f"item {item['id']} comes after {name}, which is in a later batch.")
    loop = find_loop({item["id"]: item.get("after", ()) for item in items})
    if loop:
        problems.append(f'items wait for each other by "after": {" -> ".join(loop)}.')
    return problems + _batch_gaps(items)


def _batch_gaps(items: list[dict[str, Any]]) -> list[str]:
    without = [item["id"] for item in items if "batch" not in item]
    if not without or len(without) == len(items):
        return []
    names = printable(", ".join(without), 80)
    return [f'some items have "batch", these have not: {names}. Give it to all of them or to none.']


def _a_kind(value: object) -> str:
    return "nothing (None)" if value is None else f"of the type {type(value).__name__}"


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
