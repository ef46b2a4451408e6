"""Compiles what was declared into what can be run: every name resolved, or every mistake told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.errors import DefinitionError
from holdfast.pipeline import deadlock, namespace, options, paths
from holdfast.pipeline.annotations import check_list, check_return, forms
from holdfast.pipeline.declared import (
    Declaration,
    DeclaredItems,
    DeclaredMigration,
    DeclaredStep,
    Mistakes,
    Subject,
    function_name,
    is_async,
)
from holdfast.pipeline.names import (
    ID_BYTES_MAX,
    as_given,
    check_title,
    did_you_mean,
    is_slip,
    normalise_items,
    printable,
)
from holdfast.pipeline.namespace import Namespace, Scope, gather_names, is_in
from holdfast.pipeline.nodes import step_of
from holdfast.pipeline.params import ParamSet
from holdfast.pipeline.spec import GateSpec, ItemsSpec, LimitSpec, PhaseSpec, PipelineSpec, Source, StepSpec

Checks = tuple["Check", ...]
Exceptions = tuple[type[BaseException], ...]


class Check(msgspec.Struct, frozen=True):
    """A function that accepts or refuses, and where its parameters come from."""

    fn: Callable[..., Any]
    name: str
    sources: dict[str, Source]


class CompiledPipeline(msgspec.Struct, frozen=True):
    """A pipeline without mistakes: the plain data, and the functions behind it by name."""

    spec: PipelineSpec
    functions: dict[str, Callable[..., Any]]  # steps and items functions
    checks: dict[str, tuple[Check, ...]]  # by step; only steps that have some
    checklists: dict[str, tuple[Check, ...]]  # by phase; only phases that have one
    migrations: dict[str, dict[int, Callable[..., Any]]]  # step -> from-version -> function
    retry_on: dict[str, tuple[type[BaseException], ...]]  # by step; only where given
    no_retry_on: dict[str, tuple[type[BaseException], ...]]
    params: ParamSet
    file: str | None = None
    variable: str | None = None


def compile_pipeline(declared: Declaration) -> CompiledPipeline:
    """The pipeline checked and resolved; DefinitionError lists every mistake in the order of the source."""
    mistakes = Mistakes()
    compiled = _Compiling(declared, mistakes).result()
    lines = mistakes.lines()
    if lines:
        raise DefinitionError(lines)
    return compiled


class _Step(msgspec.Struct, frozen=True):
    """One step with all that was found out about it."""

    spec: StepSpec
    scope: Scope
    told: Subject
    checks: Checks
    retry_on: Exceptions
    no_retry_on: Exceptions
    has_paths: bool  # sound ones, which can be compared with those of other steps


class _Compiling:
    """One compilation. Each method settles one part; later ones rely on what earlier ones made sound.

    A declaration whose own name is a mistake is checked like any other, so that no mistake hides another;
    only those in the tables of names become part of the pipeline.
    """

    def __init__(self, declared: Declaration, mistakes: Mistakes) -> None:
        self.declared = declared
        self.mistakes = mistakes
        self.pipeline = mistakes.about(declared.where, f"pipeline {printable(declared.name)}")
        self.names: Namespace = gather_names(declared, mistakes)

    def result(self) -> CompiledPipeline:
        self._check_pipeline()
        limits = options.limit_specs(self.declared.limits, self.pipeline)
        checklists = self._checklists()
        phases = self._phases(checklists)
        steps = self._steps(limits, phases)
        spec = PipelineSpec(
            name=str(self.declared.name),
            params=self.names.params.names,
            overwrite=self.declared.overwrite is True,
            limits=limits,
            steps=tuple(step.spec for step in steps.values()),
            items=self._items(),
            phases=phases,
            gates=self._gates(phases),
        )
        self._check_order(spec, steps, checklists)
        self._check_files(spec, steps)
        return CompiledPipeline(
            spec=spec,
            functions=self._functions(),
            checks={name: step.checks for name, step in steps.items() if step.checks},
            checklists=checklists,
            migrations=self._migrations(steps),
            retry_on={name: step.retry_on for name, step in steps.items() if step.retry_on},
            no_retry_on={name: step.no_retry_on for name, step in steps.items() if step.no_retry_on},
            params=self.names.params,
            file=self._file(),
        )

    def _functions(self) -> dict[str, Callable[..., Any]]:
        functions = {name: step.fn for name, step in self.names.steps.items()}
        return functions | {name: items.fn for name, items in self.names.makers.items() if items.fn is not None}

    def _check_pipeline(self) -> None:
        problem = check_title(self.declared.name)
        if problem:
            self.pipeline.wrong(f"the name {problem}.")
        if not isinstance(self.declared.overwrite, bool):
            self.pipeline.wrong("overwrite= must be True or False.")
        if not self.declared.steps:
            self.pipeline.wrong("has no steps. Declare one with @pipe.step.")

    def _steps(self, limits: dict[str, LimitSpec], phases: tuple[PhaseSpec, ...]) -> dict[str, _Step]:
        phase_names = [phase.name for phase in phases]
        found = [(given, self._step(given, limits, phase_names)) for given in self.declared.steps]
        return {given.name: step for given, step in found if is_in(self.names.steps, given.name, given)}

    def _step(self, step: DeclaredStep, limits: dict[str, LimitSpec], phases: list[str]) -> _Step:
        if not is_in(self.names.steps, step.name, step):
            step = replace(step, name=printable(step.name))
        told = self.mistakes.about(step.where, f"step {step.name}")
        scope = Scope.of(self.names, step.each, has_source=bool(step.appends and step.sources))
        spec = options.step_options(step, self.names, limits, phases, told)
        namespace.require_value(step.fn, told)
        check_return(spec, step.fn, told)
        sources = namespace.sources_of(step.fn, scope, told)
        if Source("source", "source") in sources.values() and self._is_taken("source"):
            told.wrong("parameter source is ambiguous: something else is called source too. Rename that.")
        if spec.executor == "process" and spec.is_async:
            told.wrong('is async, which executor="process" cannot run. Make it a plain function, or use a thread.')
        return _Step(
            spec=replace(spec, sources=sources, forms=forms(spec, step.fn)),
            scope=scope,
            told=told,
            checks=_checks(step, scope, told),
            retry_on=options.exception_classes("retry_on", step.retry_on, told),
            no_retry_on=options.exception_classes("no_retry_on", step.no_retry_on, told),
            has_paths=paths.check_paths(spec, scope, told) and scope.each_known,
        )

    def _is_taken(self, name: str) -> bool:
        return name in self.names.steps or name in self.names.makers or name in self.names.params.names

    def _items(self) -> tuple[ItemsSpec, ...]:
        found = [(given, self._fan(given)) for given in self.declared.items]
        return tuple(fan for given, fan in found if is_in(self.names.fans, given.var, given))

    def _fan(self, items: DeclaredItems) -> ItemsSpec:
        var = printable(items.var, ID_BYTES_MAX)
        name = items.name if items.fn is not None else var
        told = self.mistakes.about(items.where, f"items {printable(name, ID_BYTES_MAX)}")
        scope = Scope.of(self.names, items.each)
        each = items.each if scope.each_known else None
        if items.fn is None:
            return ItemsSpec(var=var, name=items.name, each=each, given=_given_items(items.given, told))
        namespace.require_value(items.fn, told)
        check_list(items.fn, told)
        sources = namespace.sources_of(items.fn, scope, told)
        if not is_in(self.names.makers, items.name, items):
            # Its name is a mistake told already; without items it is out of the way of the other checks.
            return ItemsSpec(var=var, name=f"items:{var}", each=each, given=())
        return ItemsSpec(var=var, name=items.name, each=each, sources=sources, is_async=is_async(items.fn))

    def _phases(self, checklists: dict[str, Checks]) -> tuple[PhaseSpec, ...]:
        """All phases in the order of first mention; one that is all but called like a declared one is a slip."""
        declared = [phase.name for phase in self.declared.phases if check_title(phase.name) is None]
        mentioned = [name for name in self.declared.phase_mentions if check_title(name) is None]
        names = dict.fromkeys(name for name in mentioned if name in declared or not is_slip(name, declared))
        return tuple(
            PhaseSpec(
                name,
                tuple(check.name for check in checklists.get(name, ())),
                tuple(check.sources for check in checklists.get(name, ())),
            )
            for name in names
        )

    def _checklists(self) -> dict[str, Checks]:
        found: dict[str, Checks] = {}
        seen: set[Any] = set()
        for phase in self.declared.phases:
            told = self.mistakes.about(phase.where, f"phase {printable(phase.name)}")
            problem = check_title(phase.name)
            if problem:
                told.wrong(f"the name {problem}.")
                continue
            if phase.name in seen:
                told.wrong("is declared twice. Put both checklists into one declaration.")
            seen.add(phase.name)
            entries = options.functions("checklist", phase.checklist, told)
            if entries:
                found[phase.name] = tuple(self._checklist_entry(fn, told) for fn in entries)
        return found

    def _checklist_entry(self, fn: Callable[..., Any], told: Subject) -> Check:
        name = function_name(fn)
        scope = Scope(self.names, ())
        return Check(fn, name, namespace.checklist_sources(fn, scope, told.part(f"checklist {name}")))

    def _gates(self, phases: tuple[PhaseSpec, ...]) -> tuple[GateSpec, ...]:
        phase_names = self._gate_phases(phases)
        found = []
        for gate in self.declared.gates:
            told = self.mistakes.about(gate.where, f"gate {printable(gate.name, ID_BYTES_MAX)}")
            spec = options.gate_options(gate, self.names, phase_names, told)
            if is_in(self.names.gates, gate.name, gate):
                found.append(spec)
        return tuple(found)

    def _gate_phases(self, phases: tuple[PhaseSpec, ...]) -> list[str]:
        """The phases that a gate may come after; one that only gates mention would be over before it began."""
        mentions = [
            *(phase.name for phase in self.declared.phases),
            *(step.phase for step in self.names.steps.values()),
        ]
        meant = {name for name in mentions if isinstance(name, str)}
        return [phase.name for phase in phases if phase.name in meant]

    def _check_order(self, spec: PipelineSpec, steps: dict[str, _Step], checklists: dict[str, Checks]) -> None:
        edges = deadlock.waits_of(spec)
        for step in steps.values():
            self._check_checks(step, edges)
        told = {name: step.told for name, step in steps.items()}
        told |= {
            name: self.mistakes.about(items.where, f"items {name}") for name, items in self.names.makers.items()
        }
        for consumer, memory, between in deadlock.never_there(spec, edges):
            told[consumer].wrong(
                f"takes the sections of {memory}, which wait for {between}, and that waits for all of {consumer}."
                f" Put {memory} into the same phase as {consumer}, and let nothing between them gather all items."
            )
        for subject, phase, check in self._checklist_entries(checklists):
            for name in deadlock.not_before(phase, check.sources, spec):
                subject.wrong(f"takes {name}, which cannot be there yet: it is asked before the phase starts.")
        for name, feeder in deadlock.held_up_items(spec, edges):
            told[name].wrong(
                f"takes, by way of {feeder}, all items of its own phase, but their order makes items wait for"
                f" each other. Put {feeder} and what comes after it into a later phase."
            )
        deadlock.check_loops(edges, self.names, self.mistakes)
        if not self.mistakes.lines():  # else there may be no graph to speak of
            self._check_gates(spec, edges)

    def _check_checks(self, step: _Step, edges: deadlock.Edges) -> None:
        """A check may take only what is there when its step ends."""
        for check in step.checks:
            told = step.told.part(f"check {check.name}")
            for name in deadlock.not_upstream(step.spec.name, check.sources, edges):
                told.wrong(f"takes {name}, which need not be there yet. Add after='{name}' to the step.")
            for name in deadlock.not_taken(check.sources, step.spec.sources):
                told.wrong(
                    f"takes the sections of {name}, which need not be there yet. Let the step take them too."
                )

    def _check_gates(self, spec: PipelineSpec, edges: deadlock.Edges) -> None:
        """Gates that wait, by way of what others hold, for what they hold themselves."""
        deadlock.check_loops(deadlock.with_gates(edges, spec), self.names, self.mistakes, fix=deadlock.GATE_FIX)
        if self.mistakes.lines():
            return
        loop = deadlock.standstill_of(spec)
        if loop:
            gates = [self.names.gates.get(step_of(name)) for name in loop]
            where = next((gate.where for gate in gates if gate is not None), self.declared.where)
            self.mistakes.add(where, f"these wait for each other: {' -> '.join(loop)}. {deadlock.GATE_FIX}")

    def _check_files(self, spec: PipelineSpec, steps: dict[str, _Step]) -> None:
        comparable = [(step.spec, step.scope, step.told) for step in steps.values() if step.has_paths]
        given = {
            items.var: [item["id"] for item in items.given] for items in spec.items if items.given is not None
        }
        reads_any = any(step.reads for step in spec.steps)
        paths.check_collisions(comparable, given, deadlock.waits_of(spec) if reads_any else {})

    def _checklist_entries(self, checklists: dict[str, Checks]) -> Iterator[tuple[Subject, str, Check]]:
        for phase, entries in checklists.items():
            declared = next(each for each in self.declared.phases if each.name == phase)
            for check in entries:
                subject = f"phase {printable(phase)}, checklist {check.name}"
                yield self.mistakes.about(declared.where, subject), phase, check

    def _migrations(self, steps: dict[str, _Step]) -> dict[str, dict[int, Callable[..., Any]]]:
        found: dict[str, dict[int, Callable[..., Any]]] = {}
        for migration in self.declared.migrations:
            told = self.mistakes.about(migration.where, f"migration {function_name(migration.fn)}")
            namespace.require_one_parameter(migration.fn, told)
            if _migration_fits(migration, steps, told):
                chain = found.setdefault(migration.step, {})
                if migration.from_version in chain:
                    told.wrong(f"there is another one of {migration.step} from version {migration.from_version}.")
                chain[migration.from_version] = migration.fn
        for step, chain in found.items():
            missing = [n for n in range(min(chain), steps[step].spec.version) if n not in chain]
            if missing:
                gap = ", ".join(map(str, missing))
                steps[step].told.wrong(f"its migrations stop short: none from version {gap}. Declare them too.")
        return found

    def _file(self) -> str | None:
        """The file of the first declared function."""
        places = [step.where for step in self.declared.steps]
        places += [items.where for items in self.declared.items if items.fn is not None]
        return places[0].file if places else None


def _checks(step: DeclaredStep, scope: Scope, told: Subject) -> Checks:
    found = []
    for fn in options.functions("check", step.check, told):
        name = function_name(fn)
        sources = namespace.check_sources(fn, step.name, scope, told.part(f"check {name}"))
        found.append(Check(fn, name, sources))
    return tuple(found)


def _given_items(raw: object, told: Subject) -> tuple[dict[str, Any], ...]:
    """The items of a given list; none if there are mistakes in it."""
    try:
        return tuple(normalise_items(raw, told.name))
    except DefinitionError as error:
        for line in error.mistakes:
            told.mistakes.add(told.where, line)
        return ()


def _migration_fits(migration: DeclaredMigration, steps: dict[str, _Step], told: Subject) -> bool:
    step, version = migration.step, migration.from_version
    if not isinstance(step, str) or step not in steps:
        told.wrong(f"'{printable(step)}' names no step.{did_you_mean(step, steps)}")
        return False
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        told.wrong(f"the version {as_given(version)} must be a whole number from 1.")
        return False
    if steps[step].spec.appends is not None:
        told.wrong(f"{step} appends to a memory file: a raised version makes its sections anew. Leave this out.")
        return False
    if version >= steps[step].spec.version:
        told.wrong(
            f"leads from version {version} of {step} to {version + 1}, but the step is at"
            f" version {steps[step].spec.version}. Give the step version={version + 1}."
        )
        return False
    return True
