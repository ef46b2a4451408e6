"""What the shell is offered."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import complete_gate, complete_name, complete_run, complete_task, complete_work

from .conftest import Project


def context(directory: Path) -> click.Context:
    ctx = click.Context(click.Command("x"))
    ctx.params = {"directory": str(directory)}
    return ctx


def offered(complete: object, directory: Path, incomplete: str) -> list[str]:
    assert callable(complete)
    return [item.value for item in complete(context(directory), click.Argument(["x"]), incomplete)]


def test_runs_are_offered_newest_first(project: Project) -> None:
    """Run ids that begin with what was typed are offered."""
    project.run("--run-id", "one")
    project.run("--run-id", "two", "-p", "n=1")
    assert offered(complete_run, project.root, "") == ["two", "one"]
    assert offered(complete_run, project.root, "o") == ["one"]


def test_tasks_and_gates_are_offered(project: Project) -> None:
    """Tasks and gates of the newest unfinished run are offered."""
    project.touch("gated")
    project.run()
    assert offered(complete_name, project.root, "draft[") == ["draft[ch01]", "draft[ch02]"]
    assert offered(complete_name, project.root, "pub") == ["publish_ok"]


def test_only_what_a_command_takes_is_offered(project: Project) -> None:
    """A gate cannot be retried or redone, a task not approved; --redo takes a step's name, too."""
    project.touch("gated")
    project.run()
    tasks = ["draft[ch01]", "draft[ch02]"]
    assert (offered(complete_task, project.root, "d"), offered(complete_task, project.root, "pub")) == (tasks, [])
    assert offered(complete_work, project.root, "d") == ["draft", *tasks]
    assert (offered(complete_gate, project.root, "d"), offered(complete_gate, project.root, "pub")) == (
        [],
        ["publish_ok"],
    )


def test_completion_never_fails(project: Project) -> None:
    """In a folder without runs, or none at all, nothing is offered and nothing is created."""
    before = project.files()
    for place in (project.root, project.root / "nosuch"):
        assert offered(complete_run, place, "") == []
        for complete in (complete_name, complete_task, complete_work, complete_gate):
            assert offered(complete, place, "") == []
    assert project.files() == before
