"""Who decides about the tasks of a run: the judge, told what settings, command line and other runs say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.artifacts.inputs import Inputs
from holdfast.engine.attempt import Attempts
from holdfast.layout import ProjectLayout
from holdfast.pipeline.nodes import Node
from holdfast.recovery.evidence import Checker, Policy
from holdfast.recovery.gathering import Migrations
from holdfast.recovery.judge import Judge
from holdfast.runs.choosing import Choice, Request
from holdfast.runs.destinations import own_file
from holdfast.runs.listing import list_runs
from holdfast.runs.traces import refuse_newer
from holdfast.state import COMPLETED


def judge_for(
    inputs: Inputs,
    layout: ProjectLayout,
    request: Request,
    choice: Choice,
    quarantine: Path,
    attempts: Attempts | None,
    claims: Mapping[str, str],
    migrations: Migrations | None = None,
) -> Judge:
    """The judge of a run's tasks. Without `attempts` no `check` is asked; `migrations` are the pipeline's."""
    if attempts is not None:  # else the pipeline is the recorded one
        done = ((task, r.version) for task, r in inputs.state.tasks.items() if r.status == COMPLETED)
        refuse_newer(inputs.graph.spec, done, request.redo)
    # Runs that can still be read: a folder whose record is lost owns nothing any more.
    others = {info.run_id: info.ordinal for info in list_runs(layout, but=choice.run_id)}
    take_over = choice.take_over or inputs.graph.spec.overwrite
    policy = _policy(inputs, request, choice, others)
    return Judge(
        inputs,
        policy=policy,
        quarantine=quarantine,
        checker=checker_of(attempts),
        migrations=attempts.compiled.migrations if attempts is not None else migrations or {},
        living_runs=policy.in_the_way if take_over else frozenset(others),
        take_over=take_over,
        claims=claims,
        own_file=own_file(attempts.compiled, layout) if attempts is not None else "",
    )


def _policy(inputs: Inputs, request: Request, choice: Choice, others: Mapping[str, int]) -> Policy:
    """What was said beforehand; `others` are the ordinals of the other runs."""
    state, settings = inputs.state, request.settings
    # What a run was begun over with --force is in its way also after it was cut off.
    in_the_way = [run for run, ordinal in others.items() if state.forced and ordinal < state.ordinal]
    return Policy(
        settings.on_changed,
        settings.on_partial,
        adopt=not choice.set_aside,
        in_the_way=frozenset(in_the_way),
        only_needed=request.only_needed,
    )


def checker_of(attempts: Attempts | None) -> Checker:
    """The checks of the pipeline, for outputs that were not made just now; without `attempts` there are none."""
    if attempts is None:
        return lambda node, load: ""

    def checker(node: Node, load: Callable[[], Any]) -> str:
        own = attempts.compiled.checks.get(node.spec.name, ())
        return attempts.check_again(own, node, load()) if own else ""

    return checker
