"""The overview of RESUME.md read back: with all state lost it says which file, run, parameters and budget. Pure.

A name that a code span would not show exactly stands there as JSON, as parameters always do: what comes back is
what was written, to the character, or nothing. It is text from a file that anybody can write: a claim, no proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.escaping import code_text, exact_json, markdown_code, terminal
from holdfast.layout import CHECKPOINT_VIEW
from holdfast.pipeline.names import check_run_id, printable
from holdfast.views.markdown import Heading, Item, blocks
from holdfast.views.stamp import read_stamp

OVERVIEW = "Overview"
KNOWN_ISSUES, DECISIONS = "Known issues", "Decisions"
CUT_SHORT = f"All of them are in `{CHECKPOINT_VIEW}`."
"""Stands below a list of unfinished tasks that does not name all of them."""
COMPLETE = "**This run is complete. Nothing is left to do.**"
PIPELINE, FILE, RUN, PARAMETER = "Pipeline: ", "Pipeline file: ", "Run: ", "Parameter "
BUDGET, TAG = "Budget in dollars: ", "Tag "


class Letter(msgspec.Struct, frozen=True):
    """What a RESUME.md says of the run it was written for; empty where it says nothing, or nothing certain."""

    run_id: str = ""
    pipeline: str = ""
    file: str = ""
    params: dict[str, Any] = {}
    tags: dict[str, Any] = {}
    budget_usd: float | None = None
    fits: bool = False  # it has its stamp, and nobody edited it
    problem: str = ""  # why something in it is not believed
    is_complete: bool = False  # by its own word
    has_words: bool = False  # issues, notes or decisions, which only the record could tell again


def exact(text: str) -> str:
    """`text` as code that `parse` reads back exactly: as JSON, if a code span would not show it as it is."""
    shows = text and terminal(text).strip() == text and not text.startswith('"') and "<!--" not in text
    return markdown_code(text if shows else exact_json(text))


def parse(text: str) -> Letter:
    """What a letter says of pipeline file, run and parameters: exactly as written, or nothing. Never raises."""
    mark = read_stamp(text)
    values: dict[str, str] = {}
    params: dict[str, Any] = {}
    tags: dict[str, Any] = {}
    problems: list[str] = []
    for line in _items_below(text, OVERVIEW):
        if line.startswith(PARAMETER):
            _take_pair(line.removeprefix(PARAMETER), params, problems)
        elif line.startswith(TAG):
            _take_pair(line.removeprefix(TAG), tags, [])  # one that cannot be read costs nothing else
        else:
            _take_value(line, values, problems)
    run_id = values.get(RUN, mark.run if mark else "")
    if run_id and (wrong := check_run_id(run_id)):
        problems.append(f"the run id '{printable(run_id)}' {wrong}")
        run_id = ""
    if mark and run_id and mark.run != run_id:
        problems.append(f"it names two runs, {printable(run_id)} and {printable(mark.run)}")
        run_id = ""
    return Letter(
        run_id,
        values.get(PIPELINE, ""),
        values.get(FILE, ""),
        params,
        tags,
        _budget(values.get(BUDGET, ""), problems),
        fits=mark is not None and mark.fits,
        problem="; ".join(problems),
        is_complete=COMPLETE in text.splitlines(),
        has_words=any(True for title in (KNOWN_ISSUES, DECISIONS) for _ in _items_below(text, title)),
    )


def _items_below(text: str, title: str) -> Iterator[str]:
    """The list items below the first heading of that title."""
    inside = False
    for block in blocks(text):
        if isinstance(block, Heading):
            if inside:
                return
            inside = block.text == title
        elif inside and isinstance(block, Item):
            yield block.text


def _take_value(line: str, values: dict[str, str], problems: list[str]) -> None:
    label = next((label for label in (PIPELINE, FILE, RUN, BUDGET) if line.startswith(label)), None)
    code = code_text(line.removeprefix(label)) if label else None
    if label is None or code is None:
        return
    text = code[0]
    if text.startswith('"'):
        text = _decoded(text, problems)
    if not isinstance(text, str) or values.setdefault(label, text) != text:
        problems.append(f"'{label.strip(': ')}' is there twice, or no text")
        values[label] = ""


def _budget(text: str, problems: list[str]) -> float | None:
    if not text:
        return None
    with suppress(ValueError):
        if math.isfinite(amount := float(text)) and amount >= 0:
            return amount
    problems.append(f"{printable(text)} is no amount of money")
    return None


def _take_pair(line: str, params: dict[str, Any], problems: list[str]) -> None:
    name = code_text(line)
    value = code_text(name[1].removeprefix(": ")) if name else None
    key = name and (_decoded(name[0], problems) if name[0].startswith('"') else name[0])
    if key is None or value is None or not isinstance(key, str) or key in params:
        problems.append(f"a parameter or tag cannot be read, or is there twice: {printable(line)}")
        return
    before = len(problems)
    decoded = _decoded(value[0], problems)
    if len(problems) == before:
        params[key] = decoded


def _decoded(text: str, problems: list[str]) -> Any:
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problems.append(f"{printable(text)} is no JSON: {printable(error)}")
        return None
