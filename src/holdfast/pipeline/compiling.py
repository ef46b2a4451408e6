"""From what was declared to what can be run: every name resolved, or every mistake told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from holdfast.errors import DefinitionError
from holdfast.pipeline import agreement, memories, options, ordering, outputs, resolve
from holdfast.pipeline.agreement import Consumer
from holdfast.pipeline.declared import Declaration, DeclaredMigration, Mistakes, Subject, function_name, is_async
from holdfast.pipeline.nameless import Known, check_nameless, given_items
from holdfast.pipeline.names import as_given, check_title, did_you_mean, is_slip, printable
from holdfast.pipeline.namespace import Namespace, gather_names
from holdfast.pipeline.nodes import step_of
from holdfast.pipeline.params import ParamSet
from holdfast.pipeline.resolve import Scope
from holdfast.pipeline.spec import GateSpec, ItemsSpec, LimitSpec, PhaseSpec, PipelineSpec, Source, StepSpec
from holdfast.pipeline.standstill import standstill_of


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


class _Compiling:
    """One compilation. Each method settles one part; later ones rely on what earlier ones made sound."""

    def __init__(self, declared: Declaration, mistakes: Mistakes) -> None:
        self.declared = declared
        self.mistakes = mistakes
        self.pipeline = mistakes.about(declared.where, f"pipeline {printable(declared.name)}")
        self.names: Namespace = gather_names(declared, mistakes)
        self.told: dict[str, Subject] = self._subjects()
        self.functions = {name: step.fn for name, step in self.names.steps.items()}
        self.functions |= {name: items.fn for name, items in self.names.makers.items() if items.fn is not None}

    def result(self) -> CompiledPipeline:
        self._check_pipeline()
        limits = options.limit_specs(self.declared.limits, self.pipeline)
        checklists = self._checklists()
        phases = self._phases(checklists)
        self._check_nameless(limits, phases)
        spec = PipelineSpec(
            name=str(self.declared.name),
            params=self.names.params.names,
            overwrite=self.declared.overwrite is True,
            limits=limits,
            steps=self._steps(limits, phases),
            items=self._items(),
            phases=phases,
            gates=self._gates(phases),
        )
        checks = self._checks()
        self._check_order(spec, checks, checklists)
        self._check_files(spec)
        self._check_types(spec, checks, checklists)
        return CompiledPipeline(
            spec=spec,
            functions=self.functions,
            checks=checks,
            checklists=checklists,
            migrations=self._migrations(spec),
            retry_on=self._exceptions("retry_on"),
            no_retry_on=self._exceptions("no_retry_on"),
            params=self.names.params,
            file=self._file(),
        )

    def _subjects(self) -> dict[str, Subject]:
        steps = {n: self.mistakes.about(s.where, f"step {n}") for n, s in self.names.steps.items()}
        makers = {n: self.mistakes.about(i.where, f"items {n}") for n, i in self.names.makers.items()}
        return makers | steps

    def _check_pipeline(self) -> None:
        problem = check_title(self.declared.name)
        if problem:
            self.pipeline.wrong(f"the name {problem}.")
        if not isinstance(self.declared.overwrite, bool):
            self.pipeline.wrong("overwrite= must be True or False.")
        if not self.declared.steps:
            self.pipeline.wrong("has no steps. Declare one with @pipe.step.")

    def _steps(self, limits: dict[str, LimitSpec], phases: tuple[PhaseSpec, ...]) -> tuple[StepSpec, ...]:
        phase_names = [phase.name for phase in phases]
        return tuple(self._step(name, limits, phase_names) for name in self.names.steps)

    def _step(self, name: str, limits: dict[str, LimitSpec], phases: list[str]) -> StepSpec:
        step, told = self.names.steps[name], self.told[name]
        spec = options.step_options(step, self.names, limits, phases, told)
        resolve.require_value(step.fn, told)
        sources = resolve.sources_of(step.fn, self._scope(name), told)
        if Source("source", "source") in sources.values() and self._is_taken("source"):
            told.wrong("parameter source is ambiguous: something else is called source too. Rename that.")
        if spec.executor == "process" and spec.is_async:
            told.wrong('is async, which executor="process" cannot run. Make it a plain function, or use a thread.')
        return msgspec.structs.replace(spec, sources=sources, forms=agreement.forms(spec, step.fn))

    def _is_taken(self, name: str) -> bool:
        return name in self.names.steps or name in self.names.makers or name in self.names.params.names

    def _items(self) -> tuple[ItemsSpec, ...]:
        return tuple(self._fan(var) for var in self.names.fans)

    def _fan(self, var: str) -> ItemsSpec:
        items = self.names.fans[var]
        each = items.each if self.names.each_known(items.each) else None
        told = self.mistakes.about(items.where, f"items {items.name if items.fn else var}")
        if items.fn is None:
            return ItemsSpec(var=var, name=items.name, each=each, given=given_items(items.given, told))
        if self.names.makers.get(items.name) is not items:
            # Its name is a mistake told already; without items it is out of the way of the other checks.
            return ItemsSpec(var=var, name=f"items:{var}", each=each, given=())
        resolve.require_value(items.fn, told)
        sources = resolve.sources_of(items.fn, Scope.of(self.names, items.each), told)
        return ItemsSpec(var=var, name=items.name, each=each, sources=sources, is_async=is_async(items.fn))

    def _phases(self, checklists: dict[str, tuple[Check, ...]]) -> tuple[PhaseSpec, ...]:
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

    def _checklists(self) -> dict[str, tuple[Check, ...]]:
        found: dict[str, tuple[Check, ...]] = {}
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
        return Check(fn, name, resolve.checklist_sources(fn, scope, told.part(f"checklist {name}")))

    def _gates(self, phases: tuple[PhaseSpec, ...]) -> tuple[GateSpec, ...]:
        phase_names = self._gate_phases(phases)
        return tuple(
            options.gate_options(gate, self.names, phase_names, self.mistakes.about(gate.where, f"gate {name}"))
            for name, gate in self.names.gates.items()
        )

    def _gate_phases(self, phases: tuple[PhaseSpec, ...]) -> list[str]:
        """Those that a gate may come after: one that nothing else mentions would be over before it began."""
        mentions = [
            *(phase.name for phase in self.declared.phases),
            *(step.phase for step in self.names.steps.values()),
        ]
        meant = {name for name in mentions if isinstance(name, str)}
        return [phase.name for phase in phases if phase.name in meant]

    def _check_nameless(self, limits: dict[str, LimitSpec], phases: tuple[PhaseSpec, ...]) -> None:
        known = Known(self.names, limits, [phase.name for phase in phases], self._gate_phases(phases))
        check_nameless(self.declared, known, self.mistakes)

    def _checks(self) -> dict[str, tuple[Check, ...]]:
        found: dict[str, tuple[Check, ...]] = {}
        for name, step in self.names.steps.items():
            entries = options.functions("check", step.check, self.told[name])
            if entries:
                found[name] = tuple(self._check(name, fn) for fn in entries)
        return found

    def _check(self, step: str, fn: Callable[..., Any]) -> Check:
        name = function_name(fn)
        told = self.told[step].part(f"check {name}")
        return Check(fn, name, resolve.check_sources(fn, step, self._scope(step), told))

    def _scope(self, step: str) -> Scope:
        declared = self.names.steps[step]
        return Scope.of(self.names, declared.each, has_source=bool(declared.appends and declared.sources))

    def _check_order(
        self,
        spec: PipelineSpec,
        checks: dict[str, tuple[Check, ...]],
        checklists: dict[str, tuple[Check, ...]],
    ) -> None:
        edges = ordering.waits_of(spec)
        taken = {step.name: step.sources for step in spec.steps}
        for step, entries in checks.items():
            for check in entries:
                for name in ordering.not_upstream(step, check.sources, edges):
                    self.told[step].part(f"check {check.name}").wrong(
                        f"takes {name}, which need not be there yet. Add after='{name}' to the step."
                    )
                for name in ordering.not_taken(check.sources, taken[step]):
                    self.told[step].part(f"check {check.name}").wrong(
                        f"takes the sections of {name}, which need not be there yet. Let the step take them too."
                    )
        for consumer, memory, between in memories.never_there(spec, edges):
            self.told[consumer].wrong(
                f"takes the sections of {memory}, which wait for {between}, and that waits for all of {consumer}."
                f" Put {memory} into the same phase as {consumer}, and let nothing between them gather all items."
            )
        for told, phase, check in self._checklist_entries(checklists):
            for name in ordering.not_before(phase, check.sources, spec):
                told.wrong(f"takes {name}, which cannot be there yet: it is asked before the phase starts.")
        for step, feeder in ordering.held_up_items(spec, edges):
            self.told[step].wrong(
                f"takes, by way of {feeder}, all items of its own phase, but their order makes items wait for"
                f" each other. Put {feeder} and what comes after it into a later phase."
            )
        ordering.check_loops(edges, self.names, self.mistakes)
        if not self.mistakes.lines():  # else there may be no graph to speak of
            self._check_gates(spec, edges)

    def _check_gates(self, spec: PipelineSpec, edges: ordering.Edges) -> None:
        """Gates that wait, by way of what others hold, for what they hold themselves."""
        ordering.check_loops(ordering.with_gates(edges, spec), self.names, self.mistakes, fix=ordering.GATE_FIX)
        if self.mistakes.lines():
            return
        loop = standstill_of(spec)
        if loop:
            gates = [self.names.gates.get(step_of(name)) for name in loop]
            where = next((gate.where for gate in gates if gate is not None), self.declared.where)
            self.mistakes.add(where, f"these wait for each other: {' -> '.join(loop)}. {ordering.GATE_FIX}")

    def _check_files(self, spec: PipelineSpec) -> None:
        comparable = []
        for step in spec.steps:
            scope = self._scope(step.name)
            if outputs.check_paths(step, scope, self.told[step.name]) and scope.each_known:
                comparable.append((step, scope, self.told[step.name]))
        given = {
            items.var: [item["id"] for item in items.given] for items in spec.items if items.given is not None
        }
        reads_any = any(step.reads for step in spec.steps)
        outputs.check_collisions(comparable, given, ordering.waits_of(spec) if reads_any else {})

    def _check_types(
        self,
        spec: PipelineSpec,
        checks: dict[str, tuple[Check, ...]],
        checklists: dict[str, tuple[Check, ...]],
    ) -> None:
        agreement.check_returns(spec, self.functions, self.told)
        producers = {producer.name: producer for producer in spec.producers}
        for consumer in self._consumers(spec, checks, checklists):
            agreement.check_inputs(consumer, spec, producers, self.functions)

    def _consumers(
        self,
        spec: PipelineSpec,
        checks: dict[str, tuple[Check, ...]],
        checklists: dict[str, tuple[Check, ...]],
    ) -> Iterator[Consumer]:
        for step in spec.steps:
            if self._scope(step.name).each_known:
                told = self.told[step.name]
                yield Consumer(self.functions[step.name], step.sources, step.each, told)
                for check in checks.get(step.name, ()):
                    yield Consumer(check.fn, check.sources, step.each, told.part(f"check {check.name}"))
        for items in spec.items:
            if items.given is None and self.names.each_known(self.names.fans[items.var].each):
                yield Consumer(self.functions[items.name], items.sources, items.each, self.told[items.name])
        for told, _, check in self._checklist_entries(checklists):
            yield Consumer(check.fn, check.sources, None, told)

    def _checklist_entries(self, checklists: dict[str, tuple[Check, ...]]) -> Iterator[tuple[Subject, str, Check]]:
        for phase, entries in checklists.items():
            declared = next(each for each in self.declared.phases if each.name == phase)
            for check in entries:
                subject = f"phase {printable(phase)}, checklist {check.name}"
                yield self.mistakes.about(declared.where, subject), phase, check

    def _migrations(self, spec: PipelineSpec) -> dict[str, dict[int, Callable[..., Any]]]:
        steps = {step.name: step for step in spec.steps}
        found: dict[str, dict[int, Callable[..., Any]]] = {}
        for migration in self.declared.migrations:
            told = self.mistakes.about(migration.where, f"migration {function_name(migration.fn)}")
            resolve.require_one_parameter(migration.fn, told)
            if _migration_fits(migration, steps, told):
                chain = found.setdefault(migration.step, {})
                if migration.from_version in chain:
                    told.wrong(f"there is another one of {migration.step} from version {migration.from_version}.")
                chain[migration.from_version] = migration.fn
        for step, chain in found.items():
            missing = [n for n in range(min(chain), steps[step].version) if n not in chain]
            if missing:
                gap = ", ".join(map(str, missing))
                self.told[step].wrong(f"its migrations stop short: none from version {gap}. Declare them too.")
        return found

    def _exceptions(self, option: str) -> dict[str, tuple[type[BaseException], ...]]:
        found = {
            name: options.exception_classes(option, getattr(step, option), self.told[name])
            for name, step in self.names.steps.items()
        }
        return {name: classes for name, classes in found.items() if classes}

    def _file(self) -> str | None:
        """The file of the first declared function."""
        places = [step.where for step in self.declared.steps]
        places += [items.where for items in self.declared.items if items.fn is not None]
        return places[0].file if places else None


def _migration_fits(migration: DeclaredMigration, steps: dict[str, StepSpec], told: Subject) -> bool:
    step, version = migration.step, migration.from_version
    if not isinstance(step, str) or step not in steps:
        told.wrong(f"'{printable(step)}' names no step.{did_you_mean(step, steps)}")
        return False
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        told.wrong(f"the version {as_given(version)} must be a whole number from 1.")
        return False
    if steps[step].appends is not None:
        told.wrong(f"{step} appends to a memory file: a raised version makes its sections anew. Leave this out.")
        return False
    if version >= steps[step].version:
        told.wrong(
            f"leads from version {version} of {step} to {version + 1}, but the step is at"
            f" version {steps[step].version}. Give the step version={version + 1}."
        )
        return False
    return True
