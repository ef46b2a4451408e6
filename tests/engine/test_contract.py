"""The contract's pipelines run unchanged, and what they give is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Harness, RunResult

CONTRACT = Path(__file__).parent.parent / "contract"


def run(name: str, project: Path, **params: object) -> RunResult:
    return Harness(project).run(str(CONTRACT / name), params=params)


def test_fanout(tmp_path: Path) -> None:
    """Items made by a step fan out, costs add up, and the gather has them in order."""
    result = run("fanout.py", tmp_path, question="why?")
    assert result.status == "completed"
    assert list(result.outputs["summarise"]) == ["st-1", "st-2", "st-3", "st-4"]
    assert result.cost_usd == pytest.approx(0.008)
    assert result.outputs["synthesise"].count("# st-") == 4
    assert run("fanout.py", tmp_path, question="why?").run_id == result.run_id
    assert len(Harness(tmp_path).events("once_recorded")) == 4


def test_loop(tmp_path: Path) -> None:
    """Four stages in a row; a second task takes over the paths."""
    result = run("loop.py", tmp_path)
    assert result.outputs["reviewer"].endswith("accepted.\n")
    other = run("loop.py", tmp_path, task="T23.2")
    assert (other.status, "T23.2" in other.outputs["scout"]) == ("completed", True)
    assert other.run_id != result.run_id


def test_reviews(tmp_path: Path) -> None:
    """Each draft is sent back once with its feedback; the second round is accepted."""
    result = run("reviews.py", tmp_path)
    assert result.status == "completed"
    assert result.outputs["bind"] == "# ch01\n\nwith sources\n\n# ch02\n\nwith sources\n"
    rewound = Harness(tmp_path).events("task_rewound")
    assert [(e["step_id"], e["feedback"]) for e in rewound] == [
        ("draft[ch01]", ["name your sources"]),
        ("draft[ch02]", ["name your sources"]),
    ]
    assert "round=1" in (tmp_path / "drafts/ch01.md").read_text().splitlines()[-1]
