"""The commands that judge a whole run: plan says what it would do and cost, recover rebuilds its record.

Both group tasks by what happens to them; what depends on whether something comes out differently is told apart.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import common_options, complete_run, file_argument, params_option
from holdfast.cli.printing import first_of, money, print_result, say_pages_behind
from holdfast.project import Project
from holdfast.streams import stdout_kept
from holdfast.wording import addressed, counted

if TYPE_CHECKING:
    from holdfast.decisions import Planned, Step
    from holdfast.project.plan import Plan
    from holdfast.project.recover import Recovery

# What costs something first; what is merely reused last.
_PLANNED = {
    "ask": "would wait for a person",
    "wait": "would not be looked at before a person has answered",
    "never": "would never start",
    "redo": "would run again",
    "continue": "would be continued",
    "run": "would run",
    "skip": "would be left out",
    "heal": "would be healed",
    "adopt": "would be adopted",
    "perhaps": "would be reused, or asked about",
    "trust": "would be reused",
}
_RUNNING = ("redo", "continue", "run")
# What needs attention first; what is merely trusted last.
_RECOVERED = {
    "ask": "to be answered by a person",
    "redo": "to be done again",
    "continue": "to be continued",
    "run": "still to run",
    "heal": "put back, or sealed anew",
    "adopt": "adopted",
    "trust": "trusted",
}
_RECOVERABLE = _RECOVERED | {
    "heal": "would be put back, or sealed anew",
    "adopt": "would be adopted",
    "trust": "would be trusted",
}
_SHOWN_MAX = 10
_REUSED_SHOWN_MAX = 3
_ALIKE_MAX = 8
_LISTED_MAX = 20


# --- plan --------------------------------------------------------------------------------------------------------


@click.command("plan", short_help="Show what would run again, why, and what that costs.")
@file_argument
@params_option
@click.option("--resume", metavar="RUN_ID", shell_complete=complete_run, help="The run that would be continued.")
@common_options
def plan_command(
    file: str | None, params: dict[str, str], resume: str | None, directory: str, as_json: bool
) -> None:
    """Show what would run, be reused, healed or asked, why, and the expected cost; changes nothing."""
    project = Project.open(directory)
    with stdout_kept():  # what a pipeline prints when it is loaded, or a check when it is asked
        planned = project.plan(file, params=params, resume=resume)
    plan = planned.found
    typed = project.typing(None if plan.is_lost else plan.run_id)
    print_result(planned, _planned(planned.about, plan, typed), as_json=as_json)
    say_pages_behind(project, resume, directory)


def _planned(pipeline: str, plan: Plan, typed: Callable[[str], str]) -> Iterator[str]:
    lost = " (its record is lost)" if plan.is_lost else ""
    running = ", which is running now" if plan.is_running else ""
    yield f"{pipeline}: {f'run {plan.run_id}{lost}{running}' if plan.run_id else 'a new run'}"
    for change in plan.changes:
        yield f"  changed: {change}"
    groups: dict[str, list[Planned]] = {}
    for task in plan.tasks:
        groups.setdefault(task.group, []).append(task)
    for group in (*_PLANNED, *(name for name in groups if name not in _PLANNED)):
        words = _PLANNED.get(group, f"would {group}")
        yield from _group(group, words, groups.get(group, ()), price=_price)
    if plan.gates:
        yield f"{counted(len(plan.gates), 'gate')} would wait for approval"
    commands = [f"  {gate}: {typed(f'holdfast approve {shlex.quote(gate)}')}" for gate in plan.gates]
    yield from first_of(commands, _SHOWN_MAX, str, rest="  and {} more")
    for var in plan.unknown_items:
        yield f"the items of {var} are not known yet, or may come out differently: their tasks come on top"
    kept, rest = "no longer in the pipeline, files kept: {}", "and {} more that are no longer in the pipeline"
    yield from first_of(plan.orphans, _SHOWN_MAX, kept.format, rest=rest)
    yield f"Expected cost: {_cost(plan)}"
    if plan.is_over_budget and any(task.action in _RUNNING for task in plan.tasks):
        spent = f"{money(plan.cost_usd)} of {money(plan.budget_usd or 0.0)}"
        yield f"The budget is used up ({spent}): nothing would start before it is raised with --budget"


def _cost(plan: Plan) -> str:
    """The sum of what is known; steps that never came to an end have no price yet."""
    new = sum(1 for task in plan.tasks if task.action in _RUNNING and task.expected_cost_usd is None)
    most = plan.most_cost_usd
    if new and not most:
        return f"not known: {counted(new, 'task')} of steps that have never finished"
    remark = f", not counting {counted(new, 'task')} of steps that have never finished" if new else ""
    more = f", at most {money(most)}" if most > plan.expected_cost_usd else ""
    word = "at least" if plan.unknown_items else "about"
    return f"{word} {money(plan.expected_cost_usd)}{more}{remark}"


# --- recover -----------------------------------------------------------------------------------------------------


@click.command("recover", short_help="Rebuild a run from what is left of it; run nothing.")
@file_argument
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@params_option
@common_options
def recover_command(file: str | None, dry_run: bool, params: dict[str, str], directory: str, as_json: bool) -> int:
    """Rebuild a run from journal, snapshots, views and files; what is doubtful is set aside, nothing is run."""
    with stdout_kept():  # what a pipeline prints when it is loaded, or a check when it is asked
        recovered = Project.open(directory).recover(file, params=params, dry_run=dry_run)
    again = addressed(shlex.join(["holdfast", "recover", *_typed(file, params)]), directory) if dry_run else ""
    lines = _recovered(recovered.about, recovered.found, directory, again=again)
    print_result(recovered, lines, as_json=as_json)
    return recovered.exit_code


def _typed(file: str | None, params: dict[str, str]) -> list[str]:
    """What the person said beside --dry-run, for the command that does it."""
    return [
        *([file] if file else []),
        *(word for name, text in params.items() for word in ("-p", f"{name}={text}")),
    ]


def _recovered(pipeline: str, recovery: Recovery, directory: str, *, again: str) -> Iterator[str]:
    """What was done; with `again`, the command that does it, what would be."""
    if not recovery.found_anything:
        yield f"{pipeline}: nothing to recover: no run is on record, and no file proves that there was one."
        return
    lost = " (its record is lost)" if recovery.is_lost else ""
    if recovery.is_first:
        lost = " (no record yet; whole files are adopted)"
    yield f"{pipeline}: run {recovery.run_id}{lost}"
    yield from _listed("  note", [*recovery.remarks, *recovery.kept])
    for action, words in (_RECOVERABLE if again else _RECOVERED).items():
        yield from _group(action, words, [task for task in recovery.tasks if task.action == action], by=_evidence)
    for var in recovery.unknown_items:
        yield f"the items of {var} come from a function that has to run first: there may be others"
    yield from _listed("no longer in the pipeline, files kept", recovery.orphans)
    yield from _listed("sources disagree", [one.words() for one in recovery.disagreements])
    if again:
        yield from _actions(recovery.actions)
        yield f"Nothing was changed. To do it: {again}"
        return
    yield (
        f"{counted(recovery.recorded, 'event')} recorded."
        if recovery.recorded
        else "Nothing to do: all of this was on record."
    )
    if recovery.not_up_to_date:
        yield f"Not up to date: {recovery.not_up_to_date}."
    if recovery.is_complete:
        yield "The run is complete."
    else:
        yield f"Continue with: {addressed(f'holdfast resume {recovery.run_id}', directory)}"


def _actions(actions: Sequence[Step]) -> Iterator[str]:
    """What is done to the files of tasks, in order; many of one kind are one counted line."""
    if not actions:
        return
    yield "To the files, in this order (TIME stands for the moment):"
    alike = Counter(_kind(action) for action in dict.fromkeys(actions))
    shown: set[tuple[str, str, str]] = set()
    for action in dict.fromkeys(actions):
        do, folder, to = kind = _kind(action)
        if alike[kind] <= _ALIKE_MAX:
            yield f"  {do} {action.path}" + (f" -> {action.to}" if action.to else "")
        elif kind not in shown:
            shown.add(kind)
            yield f"  {do} {alike[kind]} files" + (f" of {folder}" if folder else "") + (f" -> {to}" if to else "")


def _kind(action: Step) -> tuple[str, str, str]:
    """What is done alike: to the files of one folder, or into one place."""
    folder, to = action.path.rpartition("/")[0], action.to
    return action.do, folder, to and f"{to.rpartition('/')[0]}/"


def _listed(what: str, lines: Sequence[str]) -> Iterator[str]:
    rest = "and {} more: --json lists them all"
    yield from first_of(lines, _LISTED_MAX, lambda line: f"{what}: {line}", rest=rest)


# --- tasks of one kind -------------------------------------------------------------------------------------------


def _group(
    group: str,
    words: str,
    tasks: Sequence[Planned],
    *,
    price: Callable[..., str] = lambda tasks, about, more="": "",
    by: Callable[[Planned], str] = lambda task: "",
) -> Iterator[str]:
    """How many tasks share one fate, and the first of them.

    What runs again only if something before it comes out differently is neither counted nor priced with the rest.
    """
    certain = [task for task in tasks if not task.if_different]
    behind = [task for task in tasks if task.if_different]
    if certain:
        also = f"; {len(behind)} behind only if that comes out differently{price(behind, 'at most', ' more')}"
        yield f"{len(certain)} {words}{price(certain, 'about')}{also if behind else ''}"
    elif behind:
        them = "it was" if len(behind) == 1 else "they were"
        only = f"only if what {them} made from comes out differently"
        yield f"{len(behind)} {words} {only}{price(behind, 'at most')}"
    shown = _REUSED_SHOWN_MAX if group == "trust" else _SHOWN_MAX
    yield from first_of(certain + behind, shown, lambda task: _line(task) + by(task), rest="  and {} more")


def _line(task: Planned) -> str:
    return f"  {task.id}: {task.reason}" if task.reason else f"  {task.id}"


def _evidence(task: Planned) -> str:
    return f" [{task.evidence}]" if task.evidence not in ("", "journal") else ""


def _price(tasks: Sequence[Planned], about: str, more: str = "") -> str:
    cost = sum(task.expected_cost_usd or 0.0 for task in tasks)
    return f", {about} {money(cost)}{more}" if cost else ""
