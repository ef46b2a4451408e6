"""Files that agents wrote, without seals: adopted as what the step would have given, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult
from holdfast import Pipeline
from holdfast.errors import UsageError

from .projects import gated_pipeline


class Plain:
    """One step whose file lies there, and a consumer that keeps what it received."""

    def __init__(self, root: Path, writes: Any, annotation: Any, marker: str | None = None) -> None:
        self.root, self.writes, self.annotation, self.marker = root, writes, annotation, marker
        self.made: list[str] = []
        self.received: Any = None

    def pipeline(self) -> Pipeline:
        pipe = Pipeline("p")

        def meta() -> Any:
            self.made.append("meta")
            return {"made": True} if isinstance(self.writes, str) else {"data": {"made": True}}

        if self.annotation is not None:
            meta.__annotations__["return"] = self.annotation
        else:
            meta.__annotations__.clear()
        pipe.step(writes=self.writes, marker=self.marker)(meta)

        @pipe.step
        def use(meta: Any) -> None:
            self.received = meta

        return pipe

    def run(self, **settings: Any) -> RunResult:
        self.made.clear()
        return Harness(self.root).run(self.pipeline(), **settings)


@pytest.mark.parametrize(
    ("writes", "annotation", "received"),
    [
        ("meta.json", dict[str, Any], {"c": 1}),
        ("meta.json", None, {"c": 1}),
        ("meta.json", str, '{"c": 1}'),
        ("meta.json", bytes, b'{"c": 1}'),
        ("meta.txt", dict[str, Any], {"c": 1}),
        ("meta.txt", None, '{"c": 1}'),
        ("meta.md", dict[str, Any], {"c": 1}),
        ({"data": "meta.json"}, dict[str, Any], {"data": {"c": 1}}),
        ({"data": "meta.json"}, dict[str, str], {"data": '{"c": 1}'}),
    ],
)
def test_a_plain_file_reaches_consumers_in_the_form_of_its_step(
    tmp_path: Path, writes: Any, annotation: Any, received: Any
) -> None:
    """What the annotation says it gives; without one, a file called .json holds JSON."""
    path = tmp_path / (writes if isinstance(writes, str) else writes["data"])
    path.write_text('{"c": 1}')
    project = Plain(tmp_path, writes, annotation)
    assert project.run().status == "completed"
    assert (project.made, project.received) == ([], received)
    assert project.run().status == "completed" and not project.made


def test_a_plain_file_of_a_step_that_gives_a_path_is_received_as_one(tmp_path: Path) -> None:
    """A consumer that opens it gets what it can open."""
    (tmp_path / "meta.txt").write_text("large")
    project = Plain(tmp_path, "meta.txt", Path)
    assert project.run().status == "completed"
    assert (project.made, project.received) == ([], tmp_path / "meta.txt")
    assert project.run().status == "completed" and not project.made


@pytest.mark.parametrize(("annotation", "made"), [(bytes, []), (Path, []), (str, ["meta"])])
def test_a_plain_file_of_bytes_is_adopted_where_its_step_gives_bytes(
    tmp_path: Path, annotation: Any, made: list[str]
) -> None:
    """A picture needs no marker; where text is expected, it is no output."""
    (tmp_path / "meta.png").write_bytes(b"\x89PNG\0\xff")
    project = Plain(tmp_path, "meta.png", annotation)
    project.run()
    assert project.made == made
    if annotation is bytes:
        assert project.received == b"\x89PNG\0\xff"


@pytest.mark.parametrize("text", ['{"c": ', "c: 1", '{"c": 1} {"c": 2}'])
def test_json_that_is_cut_is_not_adopted(tmp_path: Path, text: str) -> None:
    """It is half-finished: kept as a backup, and its step runs."""
    (tmp_path / "meta.json").write_text(text)
    project = Plain(tmp_path, "meta.json", dict[str, Any])
    (found,) = Harness(tmp_path).scan(project.pipeline()).files
    assert (found.kind, found.detail) == ("half-finished", "is not whole JSON")
    assert project.run().status == "completed"
    assert (project.made, project.received) == (["meta"], {"made": True})
    (kept,) = tmp_path.glob("meta.json.bak.*")
    assert kept.read_text() == text


def test_json_that_is_cut_cannot_be_kept(tmp_path: Path) -> None:
    """No consumer could be given it: the question stays until it is mended, or made again."""
    (tmp_path / "meta.json").write_text('{"c": ')
    project = Plain(tmp_path, "meta.json", dict[str, Any])
    result = project.run(on_partial="ask")
    assert (result.status, project.made) == ("paused", [])
    with pytest.raises(UsageError, match=r"cannot be kept, for meta\.json is not whole"):
        Harness(tmp_path).decide("meta", "keep", run_id=result.run_id)
    assert (project.run(on_partial="ask").status, project.made) == ("paused", [])
    (tmp_path / "meta.json").write_text('{"c": 1}')
    assert project.run(on_partial="ask").status == "completed"
    assert (project.made, project.received) == ([], {"c": 1})
    assert [event["evidence"] for event in Harness(tmp_path).events("task_adopted")] == ["exists"]


def test_a_plain_file_that_its_check_refuses_is_set_aside_with_the_reason(tmp_path: Path) -> None:
    """What the check objects to is told, not that the file proves nothing."""
    (tmp_path / "draft.md").write_text("TODO\n<!-- DRAFT_COMPLETE -->\n")
    pipe = Pipeline("p")

    @pipe.step(writes="draft.md", check=lambda output: "has TODO" if "TODO" in output else None)
    def draft() -> str:
        return "done\n"

    assert pipe.run(dir=tmp_path).outputs["draft"] == "done\n"
    (event,) = Harness(tmp_path).events("artifact_set_aside")
    assert (event["path"], event["reason"]) == ("draft.md", "refused by its check: has TODO")


@pytest.mark.parametrize(
    ("text", "recovered", "resumed"), [("fine", "adopt", "completed"), ("TODO", "run", "failed")]
)
def test_a_file_somebody_wrote_for_a_step_that_failed_counts_whoever_looks(
    tmp_path: Path, text: str, recovered: str, resumed: str
) -> None:
    """`recover` decides as `resume` does, as does a run without new attempts; what `check` refuses waits."""
    pipe = Pipeline("p")

    @pipe.step(writes="draft.md", check=lambda output: "has TODO" if "TODO" in output else None)
    def draft() -> str:
        raise ValueError("no model to be had")

    assert pipe.run(dir=tmp_path).status == "failed"
    (tmp_path / "draft.md").write_text(f"{text}\n<!-- DRAFT_COMPLETE -->\n")
    harness = Harness(tmp_path)
    assert [task.action for task in harness.recover(pipe, dry_run=True).tasks] == [recovered]
    assert harness.run(pipe, no_retry=True).status == resumed
    assert len(Harness(tmp_path).events("task_adopted")) == (resumed == "completed")
    assert len(Harness(tmp_path).events("node_enter")) == 1


def test_a_plain_file_opens_no_gate_that_is_put_before_it(tmp_path: Path) -> None:
    """Somebody else wrote it, and no run ever passed that way: the gate asks."""
    (tmp_path / "b.md").write_text("text\n<!-- B_COMPLETE -->\n")
    assert gated_pipeline(gated=False).run(dir=tmp_path).status == "failed"
    assert gated_pipeline(gated=True).run(dir=tmp_path).status == "paused"
    assert not Harness(tmp_path).events("gate_approved")


@pytest.mark.parametrize(("marker", "ending"), [("META_COMPLETE", "<!-- META_COMPLETE -->\n"), (None, "")])
def test_files_of_which_some_got_their_seals_are_adopted_all_the_same(
    tmp_path: Path, marker: str | None, ending: str
) -> None:
    """Whoever adopts several files seals one after the other and may be killed in between: it is one set."""
    project = Plain(tmp_path, {"page": "page.md", "notes": "notes.md"}, None, marker)
    for name in ("page", "notes"):
        (tmp_path / f"{name}.md").write_text(f"the {name} of an agent\n{ending}")
    plain = (tmp_path / "notes.md").read_bytes()
    run_id = project.run().run_id
    (tmp_path / "notes.md").write_bytes(plain)
    shutil.rmtree(tmp_path / ".holdfast")
    result = project.run()
    assert (result.status, result.run_id, project.made) == ("completed", run_id, [])
    assert project.received == {"page": "the page of an agent\n", "notes": "the notes of an agent\n"}


def test_a_plain_file_beside_a_sealed_one_of_another_set_is_not_adopted(tmp_path: Path) -> None:
    """The seal says with which bytes it belongs together: others prove nothing."""
    project = Plain(tmp_path, {"page": "page.md", "data": "data.md"}, None, "META_COMPLETE")
    for name in ("page", "data"):
        (tmp_path / f"{name}.md").write_text("of an agent\n<!-- META_COMPLETE -->\n")
    project.run()
    (tmp_path / "data.md").write_text("of somebody else\n<!-- META_COMPLETE -->\n")
    shutil.rmtree(tmp_path / ".holdfast")
    project.run()
    assert project.made == ["meta"]


def test_a_plain_marker_proves_nothing_of_work_that_was_accepted_once(tmp_path: Path) -> None:
    """What was accepted is damaged and is to be made again: another text with a marker does not take its place."""
    pipe, path, ran = Pipeline("p"), tmp_path / "draft.md", []

    @pipe.step(writes="draft.md", copy=False)
    def draft() -> str:
        ran.append("draft")
        return "the draft\n"

    pipe.run(dir=tmp_path)
    path.write_bytes(b"\0")
    assert pipe.run(dir=tmp_path, budget_usd=0.0).status == "paused"
    path.write_text("another draft\n<!-- DRAFT_COMPLETE -->\n")
    assert pipe.run(dir=tmp_path, budget_usd=1.0).status == "completed"
    assert (path.read_text().startswith("the draft\n"), ran) == (True, ["draft", "draft"])
    (kept,) = tmp_path.glob("draft.md.bak.*")
    assert kept.read_text().startswith("another draft\n")
