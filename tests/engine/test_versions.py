"""Steps whose version was raised: migrated, redone, or, by an older pipeline, left untouched."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import Harness, RunResult
from holdfast import Context, Pipeline
from holdfast.errors import DefinitionError, UsageError
from holdfast.stores import disk
from sampling import every


def add_urls(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "urls": []}


class Planned:
    """`plan` in a form that its version decides; `one` takes it, and `two` only when it is wanted."""

    def __init__(self, root: Path, writes: Any = "plan.json", **options: Any) -> None:
        self.root, self.writes, self.options = root, writes, options
        self.made: list[str] = []
        self.received: dict[str, Any] = {}

    def pipeline(self, version: int, migrate: Callable[[Any], Any] | None, with_two: bool) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes=self.writes, version=version, **self.options)
        def plan(ctx: Context) -> Any:
            self.made.append("plan")
            value: dict[str, Any] = {"topic": "kelp", "version": version}
            if isinstance(self.writes, dict):
                value["text"] = f"text of version {version}\n"
            if "data" in self.writes:
                ctx.out.write_text("a large file\n")
                value["data"] = ctx.out
            return value

        @pipe.step(writes="one.md")
        def one(plan: Any) -> str:
            self.made.append("one")
            return f"{plan['topic']}\n"

        if with_two:

            @pipe.step
            def two(plan: Any) -> None:
                self.made.append("two")
                self.received = plan

        if migrate is not None:
            pipe.migration("plan", 1)(migrate)
        return pipe

    def run(
        self,
        version: int = 1,
        migrate: Callable[[Any], Any] | None = None,
        *,
        with_two: bool = False,
        **wishes: Any,
    ) -> RunResult:
        self.made.clear()
        pipe = self.pipeline(version, migrate, with_two)
        return Harness(self.root).run(pipe, **wishes)

    def forget(self, event: str) -> None:
        """Take the journal back to before this event, as a kill leaves it."""
        journal = Harness(self.root).journal()
        lines = journal.read_bytes().splitlines(keepends=True)
        cut = next(n for n, line in enumerate(lines) if f'"event":"{event}"'.encode() in line)
        journal.write_bytes(b"".join(lines[:cut]))
        for snapshot in journal.parent.glob("checkpoint_*"):
            snapshot.unlink()


FORMS = ["plan.json", {"text": "plan.md"}, {"text": "plan.md", "data": "large.bin"}]


@pytest.fixture(params=FORMS, ids=["json", "file and value", "large file"])
def planned(request: pytest.FixtureRequest, tmp_path: Path) -> Planned:
    project = Planned(tmp_path, request.param)
    assert project.run().status == "completed"
    return project


def migrated(project: Planned, result: RunResult, made: list[str]) -> None:
    """`two` received the new form, nothing but `made` ran, and all is proved."""
    assert (result.status, project.made) == ("completed", made)
    assert project.received["urls"] == [] and project.received["version"] == 1
    assert result.outputs["plan"] == project.received
    assert not Harness(project.root).verify(result.run_id).findings
    assert project.run(2, add_urls, with_two=True).status == "completed"
    assert not project.made


def test_a_migration_changes_the_files_too(planned: Planned) -> None:
    """Consumers receive the new form wherever it is kept; those that are finished stay so."""
    migrated(planned, planned.run(2, add_urls, with_two=True), ["two"])
    if planned.writes == "plan.json":
        assert json.loads((planned.root / "plan.json").read_text())["urls"] == []


def test_a_migration_killed_before_its_record_is_not_taken_for_an_edit(planned: Planned) -> None:
    """The files have the new form, the journal the old one: nobody is asked, and nothing runs again."""
    planned.run(2, add_urls)
    planned.forget("value_migrated")
    migrated(planned, planned.run(2, add_urls, with_two=True), ["two"])


def test_a_damaged_file_is_healed_and_then_migrated(planned: Planned) -> None:
    """In one run: a consumer never receives the old form."""
    for path in planned.root.glob("plan.*"):
        path.unlink()
    migrated(planned, planned.run(2, add_urls, with_two=True), ["two"])


def test_with_the_record_lost_an_old_file_is_adopted_and_migrated(tmp_path: Path) -> None:
    """It is paid for no more than it would be with the record; nothing is asked."""
    project = Planned(tmp_path)
    project.run()
    shutil.rmtree(tmp_path / ".holdfast")
    migrated(project, project.run(2, add_urls, with_two=True), ["two"])
    assert not Harness(tmp_path).events("question_asked")


def test_a_migrated_file_is_known_to_its_consumers_also_when_the_record_is_lost(tmp_path: Path) -> None:
    """Its seal says what they were made from: nothing is asked, and nothing is stale; also after a heal."""
    project = Planned(tmp_path)
    project.run()
    project.run(2, add_urls)
    (tmp_path / "plan.json").unlink()
    project.run(2, add_urls)
    shutil.rmtree(tmp_path / ".holdfast")
    found = Harness(tmp_path).scan(project.pipeline(2, add_urls, False)).files
    assert {finding.kind for finding in found} == {"sealed"}
    result = project.run(2, add_urls)
    assert (result.status, project.made) == ("completed", [])
    assert result.outputs["plan"]["urls"] == []


def test_with_the_record_lost_a_raised_version_is_redone(tmp_path: Path) -> None:
    """It is the same wish, so it is not refused: the old file is set aside, and its step runs."""
    project = Planned(tmp_path)
    project.run()
    shutil.rmtree(tmp_path / ".holdfast")
    (tmp_path / "one.md").unlink()  # it would tell by itself what it was made from
    assert project.run(2).status == "completed"
    assert project.made == ["plan", "one"]
    assert list(tmp_path.glob("plan.json.bak.*"))


def boom(value: Any) -> Any:
    raise RuntimeError("no such key")


@pytest.mark.parametrize(
    ("migrate", "words"),
    [(boom, "raised RuntimeError: no such key"), (lambda value: {"a": {1}}, "gives what cannot be stored")],
)
def test_a_migration_that_fails_is_a_mistake_in_the_pipeline(
    tmp_path: Path, migrate: Callable[[Any], Any], words: str
) -> None:
    """It is named, and what was made is untouched: mended, it goes on from there."""
    project = Planned(tmp_path)
    project.run()
    before = (tmp_path / "plan.json").read_bytes()
    with pytest.raises(DefinitionError, match=f"plan: its migration from version 1 to 2 {words}"):
        project.run(2, migrate)
    assert (tmp_path / "plan.json").read_bytes() == before
    migrated(project, project.run(2, add_urls, with_two=True), ["two"])


@pytest.mark.parametrize("is_lost", [False, True])
def test_an_older_pipeline_leaves_newer_work_untouched(tmp_path: Path, is_lost: bool) -> None:
    """It is refused, with and without the record, until the step is named with --redo."""
    project = Planned(tmp_path)
    project.run(3)
    if is_lost:
        shutil.rmtree(tmp_path / ".holdfast")
    before = (tmp_path / "plan.json").read_bytes()
    with pytest.raises(UsageError, match="plan was made by version 3 of its step"):
        project.run(2)
    with pytest.raises(UsageError, match="version 3"):
        Harness(tmp_path).plan(project.pipeline(2, None, False))
    assert (not project.made, (tmp_path / "plan.json").read_bytes()) == (True, before)
    project.run(2, redo=("plan",))
    assert project.made[0] == "plan"


def test_a_newer_pipeline_goes_on_after_an_older_one_was_refused(tmp_path: Path) -> None:
    """The refusal left no trace."""
    project = Planned(tmp_path)
    project.run(3)
    with pytest.raises(UsageError):
        project.run(2)
    assert project.run(3).status == "completed"
    assert not project.made


def test_an_input_that_was_lost_is_still_compared_after_a_migration(tmp_path: Path) -> None:
    """The record is lost, the file migrated, and then its input made again, the same: nobody is asked."""
    made: list[str] = []

    def pipeline(version: int) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step
        def seed() -> int:
            made.append("seed")
            return 7

        @pipe.step(writes="plan.json", version=version)
        def plan(seed: int) -> dict[str, Any]:
            made.append("plan")
            return {"seed": seed}

        @pipe.step(writes="two.md")
        def two(seed: int) -> str:
            made.append("two")
            return f"{seed}\n"

        if version == 2:
            pipe.migration("plan", 1)(add_urls)
        return pipe

    pipeline(1).run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    made.clear()
    assert pipeline(2).run(dir=tmp_path).status == "completed"
    assert not made
    (tmp_path / "two.md").unlink()
    shutil.rmtree(tmp_path / ".holdfast" / "objects")
    result = pipeline(2).run(dir=tmp_path)
    assert (result.status, made) == ("completed", ["seed", "two"])
    assert result.outputs["plan"] == {"seed": 7, "urls": []}


def add_words(value: dict[str, Any]) -> dict[str, Any]:
    return {**add_urls(value), "text": f"{value.get('text', '')}more words\n"}


def migrate_killed_at(project: Planned, number: int) -> bool:
    """Migrate in a process that dies before its `number`-th operation, from the first on a file on."""
    child = os.fork()
    if not child:
        seen: list[str] = []

        def die(op: str, path: str) -> None:
            if seen or os.path.basename(path).startswith(("plan.", "large.")):
                seen.append(path)
            if len(seen) == number:
                os._exit(9)

        disk.hook = die
        project.run(2, add_words)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.parametrize(
    ("writes", "loses"),
    [
        ("plan.json", ""),
        ("plan.json", ".holdfast/runs"),
        ("plan.json", ".holdfast"),
        ({"text": "plan.csv"}, ""),
        ({"text": "plan.md", "data": "large.bin"}, ""),
    ],
)
@pytest.mark.usefixtures("unsynced")
def test_a_migration_killed_at_any_moment_is_not_paid_for_again(tmp_path: Path, writes: Any, loses: str) -> None:
    """Although nothing has a copy: a file is proved in its old form or in the new one, whichever is there."""
    first = Planned(tmp_path / "first", writes, copy=False)
    first.root.mkdir()
    first.run()
    for number in every(9, f"{writes} {loses}"):
        project = Planned(tmp_path / str(number), writes, copy=False)
        shutil.copytree(first.root, project.root)
        is_killed = migrate_killed_at(project, number)
        if loses:
            shutil.rmtree(project.root / loses)
        migrated(project, project.run(2, add_words, with_two=True), ["two"])
        if not is_killed:
            break
    assert number > 3


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("checked", [False, True])
def test_an_edit_that_is_kept_is_migrated_before_anybody_takes_it(
    tmp_path: Path, checked: bool, is_killed: bool
) -> None:
    """Consumers and `check` see the edit in the form of the new version, and the old form never; also if a kill
    comes before both are on record."""
    received: list[str] = []

    def pipeline(version: int) -> Pipeline:
        pipe = Pipeline("p")

        def upper(output: str) -> bool:
            return version == 1 or output.isupper()

        @pipe.step(writes="plan.md", version=version, check=upper if checked else [])
        def plan() -> str:
            return "text\n"

        @pipe.step(writes="one.md")
        def one(plan: str) -> str:
            received.append(plan)
            return plan

        if version == 2:
            pipe.migration("plan", 1)(lambda value: value.upper())
        return pipe

    run = pipeline(1).run(dir=tmp_path)
    before = (tmp_path / "one.md").read_text()
    (tmp_path / "plan.md").write_text(f"edited\n{(tmp_path / 'plan.md').read_text()}")
    Harness(tmp_path).decide("plan", "keep", run_id=run.run_id)
    if is_killed:
        shutil.copytree(tmp_path / ".holdfast", tmp_path / "kept")
        pipeline(2).run(dir=tmp_path)
        shutil.rmtree(tmp_path / ".holdfast")
        (tmp_path / "kept").rename(tmp_path / ".holdfast")
        (tmp_path / "one.md").write_text(before)
        received.pop()
    result = pipeline(2).run(dir=tmp_path)
    assert (result.status, received) == ("completed", ["text\n", "EDITED\nTEXT\n"])
    assert (tmp_path / "one.md").read_text().startswith("EDITED\n")
    assert not Harness(tmp_path).verify(run.run_id).findings
    assert pipeline(2).run(dir=tmp_path).status == "completed"
    assert len(received) == 2


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("writes", ["plan.json", {"text": "plan.md", "data": "plan.json"}])
def test_a_killed_migration_is_gone_on_with_by_a_newer_pipeline(tmp_path: Path, writes: Any, copy: bool) -> None:
    """The files have the form of version 2, the record that of 1: they are no edit, and no step is taken twice."""
    project = Planned(tmp_path, writes, copy=copy)
    received: list[Any] = []

    def pipeline(version: int) -> Pipeline:
        pipe = Pipeline("p")

        @pipe.step(writes=writes, version=version, copy=copy)
        def plan() -> dict[str, Any]:
            return {"text": "text\n", "data": ["made"], "rest": ["made"]}

        @pipe.step(version=version)
        def one(plan: Any) -> None:
            received.append(plan)

        for old in range(1, version):
            pipe.migration("plan", old)(
                lambda value, to=old + 1: {
                    "text": f"{value['text']}to {to}\n",
                    **{key: [*value[key], to] for key in ("data", "rest")},
                }
            )
        return pipe

    for version in (1, 2):
        pipeline(version).run(dir=tmp_path)
    project.forget("value_migrated")
    assert pipeline(3).run(dir=tmp_path).status == "completed"
    assert received[-1] == {"text": "text\nto 2\nto 3\n", "data": ["made", 2, 3], "rest": ["made", 2, 3]}


def test_verify_knows_that_a_value_can_be_migrated(tmp_path: Path) -> None:
    """A lost value of an earlier version, which nothing needs, is not called stale if a migration is there."""

    def declared(version: int) -> Pipeline:
        pipe = Pipeline("p")
        pipe.step(lambda: {"n": 1}, name="plan", version=version)
        pipe.step(lambda plan: "text", name="draft", writes="draft.md")
        if version == 2:
            pipe.migration("plan", 1)(lambda value: {**value, "m": 2})
        return pipe

    assert declared(1).run(dir=tmp_path).status == "completed"
    shutil.rmtree(tmp_path / ".holdfast")
    assert declared(1).run(dir=tmp_path).status == "completed"
    assert declared(2).run(dir=tmp_path).status == "completed"
    assert Harness(tmp_path).verify(pipeline=declared(2)).findings == []
