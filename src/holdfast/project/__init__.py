"""`Project`: all that can be done with the runs of a folder. The command line and `pipe.run` use nothing below it.

A verb finds out what is meant (`finding`), does it (the module of its name), and gives a result whose fields are
the document that `--json` prints (`results`). What a verb needs is loaded when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast.engine.commit import Recorded as Happening
    from holdfast.errors import UnknownRunError
    from holdfast.journal.lines import Line
    from holdfast.layout import ProjectLayout
    from holdfast.pipeline.compiling import CompiledPipeline
    from holdfast.pipeline.definition import Pipeline
    from holdfast.project import results
    from holdfast.project.run import Answer, Beginning, RunResult
    from holdfast.runs.choosing import Request
    from holdfast.settings import Settings
    from holdfast.signals import Stop
    from holdfast.views.picture import Picture
    from holdfast.views.summary import Status


class RunOptions(TypedDict, total=False):
    """What `run` and `resume` can be told."""

    params: Mapping[str, Any]  # as the pipeline declares them; text is converted
    concurrency: int | str | None  # how many steps may run at once
    budget_usd: float | str | None  # pause when the run has cost this much
    redo: Sequence[str]  # finished tasks, or steps, to do again
    no_retry: bool  # give failed tasks no fresh set of attempts
    on_partial: str | None  # about half-finished output: redo, continue or ask
    on_changed: str | None  # about files that someone edited: ask, restore or keep
    quick: bool  # believe finished files whose size, time and inode are unchanged
    only_needed: bool  # leave missing files alone unless something unfinished needs them
    stop: Stop  # stops the run when it is called; in the main thread, SIGINT and SIGTERM call it, too
    answer: Answer | None  # how a question is answered once nothing else can go on; None: it is left open
    on_event: Callable[[Happening], None]  # called with each event once it is recorded: cheap, never raises
    on_begin: Callable[[Beginning], None]  # before anything is done; what is answered begins the run anew
    on_open: Callable[[Callable[[], Picture]], None]  # it goes on, and shows how it stands at any time
    on_log: Callable[[str, str, str], None]  # task, level and words of what a step logs
    on_end: Callable[[RunResult], None]
    on_answer: Callable[[str], None]  # what was made of an answer, in words


_HOOKS = ("stop", "on_begin", "on_open", "on_log", "on_end", "on_answer")


class Project:
    """A folder, and the runs in it."""

    def __init__(self, layout: ProjectLayout, directory: str) -> None:
        self._layout = layout
        self._directory = directory  # as it was given, for the commands that results suggest

    @classmethod
    def open(cls, dir: str | os.PathLike[str] = ".") -> Project:
        """The project in an existing folder; creates nothing."""
        from holdfast.pipeline.names import as_path
        from holdfast.runs.listing import open_project

        as_path(dir, "dir")
        return cls(open_project(dir), os.fspath(dir))

    @property
    def directory(self) -> Path:
        """The project's folder."""
        return self._layout.root

    def __repr__(self) -> str:
        return f"Project.open({os.fspath(self.directory)!r})"

    # --- looking -------------------------------------------------------------------------------------------

    def runs(self) -> list[results.RunEntry]:
        """All runs, newest first; one that cannot be read says why."""
        from holdfast.project.results import run_entry
        from holdfast.runs.listing import list_runs
        from holdfast.runs.opening import open_lease

        runs = list_runs(self._layout)
        held = (open_lease(self._layout).holder() or {}).get("run_id")  # an engine is busy with it now
        return [run_entry(info, running=info.run_id == held) for info in runs]

    def status(self, run_id: str | None = None) -> Status:
        """How a run stands, from its record alone, with every task and its value."""
        from holdfast.runs.looking import objects_of
        from holdfast.views.summary import status_of

        picture, holder = self.picture(run_id)
        with objects_of(self._layout, picture.state.run_id) as objects:
            return status_of(picture, holder, objects.get)

    def picture(self, run_id: str | None = None) -> tuple[Picture, dict[str, Any] | None]:
        """The same to draw from, and who runs it now."""
        from holdfast.project.finding import pick_run
        from holdfast.runs.listing import holder_of, read_picture

        picture = read_picture(self._layout, pick_run(self._layout, run_id))
        return picture, holder_of(self._layout, picture.state.run_id)

    def catch_up(self, run_id: str | None = None) -> None:
        """Have pages that a kill left behind the journal written, if no engine runs and they can be written."""
        from holdfast.project.finding import pick_run
        from holdfast.project.people import catch_up

        catch_up(self._layout, pick_run(self._layout, run_id))

    def pages_behind(self, run_id: str | None = None) -> list[str]:
        """The pages that a kill left behind the journal of a run; changes nothing."""
        from holdfast.project.finding import pick_run
        from holdfast.project.people import behind

        try:
            return behind(self._layout, pick_run(self._layout, run_id))
        except (OSError, HoldfastError):  # the command itself says what is wrong
            return []

    def plan(
        self,
        pipeline: str | Pipeline | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        resume: str | None = None,
    ) -> results.PlanResult:
        """What `run` would do now, and what that would cost; changes nothing."""
        from msgspec.structs import replace

        from holdfast.project.finding import find_planned
        from holdfast.project.plan import make_plan
        from holdfast.project.results import plan_result

        settings = self._settings()
        compiled, run_id, known = find_planned(self._layout, pipeline, resume)
        plan = make_plan(compiled, self._layout, run_id, params, settings, known)
        typed = self.typing(None if plan.is_lost else plan.run_id)
        tasks = [replace(task, reason=typed(task.reason)) for task in plan.tasks]
        return plan_result(replace(plan, tasks=tasks), compiled.spec.name)

    def verify(
        self,
        run_id: str | None = None,
        *,
        pipeline: str | Pipeline | None = None,
        on_progress: Callable[[str, int], None] = lambda what, done: None,
    ) -> results.VerifyResult:
        """Everything of a run compared with its record; changes nothing. Its checks are those of its pipeline."""
        from holdfast.project.finding import load, load_recorded, pick_damaged
        from holdfast.project.results import verify_result
        from holdfast.project.verify import verify

        chosen = pick_damaged(self._layout, run_id)

        def given() -> CompiledPipeline:
            return load_recorded(self._layout, chosen) if pipeline is None else load(self._layout, pipeline)

        report = verify(self._layout, chosen, load=given, tell=on_progress)
        return verify_result(report, self._directory)

    def scan(
        self,
        pipeline: str | Pipeline | None = None,
        *,
        step: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> results.ScanResult:
        """What the files alone say, whatever is on record; changes nothing."""
        from holdfast.project.finding import find_meant
        from holdfast.project.results import scan_result
        from holdfast.project.scan import scan_project

        meant = find_meant(self._layout, pipeline, params or {}, command="scan")
        scanned = scan_project(
            meant.compiled,
            self._layout,
            run_id=meant.run_id,
            params=params,
            known_params=meant.known_params,
            step=step,
        )
        return scan_result(meant.compiled.spec.name, scanned)

    def why(self, task: str, *, run_id: str | None = None) -> results.WhyResult:
        """Why a task ran, was reused, or will run again."""
        from holdfast.project.finding import pick_run
        from holdfast.project.plan import explain
        from holdfast.project.results import WhyResult

        chosen = pick_run(self._layout, run_id)
        typed, settings = self.typing(chosen), self._settings()
        return WhyResult(chosen, task, explain(self._layout, chosen, task, typed=typed, settings=settings))

    def events(
        self,
        run_id: str | None = None,
        *,
        after: int = 0,
        follow: bool | Callable[[], bool] = False,
        on_remark: Callable[[str], None] = lambda words: None,
    ) -> Iterator[Line]:
        """The lines of a run's journal after number `after`; with `follow` also those to come while that holds."""
        from holdfast.project.events import all_lines, followed
        from holdfast.project.finding import pick_run
        from holdfast.runs.listing import run_layout

        run = run_layout(self._layout, pick_run(self._layout, run_id))
        if follow is False:
            return all_lines(run, after, on_remark)
        return followed(run, after, follow if callable(follow) else lambda: True, on_remark)

    def outputs(self, run_id: str | None = None) -> Mapping[str, Any]:
        """Step -> its output; of a fanned-out step, an ordered dict by item. Read and verified when asked for."""
        from holdfast.project.outputs import Outputs

        return Outputs(self.picture(run_id)[0], self._layout)

    # --- running -------------------------------------------------------------------------------------------

    def run(
        self,
        pipeline: str | Pipeline,
        *,
        resume: str | None = None,
        force: bool = False,
        run_id: str | None = None,
        **options: Unpack[RunOptions],
    ) -> RunResult:
        """Run a pipeline, given itself or as FILE.py[:NAME], or continue its run with the same parameters."""
        from holdfast.pipeline.names import as_given
        from holdfast.project.finding import load
        from holdfast.runs.listing import checked_run_id

        for given in (resume, run_id):
            if given is not None:
                checked_run_id(given)
        if not isinstance(force, bool):
            raise UsageError(f"force must be True or False, not {as_given(force)}.")
        request = self._request(options, resume=resume, force=force, run_id=run_id)
        return self._run(load(self._layout, pipeline), request, options)

    def resume(self, run_id: str | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Continue the newest unfinished run, or that one; its record, or RESUME.md, names its pipeline's file."""
        from msgspec.structs import replace

        from holdfast.project.finding import find_resumed

        request = self._request(options)
        compiled, chosen = find_resumed(self._layout, run_id)
        return self._run(compiled, replace(request, resume=chosen), options)

    def _run(self, compiled: CompiledPipeline, request: Request, options: RunOptions) -> RunResult:
        from holdfast.project.run import Hooks, carry_out

        given: dict[str, Any] = {name: option for name, option in options.items() if name in _HOOKS}
        if "on_event" in options:
            given["on_events"] = _each(options["on_event"])
        return carry_out(compiled, self._layout, request, Hooks(**given), options.get("answer"))

    def _request(self, options: RunOptions, **wishes: Any) -> Request:
        """The options as settings and wishes."""
        from holdfast.pipeline.names import printable
        from holdfast.runs.choosing import Request

        params = options.get("params")
        if params is not None and not isinstance(params, Mapping):
            raise UsageError(f"params must be a dict, not {printable(params)}.")
        given = {name: options.get(name) for name in ("concurrency", "budget_usd", "on_partial", "on_changed")}
        return Request(
            params=dict(params or {}),
            settings=self._settings(given),
            redo=tuple(options.get("redo", ())),
            no_retry=options.get("no_retry", False),
            quick=options.get("quick", False),
            only_needed=options.get("only_needed", False),
            **wishes,
        )

    def recover(
        self,
        pipeline: str | Pipeline | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> results.RecoverResult:
        """Rebuild a run from whatever evidence is left of it, and run nothing; or say what that would do."""
        from msgspec.structs import replace

        from holdfast.project.finding import find_meant
        from holdfast.project.recover import recover
        from holdfast.project.results import recover_result
        from holdfast.runs.choosing import Request

        settings = self._settings()
        meant = find_meant(self._layout, pipeline, params or {}, command="recover")
        request = Request(
            params or {},
            resume=meant.run_id or meant.lost_run,
            settings=settings,
            known_params=meant.known_params,
        )
        recovery = recover(meant.compiled, self._layout, request, dry_run=dry_run)
        typed = self.typing(None if recovery.is_lost and dry_run else recovery.run_id)
        tasks = [replace(task, reason=typed(task.reason)) for task in recovery.tasks]
        return recover_result(meant.compiled.spec.name, replace(recovery, tasks=tasks), dry_run=dry_run)

    def clean(
        self,
        *,
        max_age_days: float | str | None = None,
        max_runs: int | str | None = None,
        dry_run: bool = False,
    ) -> results.CleanResult:
        """Remove the records of old completed runs; never an unfinished run, never a file of the work tree."""
        from holdfast.project.clean import clean
        from holdfast.project.results import clean_result

        settings = self._settings({"max_age_days": max_age_days, "max_runs": max_runs})
        age, number = settings.max_age_days, settings.max_runs
        return clean_result(
            clean(self._layout, max_age_days=age, max_runs=number, dry_run=dry_run), dry_run=dry_run
        )

    # --- what people decide --------------------------------------------------------------------------------

    def approve(self, name: str, *, run_id: str | None = None, by: str = "") -> results.Recorded:
        """Let a gate, or a phase whose checklist objects, pass; only records it, as all of these."""
        from holdfast.project import people

        return self._record(run_id, lambda run: people.approve(self._layout, run, name, by=by))

    def reject(self, name: str, *, to: str, feedback: str, run_id: str | None = None) -> results.Recorded:
        """Send the finished task `to` back with `feedback`, in the name of a gate, a phase or a task."""
        from holdfast.project import people

        return self._record(run_id, lambda run: people.reject(self._layout, run, name, to, feedback))

    def decide(self, task: str, choice: str, *, run_id: str | None = None, by: str = "") -> results.Recorded:
        """Answer what is asked about a task: keep, restore, redo, continue or skip."""
        from holdfast.project import people

        return self._record(run_id, lambda run: people.decide(self._layout, run, task, choice, by=by))

    def retry(self, tasks: Sequence[str] | None = None, *, run_id: str | None = None) -> results.Recorded:
        """Give tasks a fresh set of attempts: those named, or (None) all that failed or were left out."""
        from holdfast.project import people

        return self._record(run_id, lambda run: people.retry(self._layout, run, tasks))

    def note(self, text: str, *, run_id: str | None = None) -> results.Recorded:
        """Put a note into the run's record; RESUME.md shows it."""
        from holdfast.project import people

        return self._record(run_id, lambda run: people.note(self._layout, run, text))

    def _record(self, run_id: str | None, record: Callable[[str], str]) -> results.Recorded:
        from holdfast.project.finding import pick_run
        from holdfast.project.results import recorded
        from holdfast.runs.listing import holder_of, read_picture

        chosen = pick_run(self._layout, run_id)
        sentence = record(chosen)
        picture = read_picture(self._layout, chosen)
        is_running = holder_of(self._layout, chosen) is not None
        return recorded(self._layout, self._directory, picture, sentence, is_running=is_running)

    # --- what only a person at a terminal needs ------------------------------------------------------------

    def names(self, kind: str, run_id: str | None = None) -> list[str]:
        """What can be named in a run: a "task", "work" (also steps), a "gate" (also phases), or "any" of these."""
        from holdfast.project.people import gates_and_phases, known_names

        picture, _ = self.picture(run_id)
        if kind == "task":
            return list(picture.tasks)
        if kind == "work":
            return list(dict.fromkeys([*picture.by_step, *picture.tasks]))
        return list(gates_and_phases(picture)) if kind == "gate" else known_names(picture)

    def typing(self, run_id: str | None) -> Callable[[str], str]:
        """How a command about that run has to be typed where this project was opened."""
        from holdfast.project.finding import typing_of

        return typing_of(self._layout, self._directory, run_id)

    def why_no_run(self) -> UnknownRunError:
        """What to say of a project without a run on record."""
        from holdfast.project.finding import no_run

        return no_run(self._layout)

    def _settings(self, given: Mapping[str, Any] | None = None) -> Settings:
        from holdfast.settings import load_settings

        return load_settings(self._layout.root, given)


def _each(on_event: Callable[[Happening], None]) -> Callable[[Sequence[Happening]], None]:
    def observe(recorded: Sequence[Happening]) -> None:
        for one in recorded:
            on_event(one)

    return observe
