"""Errors are worded for who types a command and for who calls `pipe.run`: both know how to do what they say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from holdfast import Pipeline
from holdfast.errors import CheckpointCorruptionError, UsageError


def book(*, version: int = 1, overwrite: bool = False) -> Pipeline:
    pipe = Pipeline("book", params={"topic": (str, "sea")}, overwrite=overwrite)

    @pipe.step(writes="text.md", version=version)
    def text(topic: str) -> str:
        return f"On the {topic}."

    return pipe


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"resume": "first", "force": True},
            "resume (--resume) continues a run; it cannot go with force, or with an id for a new one.",
        ),
        ({"run_id": "first", "force": True}, "Give the new run another id."),
        ({"run_id": "FIRST", "force": True}, "Give another id."),
        (
            {"run_id": "first", "params": {"topic": "sky"}},
            "Change them: holdfast run FILE.py --resume first -p NAME=VALUE",
        ),
        ({"concurrency": 0}, "concurrency (--concurrency): 0 is not a whole number from 1."),
        ({"budget_usd": "much"}, "budget_usd (--budget): 'much' is not a number."),
        ({"dir": "nowhere"}, "No such directory: nowhere. Give an existing one."),
        ({"dir": 5}, "dir must be a path, not 5."),
        ({"force": "no"}, "force must be True or False, not 'no'."),
    ],
)
def test_a_refusal_is_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], words: str
) -> None:
    """No option of the command line is named, unless in a whole command or beside a word for it."""
    monkeypatch.chdir(tmp_path)
    pipe = book()
    pipe.run(run_id="first")
    with pytest.raises(UsageError) as refused:
        pipe.run(**given)
    assert words in str(refused.value)
    assert refused.value.args == (refused.value.message,)


def test_a_file_that_is_called_like_an_option_keeps_its_name(tmp_path: Path) -> None:
    pipe = Pipeline("p", params={"n": (int, 1)})
    pipe.step(lambda n: f"{n}", name="step", writes="--force.md")
    pipe.run(dir=tmp_path)
    with pytest.raises(UsageError, match=r"write over --force\.md, .* start over \(--force\), "):
        pipe.run({"n": 2}, dir=tmp_path)


def test_a_command_that_is_suggested_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person would type in a shell keeps its options, beside the arguments."""
    monkeypatch.chdir(tmp_path)
    book().run(run_id="first")
    with pytest.raises(UsageError) as refused:
        book().run({"topic": "sky"})
    others, change = refused.value.fix.split(" Or change that run: ")
    assert others == "Use another folder (--dir), start over (--force), or declare Pipeline(..., overwrite=True)."
    assert change.startswith("holdfast run ") and change.endswith(" --resume first -p topic=sky")


def test_what_is_newer_is_made_again_by_a_whole_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pipe.run` has no argument for that."""
    monkeypatch.chdir(tmp_path)
    book(version=2).run()
    with pytest.raises(UsageError, match=r"made again by this one: holdfast run FILE.py --redo text$"):
        book().run()


def test_a_parameter_that_is_needed_is_asked_for_by_name(tmp_path: Path) -> None:
    """In both ways of giving it."""
    pipe = Pipeline("p", params={"topic": str})
    pipe.step(lambda topic: topic, name="step")
    with pytest.raises(UsageError, match=r'needed: -p topic=VALUE, or params=\{"topic": VALUE\}\.'):
        pipe.run(dir=tmp_path)


def test_a_value_that_is_lost_is_made_again_by_a_whole_command(tmp_path: Path) -> None:
    """`outputs` is asked from Python: an option alone would be of no use there."""
    pipe = Pipeline("p")
    pipe.step(lambda: 1, name="seed")
    pipe.step(lambda seed: "text", name="text", writes="text.md")
    pipe.run(dir=tmp_path, run_id="first")
    shutil.rmtree(tmp_path / ".holdfast")
    again = pipe.run(dir=tmp_path)
    with pytest.raises(CheckpointCorruptionError) as lost:
        again.outputs["seed"]
    assert lost.value.fix == "Make it again: holdfast resume first --redo seed"
