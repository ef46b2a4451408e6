"""Errors of `pipe.run` name what its caller can give: arguments, and no options of the command line."""

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
        ({"resume": "first", "force": True}, "resume continues a run; it cannot go with force=True or run_id."),
        ({"run_id": "first", "force": True}, "Give force=True another run_id."),
        ({"run_id": "FIRST", "force": True}, "Give another run_id."),
        (
            {"run_id": "first", "params": {"topic": "sky"}},
            'Change them with resume="first" and params={"NAME": VALUE}.',
        ),
        ({"concurrency": 0}, "concurrency: 0 is not a whole number from 1."),
        ({"budget_usd": "much"}, "budget_usd: 'much' is not a number."),
        ({"dir": "nowhere"}, "Give an existing one with dir."),
        ({"dir": 5}, "dir must be a path, not 5."),
        ({"force": "no"}, "force must be True or False, not 'no'."),
    ],
)
def test_a_refusal_names_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], words: str
) -> None:
    """Whoever calls pipe.run has no options to give."""
    monkeypatch.chdir(tmp_path)
    pipe = book()
    pipe.run(run_id="first")
    with pytest.raises(UsageError) as refused:
        pipe.run(**given)
    assert words in str(refused.value) and "--" not in str(refused.value)
    assert refused.value.args == (refused.value.message,)


def test_a_file_that_is_called_like_an_option_keeps_its_name(tmp_path: Path) -> None:
    pipe = Pipeline("p", params={"n": (int, 1)})
    pipe.step(lambda n: f"{n}", name="step", writes="--force.md")
    pipe.run(dir=tmp_path)
    with pytest.raises(UsageError, match=r"write over --force\.md, .* start over with force=True, "):
        pipe.run({"n": 2}, dir=tmp_path)


def test_a_command_that_is_suggested_stays_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person would type in a shell keeps its options, beside the arguments."""
    monkeypatch.chdir(tmp_path)
    book().run(run_id="first")
    with pytest.raises(UsageError) as refused:
        book().run({"topic": "sky"})
    others, change = refused.value.fix.split(" Or change that run: ")
    assert others == "Use another dir, start over with force=True, or declare Pipeline(..., overwrite=True)."
    assert change.startswith("holdfast run ") and change.endswith(" --resume first -p topic=sky")


def test_what_pipe_run_cannot_be_given_is_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no argument for --redo."""
    monkeypatch.chdir(tmp_path)
    book(version=2).run()
    with pytest.raises(UsageError, match=r"made again by this one with 'holdfast run FILE.py --redo text'\.$"):
        book().run()


def test_a_parameter_that_is_needed_is_asked_for_by_name(tmp_path: Path) -> None:
    """-p is not how Python gives it."""
    pipe = Pipeline("p", params={"topic": str})
    pipe.step(lambda topic: topic, name="step")
    with pytest.raises(UsageError, match=r'Give it with params=\{"topic": VALUE\}\.'):
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
