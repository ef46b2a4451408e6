"""`holdfast plan`: what a run would do now, and what it would cost."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from holdfast.cli.completion import complete_file, complete_run
from holdfast.cli.options import json_option, params_option, project_options
from holdfast.cli.printing import first_of, money, print_json, say_all, say_pages_behind
from holdfast.project import Project
from holdfast.streams import stdout_kept
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.decisions import Planned
    from holdfast.project.plan import Plan

# What costs something first; what is merely reused last.
_ORDER = ("ask", "wait", "never", "redo", "continue", "run", "skip", "heal", "adopt", "perhaps", "trust")
_MEANING = {
    "ask": "wait for a person",
    "wait": "not be looked at before a person has answered",
    "never": "never start",
    "redo": "run again",
    "continue": "be continued",
    "run": "run",
    "skip": "be left out",
    "heal": "be healed",
    "adopt": "be adopted",
    "perhaps": "be reused, or asked about",
    "trust": "be reused",
}
_RUNNING = ("redo", "continue", "run")
_SHOWN_MAX = 10
_REUSED_SHOWN_MAX = 3


@click.command("plan", short_help="Show what would run again, why, and what that costs.")
@click.argument("file", required=False, metavar="[FILE.py[:NAME]]", shell_complete=complete_file)
@params_option
@click.option("--resume", metavar="RUN_ID", shell_complete=complete_run, help="The run that would be continued.")
@project_options
@json_option
def command(file: str | None, params: dict[str, str], resume: str | None, directory: str, as_json: bool) -> None:
    """Show what would run, be reused, healed or asked, why, and the expected cost; changes nothing."""
    project = Project.open(directory)
    with stdout_kept():  # what a pipeline prints when it is loaded, or a check when it is asked
        planned = project.plan(file, params=params, resume=resume)
    if as_json:
        print_json(planned)
    else:
        plan = planned.found
        say_all(_lines(planned.about, plan, project.typing(None if plan.is_lost else plan.run_id)))
    say_pages_behind(project, resume, directory)


def _lines(pipeline: str, plan: Plan, typed: Callable[[str], str]) -> Iterator[str]:
    lost = " (its record is lost)" if plan.is_lost else ""
    running = ", which is running now" if plan.is_running else ""
    yield f"{pipeline}: {f'run {plan.run_id}{lost}{running}' if plan.run_id else 'a new run'}"
    for change in plan.changes:
        yield f"  changed: {change}"
    groups: dict[str, list[Planned]] = {}
    for task in plan.tasks:
        groups.setdefault(task.group, []).append(task)
    for action in (*_ORDER, *(name for name in groups if name not in _ORDER)):
        if action in groups:
            yield from _group(action, groups[action])
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


def _group(action: str, tasks: Sequence[Planned]) -> Iterator[str]:
    certain = [task for task in tasks if not task.if_different]
    behind = [task for task in tasks if task.if_different]
    meaning = _MEANING.get(action, action)
    if certain:
        yield f"{len(certain)} would {meaning}{_price(certain, 'about')}{_behind(behind)}"
    else:
        them = "it was" if len(behind) == 1 else "they were"
        only = f"only if what {them} made from comes out differently"
        yield f"{len(behind)} would {meaning} {only}{_price(behind, 'at most')}"
    shown = _REUSED_SHOWN_MAX if action == "trust" else _SHOWN_MAX
    yield from first_of(certain + behind, shown, _line, rest="  and {} more")


def _line(task: Planned) -> str:
    return f"  {task.id}: {task.reason}" if task.reason else f"  {task.id}"


def _behind(tasks: Sequence[Planned]) -> str:
    """What runs again only if something before it comes out differently is neither counted nor priced with it."""
    if not tasks:
        return ""
    return f"; {len(tasks)} behind only if that comes out differently{_price(tasks, 'at most', ' more')}"


def _price(tasks: Sequence[Planned], about: str, more: str = "") -> str:
    cost = sum(task.expected_cost_usd or 0.0 for task in tasks)
    return f", {about} {money(cost)}{more}" if cost else ""


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
