"""What was spent is known also where the journal has lost the line that told of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Pipeline
from holdfast.seals import take_apart

PRICE = 0.01


def project(begun: list[str], *, fails: bool = False) -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step(writes="text.md", retries=1, backoff=0)
    def text(ctx: Any) -> str:
        begun.append("text")
        ctx.usage(input_tokens=100, output_tokens=20, cost_usd=PRICE)
        if fails and ctx.attempt == 1:
            raise RuntimeError("the first attempt fails")
        return "A text.\n"

    @pipe.step
    def length(text: str) -> int:
        begun.append("length")
        return len(text)

    return pipe


def journal_of(folder: Path) -> Path:
    (journal,) = folder.glob(".holdfast/runs/*/events.jsonl")
    return journal


def spoil_usage(folder: Path) -> int:
    """Every line that tells of spending is damaged, and no snapshot knows better; gives how many there were."""
    journal = journal_of(folder)
    lines = journal.read_bytes().splitlines(keepends=True)
    told = [index for index, line in enumerate(lines) if json.loads(line)["event"] == "usage"]
    for index in told:
        lines[index] = b"\0" * (len(lines[index]) - 1) + b"\n"
    journal.write_bytes(b"".join(lines))
    for snapshot in journal.parent.glob("checkpoint_*"):
        snapshot.unlink()
    return len(told)


@pytest.mark.parametrize("fails", [False, True])
def test_an_attempts_end_tells_what_the_task_has_cost(fails: bool, tmp_path: Path) -> None:
    begun: list[str] = []
    before = project(begun, fails=fails).run(dir=tmp_path)
    attempts = 2 if fails else 1
    assert before.cost_usd == pytest.approx(PRICE * attempts)
    assert spoil_usage(tmp_path) == attempts
    begun.clear()

    after = project(begun, fails=fails).run(dir=tmp_path)
    state = after.picture.state
    assert begun == []
    assert after.cost_usd == pytest.approx(before.cost_usd)
    assert (state.input_tokens, state.output_tokens) == (100 * attempts, 20 * attempts)
    assert state.wasted_cost_usd == pytest.approx(before.picture.state.wasted_cost_usd)


def test_a_file_that_is_put_back_has_its_cost_in_the_seal(tmp_path: Path) -> None:
    begun: list[str] = []
    project(begun).run(dir=tmp_path)
    spoil_usage(tmp_path)
    (tmp_path / "text.md").unlink()
    begun.clear()

    project(begun).run(dir=tmp_path)
    assert begun == []
    seal = take_apart((tmp_path / "text.md").read_bytes()).seal
    assert seal is not None
    assert seal.cost_usd == pytest.approx(PRICE)


def test_what_is_on_record_is_not_counted_twice(tmp_path: Path) -> None:
    begun: list[str] = []
    first = project(begun, fails=True).run(dir=tmp_path)
    again = project(begun, fails=True).run(dir=tmp_path)
    assert first.cost_usd == again.cost_usd == pytest.approx(2 * PRICE)
    assert begun == ["text", "text", "length"]


def test_what_another_run_has_made_is_adopted_and_was_paid_for_by_that_one(tmp_path: Path) -> None:
    """With overwrite, a run takes over a file that what differs has no part in; it cost nothing here."""
    begun: list[str] = []
    pipe = Pipeline("p", params={"topic": str}, overwrite=True)

    @pipe.step(writes="style.md")
    def style(ctx: Any) -> str:
        begun.append("style")
        ctx.usage(input_tokens=100, output_tokens=20, cost_usd=PRICE)
        return "A style.\n"

    @pipe.step(writes="text.md")
    def text(ctx: Any, topic: str, style: str) -> str:
        begun.append(topic)
        ctx.usage(cost_usd=2 * PRICE)
        return f"{topic}: {style}"

    first = pipe.run({"topic": "kelp"}, dir=tmp_path)
    second = pipe.run({"topic": "foam"}, dir=tmp_path)
    assert begun == ["style", "kelp", "foam"]
    assert (first.cost_usd, second.cost_usd) == (3 * PRICE, 2 * PRICE)
