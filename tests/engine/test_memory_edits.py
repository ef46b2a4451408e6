"""What a person writes into a memory file: kept only if its step's check has no objection, and never lost."""

from __future__ import annotations

from pathlib import Path

from harness import Harness
from holdfast import Pipeline


def objection(output: str) -> str | None:
    return "it is rude" if "rude" in output else None


def glossary(parts: list[str], *, version: int = 1) -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("part", [{"id": part, "batch": number} for number, part in enumerate(parts, 1)])

    @pipe.step(each="part", appends="glossary.md", check=objection, version=version)
    def terms(part: str) -> str:
        return f"terms of {part}\n" if version < 3 else f"better terms of {part}\n"

    return pipe


def test_an_older_version_of_the_file_that_is_put_back_is_asked_about(tmp_path: Path) -> None:
    """Each of its sections is whole and sealed, and none is what was accepted last."""
    pipe, path = glossary(["a", "b"], version=3), tmp_path / "glossary.md"
    glossary(["a", "b"]).run(dir=tmp_path)
    old = path.read_bytes()
    assert pipe.run(dir=tmp_path).status == "completed"
    new = path.read_bytes()
    path.write_bytes(old)
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.needs_review, path.read_bytes()) == ("paused", ["terms[a]", "terms[b]"], old)
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "restore"\n')
    assert pipe.run(dir=tmp_path).status == "completed"
    assert path.read_bytes() == new


def test_an_edited_section_that_its_check_refuses_is_not_kept(tmp_path: Path) -> None:
    """It is asked about, as an edited file is: otherwise a run would end as complete that `verify` objects to."""
    pipe = glossary(["a", "b"])
    run_id = pipe.run(dir=tmp_path).run_id
    path = tmp_path / "glossary.md"
    path.write_text(path.read_text().replace("terms of a", "rude terms of a"))
    edited = path.read_text()
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.needs_review) == ("paused", ["terms[a]"])
    assert path.read_text() == edited
    path.write_text(edited.replace("rude", "kind"))
    assert pipe.run(dir=tmp_path).status == "completed"
    assert "kind terms of a" in path.read_text()
    assert Harness(tmp_path).verify(run_id).findings == []


def test_an_edited_section_that_was_kept_lies_beside_when_its_step_runs_again(tmp_path: Path) -> None:
    """No step can make a person's words again, and nobody should have to look for them among the objects."""
    glossary(["a", "b"]).run(dir=tmp_path)
    path = tmp_path / "glossary.md"
    path.write_text(path.read_text().replace("terms of a", "MY terms of a"))
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    assert glossary(["a", "b"]).run(dir=tmp_path).status == "completed"
    assert glossary(["a", "b"], version=2).run(dir=tmp_path).status == "completed"
    assert "MY terms" not in path.read_text()
    (kept,) = tmp_path.glob("glossary.md.bak.*")
    assert "MY terms of a" in kept.read_text()


def test_an_item_made_at_run_time_does_not_take_the_path_of_a_memory_file(tmp_path: Path) -> None:
    """Both would write there in turn, and each would find its work spoiled: whoever comes second waits."""
    pipe = Pipeline("p")

    @pipe.items("part")
    def parts() -> list[str]:
        return ["a", "glossary"]

    @pipe.step(each="part", writes="{part}.md")
    def draft(part: str) -> str:
        return f"draft of {part}\n"

    @pipe.step(each="part", appends="glossary.md")
    def terms(part: str, draft: str) -> str:
        return f"terms of {part}\n"

    for _ in range(2):
        result = pipe.run(dir=tmp_path)
        assert (result.status, result.needs_review) == ("paused", ["terms[a]", "terms[glossary]"])
        assert Harness(tmp_path).verify(result.run_id).findings == []
    assert (tmp_path / "glossary.md").read_text().startswith("draft of glossary\n")
