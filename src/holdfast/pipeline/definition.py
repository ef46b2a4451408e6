"""`Pipeline`, `step`, `items`, `phase`, `gate`, `migration`, as the user declares them.

Declaring only records. A mistake in one step says nothing about the others, so `compile()` tells all of
them together, when the file has been read to its end.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from holdfast.pipeline.declared import (
    Declaration,
    DeclaredGate,
    DeclaredItems,
    DeclaredMigration,
    DeclaredPhase,
    DeclaredStep,
    Unset,
    caller,
    function_name,
    where_of,
)

if TYPE_CHECKING:
    from holdfast.pipeline.compiling import CompiledPipeline
    from holdfast.project.run import RunResult

Function = TypeVar("Function", bound=Callable[..., Any])
Names = str | Sequence[str]
Exceptions = type[BaseException] | tuple[type[BaseException], ...]
Limit = int | Mapping[str, int]


class Pipeline:
    """A pipeline: a name, and the functions that were declared on it.

        pipe = Pipeline("book", params={"topic": str, "chapters": (int, 3)}, limits={"model": 8})

        @pipe.step(writes="outline.md")
        def outline(topic: str) -> str: ...

    `params`: `{name: callable}` or `{name: (callable, default)}`; the callable makes the value from text.
    `limits`: `{name: n}`, or `{name: {"concurrent": n, "per_minute": n}}`, for steps with `limit=name`.
    `overwrite`: a new run may take over the paths of a finished one.
    """

    def __init__(
        self,
        name: str,
        *,
        params: Mapping[str, Any] | None = None,
        limits: Mapping[str, Limit] | None = None,
        overwrite: bool = False,
    ) -> None:
        self._declared = Declaration(where=caller(), name=name, params=params, limits=limits, overwrite=overwrite)
        self._compiled: CompiledPipeline | None = None

    @property
    def name(self) -> str:
        """As it was given."""
        return str(self._declared.name)

    @property
    def made_in(self) -> str:
        """The file in which it was made."""
        return self._declared.where.file

    def __repr__(self) -> str:
        return f"<Pipeline {self.name}: {len(self._declared.steps)} steps>"

    @overload
    def step(self, fn: Function, /) -> Function: ...

    @overload
    def step(
        self,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        each: str | None = None,
        reads: Names = (),
        writes: str | Mapping[str, str] | None = None,
        appends: str | None = None,
        sources: Names = (),
        head: str | None = None,
        marker: str | Unset | None = Unset.UNSET,
        after: Names = (),
        phase: str | None = None,
        retries: int = 0,
        backoff: float = 1.0,
        timeout: float | None = None,
        retry_on: Exceptions = (),
        no_retry_on: Exceptions = (),
        limit: str | None = None,
        check: Callable[..., Any] | Sequence[Callable[..., Any]] = (),
        on_partial: Literal["redo", "continue", "ask"] | None = None,
        on_failure: Literal["review", "skip"] = "review",
        version: int = 1,
        executor: Literal["thread", "process"] = "thread",
        copy: bool = True,
        was: Names = (),
    ) -> Callable[[Function], Function]: ...

    def step(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        each: str | None = None,
        reads: Names = (),
        writes: str | Mapping[str, str] | None = None,
        appends: str | None = None,
        sources: Names = (),
        head: str | None = None,
        marker: str | Unset | None = Unset.UNSET,
        after: Names = (),
        phase: str | None = None,
        retries: int = 0,
        backoff: float = 1.0,
        timeout: float | None = None,
        retry_on: Exceptions = (),
        no_retry_on: Exceptions = (),
        limit: str | None = None,
        check: Callable[..., Any] | Sequence[Callable[..., Any]] = (),
        on_partial: str | None = None,
        on_failure: str = "review",
        version: int = 1,
        executor: str = "thread",
        copy: bool = True,
        was: Names = (),
        **unknown: Any,
    ) -> Any:
        """Declare a function as a step: bare, or with options. The function is returned unchanged.

        A parameter called like another step receives its output, one like an item variable the id, one like a run
        parameter its value, and `ctx` the Context. What the function returns, text, bytes or JSON, is the output.

        `name`, `title`: the function's own, unless given. `each`: once for each item of that variable.
        `writes`: the output's file, as in "drafts/{chapter}.md", or `{key: path}` for keys of the returned dict.
        `reads`: files from outside, globs too, that count as inputs.
        `appends`, `sources`, `head`: a section of a memory file, its sources, the step that opens the file.
        `marker`: the word in the seal, NAME_COMPLETE unless given; None also adopts plain files without one.
        `after`: steps or gates that come before it without giving it anything. `phase`: the one it belongs to.
        `retries`, `backoff`: further attempts, and the first delay in seconds, doubled each time.
        `retry_on`, `no_retry_on`: exceptions after which there is another attempt, or none.
        `timeout`: seconds an attempt may take. `limit`: one of the pipeline's.
        `check`: a function, or several, that take the output; text, False or an exception refuses it.
        `on_partial`: half-finished output: "redo" (unless given), "continue" or "ask".
        `on_failure`: after the last attempt: "review" waits for a person, "skip" leaves the task out.
        `version`: raise it to have finished work done again.
        `executor`: "thread", or "process" for work that keeps a processor busy; no `async def` there.
        `copy`: False keeps no copy of large files. `was`: the names that the step had before.
        Any other option is a mistake, listed with all others when the pipeline is loaded.
        """
        # All options as they came; taken before any other local variable exists.
        options = {key: value for key, value in locals().items() if key not in ("self", "fn", "name")}
        line = caller()

        def declare(function: Function) -> Function:
            _require_callable(function, "@pipe.step")
            own_name = function_name(function) if name is None else name
            step = DeclaredStep(fn=function, where=where_of(function, line), name=own_name, **options)
            self._declared.steps.append(step)
            self._mention_phase(phase)
            return function

        return declare if fn is None else declare(fn)

    @overload
    def items(self, var: str, /, *, each: str | None = None) -> Callable[[Function], Function]: ...

    @overload
    def items(self, var: str, given: Sequence[str | Mapping[str, Any]], /, *, each: str | None = None) -> None: ...

    def items(
        self,
        var: str,
        given: Sequence[str | Mapping[str, Any]] | None = None,
        /,
        *,
        each: str | None = None,
    ) -> Any:
        """Declare a fan-out: items from the decorated function, or from the list given here.

        An item is an id, or a dict with "id" and any fields; "after" (ids) or "batch" (a number) order the items
        within a phase. `each`: one list for each item of another fan-out.
        """
        if callable(var):
            raise TypeError('Name the variable that takes each item: @pipe.items("chapter").')
        line = caller()
        if given is not None:
            self._declared.items.append(DeclaredItems(where=line, var=var, each=each, given=given))
            self._compiled = None
            return None

        def declare(function: Function) -> Function:
            _require_callable(function, "@pipe.items")
            where = where_of(function, line)
            self._declared.items.append(DeclaredItems(where=where, var=var, each=each, fn=function))
            self._compiled = None
            return function

        return declare

    def phase(self, name: str, *, checklist: Callable[..., Any] | Sequence[Callable[..., Any]] = ()) -> None:
        """Declare a phase. Phases run in the order in which they, or steps in them, are first mentioned.

        `checklist`: functions that take outputs by name; text, False or an exception keeps it from beginning.
        """
        self._declared.phases.append(DeclaredPhase(where=caller(), name=name, checklist=checklist))
        self._mention_phase(name)

    def gate(
        self,
        name: str,
        *,
        after: Names = (),
        phase: str | None = None,
        each: str | None = None,
        blocking: bool = True,
        ask: str = "",
        **unknown: Any,
    ) -> None:
        """Declare a point where a person is asked: `after` steps, after a `phase`, or after `each` batch.

        `ask` is shown to them; `holdfast approve NAME` goes on. `blocking=False` holds nothing back, but the run
        is not complete without an answer.
        """
        gate = DeclaredGate(
            where=caller(),
            name=name,
            after=after,
            phase=phase,
            each=each,
            blocking=blocking,
            ask=ask,
            unknown=unknown,
        )
        self._declared.gates.append(gate)
        self._mention_phase(phase)

    def migration(self, step: str, from_version: int, /) -> Callable[[Function], Function]:
        """Declare how the value of `step`, made by `from_version`, becomes one of the version after it."""
        line = caller()

        def declare(function: Function) -> Function:
            _require_callable(function, "@pipe.migration")
            where = where_of(function, line)
            self._declared.migrations.append(
                DeclaredMigration(where=where, fn=function, step=step, from_version=from_version)
            )
            self._compiled = None
            return function

        return declare

    def compile(self) -> CompiledPipeline:
        """The pipeline checked and resolved, cached until the next declaration; else DefinitionError."""
        if self._compiled is None:
            from holdfast.pipeline.compiling import compile_pipeline  # declaring stays light

            self._compiled = compile_pipeline(self._declared)
        return self._compiled

    def run(
        self,
        params: Mapping[str, Any] | None = None,
        *,
        dir: str | os.PathLike[str] = ".",
        concurrency: int | None = None,
        budget_usd: float | None = None,
        resume: str | None = None,
        force: bool = False,
        run_id: str | None = None,
    ) -> RunResult:
        """Run the pipeline in `dir`, or continue where it stopped; returns when nothing more can be done.

        The result has `status`, `run_id`, `outputs[step]`, or `outputs[step][item]`, `cost_usd` and
        `needs_review`. Its status is "completed"; "failed" if a task used up its attempts; "paused" if a person,
        or a higher budget, is waited for; "in_progress" if SIGINT or SIGTERM stopped the run. Mistakes, locks and
        disks raise HoldfastError. Call it below `if __name__ == "__main__":`, since commands and workers load the
        file, too.

        `params`: as declared, by name. `concurrency`: steps at once, 8 unless given or set. `budget_usd`: pause
        when the run has cost this much. `resume`: continue that run. `force`: begin a new run in any case.
        `run_id`: its id, if it is new.
        """
        # Imported here: declaring a pipeline must not load the engine.
        from holdfast.project import Project

        options: dict[str, Any] = {"params": params, "concurrency": concurrency, "budget_usd": budget_usd}
        return Project.open(dir).run(self, resume=resume, force=force, run_id=run_id, **options)

    def _mention_phase(self, name: object) -> None:
        self._compiled = None
        if name is not None:
            self._declared.phase_mentions.append(name)


def _require_callable(function: object, decorator: str) -> None:
    if not callable(function):
        raise TypeError(f"{decorator} decorates a function, not {type(function).__name__}.")
