"""Checks the files that steps write and read: all stay in the project, and no two tasks write one."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from holdfast.pipeline.declared import Subject
from holdfast.pipeline.names import did_you_mean, fold, printable, reachable
from holdfast.pipeline.namespace import Scope
from holdfast.pipeline.spec import StepSpec
from holdfast.pipeline.templates import check_path, check_pattern, fields, render

RENDERED_MAX = 100_000
"""Templates with more given items than this are compared as templates; the engine compares the paths."""

Given = Mapping[str, Sequence[str]]
"""The ids of the fan-outs whose items are given, by variable."""

Waits = Mapping[str, Collection[str]]
"""What each step waits for, by name."""


def check_paths(step: StepSpec, scope: Scope, told: Subject) -> bool:
    """Tell what is wrong with the step's own paths; False if they cannot be compared with others'."""
    sound = [_check_template("writes", template, scope, told) for template in step.files.values()]
    if step.appends is not None:
        sound.append(_check_template("appends", step.appends, scope, told) and _is_shared(step, scope, told))
    for template in step.files.values():
        _check_unique(template, scope, told)
    for pattern in step.reads:
        _check_template("reads", pattern, scope, told)
    return all(sound)


def check_collisions(steps: Sequence[tuple[StepSpec, Scope, Subject]], given: Given, waits: Waits) -> None:
    """Tell every path that two tasks would write, or that is a file for one and a folder for another.

    `waits`: what each step waits for, for those that read.
    """
    owners: dict[str, str] = {}
    for step, scope, told in steps:
        for key, template in _templates(step).items():
            owner = f"step {step.name}" + (f" (key {printable(key)})" if key else "")
            for path in _rendered(template, scope, given):
                other = owners.setdefault(fold(path), owner)
                if other is not owner:
                    told.wrong(f"writes '{printable(path)}', and so does {other}. Give each its own path.")
                    break
            repeated = _repeated(template, scope, given)
            if repeated:
                told.wrong(f"writes '{printable(repeated)}' for two items. Separate the fields of the path.")
    _check_folders(steps, given, owners)
    _check_reads(steps, given, owners, waits)


def _check_template(option: str, template: str, scope: Scope, told: Subject) -> bool:
    shown = f"{option}='{printable(template)}'"
    try:
        used = fields(template)
    except ValueError as error:
        told.wrong(f"{shown} {_plain(error)}. Write {{{{ and }}}} for braces that are text.")
        return False
    known = [*scope.path, *scope.names.params.names, "run_id"]
    unknown = [name for name in used if name not in known and (scope.each_known or name not in scope.names.fans)]
    for name in unknown:
        told.wrong(
            f"{shown} has the unknown field {{{printable(name)}}}.{did_you_mean(name, known)}"
            f" Known here: {', '.join(known)}."
        )
    # Any harmless text shows what the rest of the template makes of the path.
    sample = render(template, dict.fromkeys(used, "x"))
    problem = check_pattern(sample) if option == "reads" else check_path(sample)
    if problem:
        told.wrong(f"{shown} {problem}.")
    return not unknown and not problem


def _templates(step: StepSpec) -> dict[str, str]:
    """Every path the step writes to, by key; a memory file has none."""
    return step.files if step.appends is None else {"": step.appends}


def _is_shared(step: StepSpec, scope: Scope, told: Subject) -> bool:
    """A memory file is one for all items: its path may name only what is around them."""
    own = [var for var in fields(step.appends or "") if scope.path and var == scope.path[-1]]
    for var in own:
        told.wrong(
            f"appends='{printable(step.appends)}' is another file for every {var}. Take {{{var}}} out of it,"
            " or use writes=."
        )
    return not own


def _plain(error: ValueError) -> str:
    text = str(error)
    return text if text.startswith("has ") else f"is no template: {text}"


def _check_unique(template: str, scope: Scope, told: Subject) -> None:
    try:
        missing = [var for var in scope.path if var not in fields(template)]
    except ValueError:
        return
    if missing:
        lacking = " and ".join(f"{{{var}}}" for var in missing)
        told.wrong(f"writes='{printable(template)}' is the same for every item. Put {lacking} into it.")


def _rendered(template: str, scope: Scope, given: Given) -> Iterator[str]:
    """Every path that can be known now; what is not known yet stays as its field."""
    used = fields(template)
    known = [var for var in scope.path if var in given and var in used]
    if math.prod(len(given[var]) for var in known) > RENDERED_MAX:
        known = []
    unknown = {name: f"{{{name}}}" for name in used if name not in known}
    for ids in itertools.product(*(given[var] for var in known)):
        yield render(template, {**unknown, **dict(zip(known, ids, strict=True))})


def _repeated(template: str, scope: Scope, given: Given) -> str | None:
    """A path that two items of the same step would share (`{a}{b}` for a, bc and for ab, c)."""
    if any(var not in fields(template) for var in scope.path):
        return None  # told already, as a template that lacks a field
    seen: set[str] = set()
    for path in _rendered(template, scope, given):
        if fold(path) in seen:
            return path
        seen.add(fold(path))
    return None


def _check_folders(
    steps: Sequence[tuple[StepSpec, Scope, Subject]], given: Given, owners: Mapping[str, str]
) -> None:
    for step, scope, told in steps:
        for template in _templates(step).values():
            for path in _rendered(template, scope, given):
                folder = next((parent for parent in _parents(fold(path)) if parent in owners), None)
                if folder is not None:
                    told.wrong(
                        f"writes '{printable(path)}' into what {owners[folder]} writes as a file. Rename one."
                    )
                    break


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        yield path


def _check_reads(
    steps: Sequence[tuple[StepSpec, Scope, Subject]], given: Given, owners: Mapping[str, str], waits: Waits
) -> None:
    """A file that the pipeline makes is no input from outside: read so, it has no order and no proof."""
    for step, scope, told in steps:
        for pattern in step.reads:
            if glob.has_magic(pattern):
                before = reachable(step.name, waits)
                owner = _maker(pattern, [other for other in steps if other[0].name not in before], given)
            else:
                owner = next((owners[p] for p in _folded(pattern, scope, given) if p in owners), None)
            if owner is not None:
                told.wrong(
                    f"reads '{printable(pattern)}', which {owner} writes. Take that step as a parameter,"
                    " or read other files."
                )


def _maker(pattern: str, steps: Sequence[tuple[StepSpec, Scope, Subject]], given: Given) -> str | None:
    """The first of these steps that certainly writes what a glob means."""
    segments = fold(pattern).split("/")
    for step, scope, _ in steps:
        for template in _templates(step).values():
            # The template, too, field for field: not all items need be known.
            for path in itertools.chain([template], _rendered(template, scope, given)):
                if _is_meant(fold(path).split("/"), segments):
                    return f"step {step.name}"
    return None


def _folded(pattern: str, scope: Scope, given: Given) -> Iterator[str]:
    try:
        yield from (fold(path) for path in _rendered(pattern, scope, given))
    except ValueError:
        return


def _is_meant(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a glob means a path, both in parts; the same as `artifacts/outside.py` finds on the disk."""
    if not path or not pattern:
        return not path and not pattern
    is_hidden, part = path[0].startswith("."), pattern[0]
    if part == "**":
        return _is_meant(path, pattern[1:] or ["*"]) or (not is_hidden and _is_meant(path[1:], pattern))
    is_named = fnmatch.fnmatchcase(path[0], part) and (not is_hidden or part.startswith("."))
    return is_named and _is_meant(path[1:], pattern[1:])
