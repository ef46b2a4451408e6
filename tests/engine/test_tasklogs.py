"""What a step logs: in a file of its task, and in no other file."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import Harness
from holdfast import Pipeline


def logging_pipeline() -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step(retries=0)
    def talk() -> None:
        logging.getLogger("mine").warning("said by the step")
        raise ValueError("so that it runs again")

    return pipe


def test_what_a_step_logs_is_in_the_file_of_its_task(tmp_path: Path) -> None:
    """Each run of the step adds to it."""
    for _ in range(2):
        logging_pipeline().run(dir=tmp_path, run_id="r")
    text = ((Harness(tmp_path).folder("r") / "logs") / "talk.log").read_text()
    assert text.count("WARNING mine said by the step\n") == 2


def test_a_log_does_nothing_to_the_terminal_that_shows_it(tmp_path: Path) -> None:
    """Escapes of a terminal are taken out, lines stay lines."""
    pipe = Pipeline("p")

    @pipe.step
    def talk() -> None:
        logging.getLogger("mine").warning("one \x1b[31mred\x1b]0;title\x07 word\nand a line")

    pipe.run(dir=tmp_path, run_id="r")
    text = ((Harness(tmp_path).folder("r") / "logs") / "talk.log").read_text()
    assert "\x1b" not in text and "\x07" not in text
    assert "one red word\nand a line\n" in text


def link(path: Path) -> None:
    path.symlink_to(path.parents[4] / "theirs.txt")


@pytest.mark.parametrize("put", [link, Path.mkdir, os.mkfifo])
def test_what_stands_where_a_log_belongs_fails_no_step(tmp_path: Path, put: Callable[[Path], None]) -> None:
    """It is never followed or waited for, and it stays."""
    pipe, theirs = logging_pipeline(), tmp_path / "theirs.txt"
    theirs.write_text("theirs")
    pipe.run(dir=tmp_path, run_id="r")
    log = (Harness(tmp_path).folder("r") / "logs") / "talk.log"
    log.unlink()
    put(log)
    kind = log.lstat().st_mode
    again = pipe.run(dir=tmp_path, run_id="r")
    assert again.picture.state.tasks["talk"].error.startswith("ValueError: so that it runs again")
    assert theirs.read_text() == "theirs" and log.lstat().st_mode == kind


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_two_runs_in_one_process_keep_their_logs_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What a step logs is kept by its own run; the first run that ends does not make the other deaf."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # nobody has set logging up
    both, first_ended = threading.Barrier(2, timeout=30), threading.Event()

    def pipeline(name: str) -> Pipeline:
        pipe = Pipeline(name)

        def talk() -> str:
            both.wait()
            if name == "second":
                assert first_ended.wait(30)
            logging.getLogger("mine").info("said by the %s", name)
            return name

        async def talk_async() -> str:
            return await asyncio.to_thread(talk)

        pipe.step(name=f"talk_{name}")(talk if kind == "thread" else talk_async)
        return pipe

    def run(name: str) -> None:
        pipeline(name).run(dir=tmp_path / name, run_id="r")
        first_ended.set()

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor() as pool:
        list(pool.map(run, ["first", "second"]))
    kept = {path.relative_to(tmp_path).parts[0]: path.name for path in tmp_path.rglob("logs/*.log")}
    assert kept == {"first": "talk_first.log", "second": "talk_second.log"}
    assert len(list(tmp_path.rglob("logs/*.log"))) == 2
    assert logging.getLogger().level == logging.WARNING
