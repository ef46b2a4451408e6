"""A log that cannot be written costs one line, never a step and never a traceback."""

from __future__ import annotations

import contextvars
import logging
import shutil
from pathlib import Path

import pytest

from holdfast.context import current_task
from holdfast.engine.tasklogs import TaskLogs
from holdfast.stores.tree import LocalFiles

LOG = logging.getLogger("a step")


@pytest.fixture
def context() -> contextvars.Context:
    """As in a step."""
    made = contextvars.Context()
    made.run(current_task.set, "draft[ch01]")
    return made


def test_a_log_that_cannot_be_written_is_told_once(
    tmp_path: Path, context: contextvars.Context, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever is said is shown all the same; that it is not kept is said once, without a traceback."""
    (tmp_path / "logs").write_text("in the way")
    told: list[tuple[str, str, str]] = []
    with TaskLogs(LocalFiles(tmp_path, tmp_path / "tmp"), "logs", context, lambda *words: told.append(words)):
        context.run(LOG.warning, "one")
        context.run(LOG.warning, "two")
    one, trouble, two = [message for _, _, message in told]
    assert (one, two) == ("one", "two")
    assert trouble.startswith("what steps log cannot be kept: ")
    assert capsys.readouterr().err == ""


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path, context: contextvars.Context) -> None:
    """What is logged afterwards is kept."""
    with TaskLogs(LocalFiles(tmp_path, tmp_path / "tmp"), "logs", context):
        context.run(LOG.warning, "one")
        shutil.rmtree(tmp_path / "logs")
        context.run(LOG.warning, "two")
    assert (tmp_path / "logs" / "draft[ch01].log").read_text().endswith("two\n")
