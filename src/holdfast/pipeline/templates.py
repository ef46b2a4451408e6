"""Templates of paths: `drafts/{chapter}-draft.md`, and which paths a pipeline may read and write."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from holdfast.errors import UsageError
from holdfast.layout import CHECKPOINT_VIEW, PART_SUFFIX, RESUME_VIEW, SEAL_SUFFIX, SETTINGS_FILE, STATE_DIR
from holdfast.pipeline.names import fold, printable

SEGMENT_BYTES_MAX = 224
"""File systems allow 255; the rest is room for `.part`, `.seal` and `.bak.TIMESTAMP`."""

_OWN_FILES = frozenset(fold(name) for name in (CHECKPOINT_VIEW, RESUME_VIEW, SETTINGS_FILE))
_HARMLESS = re.compile(r"(?:[A-Za-z0-9_]+(?:[.-]+[A-Za-z0-9_]+)*/)+[A-Za-z0-9_]+(?:[-.]+[A-Za-z0-9_]+)*")
_RESERVED = re.compile(r"\.\.|\.(?:seal|part|bak)", re.IGNORECASE)
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_FIELD_IN_ENDING = re.compile(r"\.[^/]*\{")
_GLOB = re.compile(r"[*?\[\]]")


@lru_cache(maxsize=4096)
def fields(template: str) -> tuple[str, ...]:
    """The names in `{...}`, in order, each once; ValueError says what is wrong with the template."""
    return tuple(dict.fromkeys(name for _, name in parse(template) if name is not None))


def as_fields(params: Mapping[str, Any]) -> dict[str, str]:
    """Parameters as templates take them."""
    return {name: str(value) for name, value in params.items()}


def render(template: str, values: Mapping[str, str]) -> str:
    """The template with every field replaced; KeyError for a field without value."""
    parse(template)  # then it has nothing but plain fields, and Python's own formatting does the same
    return template.format_map(values)


def render_path(template: str, values: Mapping[str, str]) -> str:
    """The rendered path; UsageError if a value would lead it elsewhere than the template shows."""
    names = _tame_fields(template)
    if names is None:
        return _checked_path(template, values)
    for name in names:
        if not is_plain(values[name]):
            return _checked_path(template, values)
    path = template.format_map(values)
    return path if len(path) <= SEGMENT_BYTES_MAX else _checked_path(template, values)


@lru_cache(maxsize=4096)
def around(template: str, name: str) -> tuple[str, str] | None:
    """The text before and behind the one field of a template that needs no other; None of any other template.

    With a plain word between them they are the path: see `render_path`.
    """
    if _tame_fields(template) != (name,):
        return None
    before, behind = render(template, {name: "\0"}).split("\0", 1) if template.count("{") == 1 else ("", "")
    return (before, behind) if before else None


def is_plain(word: str) -> bool:
    """Whether a value is harmless wherever it stands in a tame template."""
    return (word.isalnum() and word.isascii()) or _PLAIN.fullmatch(word) is not None


@lru_cache(maxsize=4096)
def _tame_fields(template: str) -> tuple[str, ...] | None:
    """The fields of a template that gives a harmless path whatever plain words they are; None of any other.

    One that names no folder could give the name of a file of Holdfast's own, and a field behind a dot an ending
    that is reserved.
    """
    names = fields(template)
    is_tame = "/" in template and _FIELD_IN_ENDING.search(template) is None
    return names if is_tame and check_path(render(template, dict.fromkeys(names, "x"))) is None else None


def _checked_path(template: str, values: Mapping[str, str]) -> str:
    for name in fields(template):
        value = values[name]
        if "/" in value or "\\" in value or ".." in value:
            raise UsageError(
                f"The value '{printable(value)}' of {name} cannot be part of the path {printable(template)}:"
                " it has a slash or '..'.",
                fix=f"Give {name} another value, or leave it out of the path.",
            )
    path = render(template, values)
    problem = check_path(path)
    if problem:
        raise UsageError(
            f"The path '{printable(path)}', made from {printable(template)}, {problem}.",
            fix="Change the template, or the values in it.",
        )
    return path


def check_path(path: object) -> str | None:
    """The problem with `path` as the place of an artifact, as the end of a sentence, or None."""
    if not isinstance(path, str):
        return f"is not text but {type(path).__name__}"
    if len(path) <= SEGMENT_BYTES_MAX and _HARMLESS.fullmatch(path) and not _RESERVED.search(path):
        return None  # the common case, told by one look: there may be very many files
    problem = _leaving(path) or _holdfasts_own(path)
    if problem is None and _GLOB.search(path):
        return "has one of * ? [ ], which would make it a pattern"
    return problem


def check_pattern(path: object) -> str | None:
    """The problem with `path` as something to read: it may be a glob, but must stay in the project."""
    return _leaving(path) if isinstance(path, str) else f"is not text but {type(path).__name__}"


@lru_cache(maxsize=4096)
def parse(template: str) -> tuple[tuple[str, str | None], ...]:
    """Pairs of literal text and the field that follows it; remembered, since every task asks."""
    parts: list[tuple[str, str | None]] = []
    for text, name, spec, conversion in string.Formatter().parse(template):
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise ValueError(f"has the field '{{{printable(name)}}}', which is not a plain {{name}}")
        parts.append((text, name))
    return tuple(parts)


def _leaving(path: str) -> str | None:
    if not path.isprintable():
        return "has a control or invisible character"
    if "\\" in path:
        return "has a backslash; separate folders with /"
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        return "is not relative to the project"
    return _segment_problem(path.split("/"))


def _segment_problem(segments: list[str]) -> str | None:
    if segments == [""]:
        return "is empty"
    if ".." in segments:
        return "leaves the project by '..'"
    if "" in segments or "." in segments:
        return "has an empty part, or one that is only a dot"
    if fold(segments[0]) == STATE_DIR:
        return f"lies in {STATE_DIR}, which is Holdfast's own"
    if any(len(segment.encode()) > SEGMENT_BYTES_MAX for segment in segments):
        return f"has a part longer than {SEGMENT_BYTES_MAX} bytes"
    return None


def _holdfasts_own(path: str) -> str | None:
    name = fold(path.rsplit("/", 1)[-1])
    if fold(path) in _OWN_FILES:
        return "is the name of a file that Holdfast itself writes or reads"
    if name.endswith((SEAL_SUFFIX, PART_SUFFIX)) or ".bak." in name:
        return f"looks like a file of Holdfast's own ({SEAL_SUFFIX}, {PART_SUFFIX} and .bak. are reserved)"
    return None
