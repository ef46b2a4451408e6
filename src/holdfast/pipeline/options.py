"""Checks the options of steps, gates, phases and limits.

A bad value is a mistake, and replaced by the default, so that the checks after this one see a whole pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from holdfast import seals
from holdfast.pipeline.declared import DeclaredGate, DeclaredStep, Subject, Unset, is_async, name_list
from holdfast.pipeline.names import as_given, check_heading, check_name, check_title, did_you_mean, fold, printable
from holdfast.pipeline.namespace import Namespace, unknown_each
from holdfast.pipeline.spec import GateSpec, LimitSpec, StepSpec

Rule = Callable[[str, Any, Subject], Any]
"""From an option's name and what was given to what is sound; mistakes go to the subject."""

SECONDS_MAX = 1e9
"""Thirty years; timers of the system overflow not far beyond."""

_MARKER = re.compile(r"[^\s<>]+")


def _writes(option: str, writes: object, told: Subject) -> str | dict[str, str] | None:
    if writes is None or isinstance(writes, str):
        return writes
    if not isinstance(writes, Mapping) or not writes:
        told.wrong(f'{option}= must be a path, or {{"key": path}} for several files.')
        return None
    for key, path in writes.items():
        if not isinstance(key, str) or not key or not isinstance(path, str):
            told.wrong(f'{option}= must hold a path for each key; look at "{printable(key)}".')
            return None
    return dict(writes)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(option: str, value: Any, told: Subject, *, least: int) -> int:
    if _is_whole(value) and value >= least:
        return int(value)
    told.wrong(f"{option}={as_given(value)} must be a whole number from {least}.")
    return least


def _seconds(option: str, value: Any, told: Subject, *, zero: bool) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and (0 < value <= SECONDS_MAX or (zero and value == 0)):
        return float(value)
    told.wrong(f"{option}={as_given(value)} must be seconds, {'0 or more' if zero else 'more than 0'}.")
    return 1.0


def _word(option: str, value: Any, told: Subject, *, words: tuple[str, ...]) -> str:
    if value in words:
        return str(value)
    told.wrong(f"{option}={as_given(value)} must be one of {', '.join(words)}.{did_you_mean(value, words)}")
    return words[0]


def _flag(option: str, value: object, told: Subject) -> bool:
    if isinstance(value, bool):
        return value
    told.wrong(f"{option}={as_given(value)} must be True or False.")
    return True


def _optional(rule: Rule) -> Rule:
    """The same rule, for an option that may also be None."""
    return lambda option, value, told: None if value is None else rule(option, value, told)


_RULES: dict[str, Rule] = {
    "reads": name_list,
    "writes": _writes,
    "retries": partial(_whole, least=0),
    "backoff": partial(_seconds, zero=True),
    "timeout": _optional(partial(_seconds, zero=False)),
    "on_partial": _optional(partial(_word, words=("redo", "continue", "ask"))),
    "on_failure": partial(_word, words=("review", "skip")),
    "version": partial(_whole, least=1),
    "executor": partial(_word, words=("thread", "process")),
    "copy": _flag,
}
"""The options of a step that can be judged by themselves; the others name something that the pipeline has."""


def step_options(
    step: DeclaredStep, names: Namespace, limits: Collection[str], phases: Collection[str], told: Subject
) -> StepSpec:
    """The step with every option sound; its sources are still to be found."""
    _refuse_unknown(step, told)
    found = {option: rule(option, getattr(step, option), told) for option, rule in _RULES.items()}
    appends, material, head = _memory(step, names, told)
    return StepSpec(
        name=step.name,
        title=_title(step, told),
        each=_each(step.each, names, told),
        appends=appends,
        material=material,
        head=head,
        marker=_marker(step, found["writes"] is not None or appends is not None, told),
        after=_after(step.after, names, told),
        phase=_phase(step.phase, phases, told),
        limit=_limit(step.limit, limits, told),
        was=_was(step, names, told),
        is_async=is_async(step.fn),
        **found,
    )


def gate_options(gate: DeclaredGate, names: Namespace, phases: Collection[str], told: Subject) -> GateSpec:
    """The gate with every option sound."""
    _refuse_unknown(gate, told)
    if not gate.after and gate.phase is None and gate.each is None:
        told.wrong("nothing says when it comes. Give it after=[...], phase=... or each=....")
    ask = gate.ask
    if not isinstance(ask, str) or not ask.replace("\n", "").isprintable():
        told.wrong("ask= must be text that can be shown.")
        ask = ""
    return GateSpec(
        name=gate.name,
        after=_after(gate.after, names, told),
        phase=_phase(gate.phase, phases, told, "has no step, and is not declared by pipe.phase"),
        each=_each(gate.each, names, told),
        blocking=_flag("blocking", gate.blocking, told),
        ask=ask,
    )


def _refuse_unknown(declared: DeclaredStep | DeclaredGate, told: Subject) -> None:
    """Tell options that there are not, each with the one that was probably meant."""
    known = set(declared.__struct_fields__) - {"fn", "where", "unknown"}
    for name in declared.unknown:
        told.wrong(f"there is no option {printable(name)}=.{did_you_mean(name, known)}")


def limit_specs(limits: object, told: Subject) -> dict[str, LimitSpec]:
    """The declared limits by name: a number, or {"concurrent": n, "per_minute": n}."""
    if limits is None:
        return {}
    if not isinstance(limits, Mapping):
        told.wrong('limits= must be a dict: {"name": 8} or {"name": {"concurrent": 8, "per_minute": 500}}.')
        return {}
    return {name: _limit_spec(name, value, told) for name, value in limits.items() if _limit_name(name, told)}


def exception_classes(option: str, value: object, told: Subject) -> tuple[type[BaseException], ...]:
    """One exception class, or several, as a tuple."""
    classes = value if isinstance(value, tuple | list) else (value,)
    for entry in classes:
        if not (isinstance(entry, type) and issubclass(entry, BaseException)):
            told.wrong(f"{option}= must be exception classes; {as_given(entry)} is none.")
            return ()
    return tuple(classes)


def functions(option: str, value: object, told: Subject) -> list[Callable[..., Any]]:
    """One function, or several, as a list."""
    entries = list(value) if isinstance(value, list | tuple) else [value]
    for entry in entries:
        if not callable(entry):
            told.wrong(f"{option}= must be a function or a list of them; {as_given(entry)} is none.")
    return [entry for entry in entries if callable(entry)]


def _title(step: DeclaredStep, told: Subject) -> str:
    if step.title is None:
        return str(step.name)
    problem = check_heading(step.title)
    if problem:
        told.wrong(f"title='{printable(step.title)}' {problem}.")
        return str(step.name)
    return str(step.title)


def _each(each: Any, names: Namespace, told: Subject) -> str | None:
    if each is None or (isinstance(each, str) and each in names.fans):
        return each
    told.mistakes.add(told.where, unknown_each(told.name, each, names))
    return None


def _marker(step: DeclaredStep, writes: bool, told: Subject) -> str | None:
    if step.marker is Unset.UNSET:
        return f"{step.name.upper()}_COMPLETE" if writes else None
    if step.marker is None:
        return None
    marker = step.marker
    # `<` and `>` are out altogether: with them one could open or close the comment that holds the marker.
    if not isinstance(marker, str) or not _MARKER.fullmatch(marker) or not marker.isprintable() or "--" in marker:
        told.wrong(f"marker='{printable(marker)}' must be one word, without '<', '>' and '--'.")
        return None
    if not writes:
        told.wrong("marker= is given, but nothing is written. Add writes=, or leave the marker out.")
        return None
    return marker


def _memory(step: DeclaredStep, names: Namespace, told: Subject) -> tuple[str | None, tuple[str, ...], str | None]:
    """The memory file, the steps that its sections are made from, and the one that opens it."""
    if step.appends is None:
        for option in ("sources", "head"):
            if getattr(step, option):
                told.wrong(f"{option}= goes with appends=, which names the memory file. Add it, or leave it out.")
        return None, (), None
    if not isinstance(step.appends, str):
        told.wrong(f"appends= must be a path, not {printable(step.appends)}.")
        return None, (), None
    _check_company(step, told)
    return step.appends, _material(step, names, told), _head(step, names, told)


def _check_company(step: DeclaredStep, told: Subject) -> None:
    """Check the options beside appends=."""
    if step.writes is not None:
        told.wrong("has writes= and appends=. A section is a step's only output: leave one of them out.")
    if step.each is None:
        told.wrong('appends= needs each=: a memory file has one section an item. Add each="...".')
    if not seals.is_inline(step.appends):
        shown, known = printable(step.appends), " ".join(seals.INLINE)
        told.wrong(f"appends='{shown}' must end in one of {known}: comments keep its sections apart.")
    if step.copy is False:
        told.wrong("copy=False does not go with appends=: until its batch is done, a section is only in objects/.")


def _material(step: DeclaredStep, names: Namespace, told: Subject) -> tuple[str, ...]:
    sound = []
    for name in name_list("sources", step.sources, told):
        other = names.steps.get(name)
        if other is None:
            told.wrong(f"sources='{printable(name)}' names no step.{did_you_mean(name, names.steps)}")
        elif name == step.name:
            told.wrong(f"sources='{name}' is the step itself.")
        elif other.each != step.each:
            told.wrong(f"sources='{name}' is not a step of the same items. Name steps with each='{step.each}'.")
        else:
            sound.append(name)
    return tuple(sound)


def _head(step: DeclaredStep, names: Namespace, told: Subject) -> str | None:
    head = step.head
    if head is None:
        return None
    other = names.steps.get(head) if isinstance(head, str) else None
    if other is None:
        told.wrong(f"head='{printable(head)}' names no step.{did_you_mean(head, names.steps)}")
        return None
    around = names.fan_path(step.each)[:-1]
    if other.each is not None and other.each not in around:
        told.wrong(f"head='{head}' runs once per {other.each}, but the file is opened once. Name a step outside.")
        return None
    if isinstance(other.writes, Mapping):
        told.wrong(f"head='{head}' gives several files, but a file is opened by one text.")
        return None
    return str(head)


def _after(after: object, names: Namespace, told: Subject) -> tuple[str, ...]:
    known = names.orderable()
    listed = name_list("after", after, told)
    for name in listed:
        if name not in known:
            told.wrong(
                f"after='{printable(name)}' names no step, items function or gate.{did_you_mean(name, known)}"
            )
    return tuple(name for name in listed if name in known)


def _phase(
    phase: Any, phases: Collection[str], told: Subject, otherwise: str = "is not declared by pipe.phase"
) -> str | None:
    if phase is None or (isinstance(phase, str) and phase in phases):
        return phase
    problem = check_title(phase)
    if problem:
        told.wrong(f"phase='{printable(phase)}' {problem}.")
    else:
        told.wrong(f"phase='{printable(phase)}' {otherwise}.{did_you_mean(phase, phases)}")
    return None


def _limit(limit: Any, limits: Collection[str], told: Subject) -> str | None:
    if limit is None or (isinstance(limit, str) and limit in limits):
        return limit
    told.wrong(f"limit='{printable(limit)}' is not in the pipeline's limits=.{did_you_mean(limit, limits)}")
    return None


def _limit_name(name: object, told: Subject) -> bool:
    problem = check_title(name)
    if problem:
        told.wrong(f"the limit '{printable(name)}' {problem}.")
    return problem is None


def _limit_spec(name: str, value: object, told: Subject) -> LimitSpec:
    fields: dict[Any, Any] = dict(value) if isinstance(value, Mapping) else {"concurrent": value}
    sound = set(fields) <= {"concurrent", "per_minute"} and any(n is not None for n in fields.values())
    if not sound or not all(n is None or (_is_whole(n) and n >= 1) for n in fields.values()):
        told.wrong(
            f"the limit {name} is {as_given(value)}; give a whole number from 1,"
            ' or {"concurrent": n, "per_minute": n}.'
        )
        return LimitSpec(1)
    return LimitSpec(**fields)


def _was(step: DeclaredStep, names: Namespace, told: Subject) -> tuple[str, ...]:
    was = name_list("was", step.was, told)
    if not was:
        return ()
    for name in was:
        problem = check_name(name)
        if problem:
            told.wrong(f"was='{printable(name)}' {problem}.")
        elif name == step.name or name in names.steps:
            told.wrong(f"was='{name}' is a step of this pipeline. Name only steps that are gone.")
    taken = {fold(old): other.name for other in names.steps.values() if other is not step for old in _old(other)}
    for name in was:
        if fold(name) in taken:
            told.wrong(f"was='{printable(name)}' is claimed by step {taken[fold(name)]} too.")
    return was


def _old(step: DeclaredStep) -> list[str]:
    was = [step.was] if isinstance(step.was, str) else step.was
    return [name for name in was if isinstance(name, str)] if isinstance(was, list | tuple) else []
