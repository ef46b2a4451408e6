"""Steps that are called like inputs which are no outputs: `version`, `item`, `reads`. Each counts on its own."""

from __future__ import annotations

from pathlib import Path

from holdfast import Context, Pipeline


def make(ran: list[str], *, raised: int = 1, outcome: str = "same", title: str = "t") -> Pipeline:
    pipe = Pipeline("p")

    @pipe.step(version=raised)
    def version() -> str:
        return outcome

    @pipe.step(version=raised)
    def reads(version: str) -> str:
        ran.append("reads")
        return version

    @pipe.step(reads="in.txt")
    def use(reads: str) -> str:
        ran.append("use")
        return reads

    pipe.items("thing", [{"id": "a", "title": title}])

    @pipe.step(each="thing")
    def item(thing: str) -> str:
        return thing

    @pipe.step(each="thing")
    def about(ctx: Context, item: str) -> str:
        ran.append("about")
        return f"{item} {ctx.item['title']}"

    return pipe


def test_a_raised_version_counts_beside_a_step_called_version(tmp_path: Path) -> None:
    """The step that takes it runs again, as any other would."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    ran.clear()
    make(ran, raised=2).run(dir=tmp_path)
    assert ran == ["reads"]


def test_an_output_counts_beside_files_that_are_read(tmp_path: Path) -> None:
    """What a step called `reads` gives is an input also where `reads` names files."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    ran.clear()
    result = make(ran, raised=2, outcome="other").run(dir=tmp_path)
    assert (ran, result.outputs["use"]) == (["reads", "use"], "other")


def test_the_fields_of_an_item_count_beside_a_step_called_item(tmp_path: Path) -> None:
    """Another title is another input, although the step called `item` gives the same."""
    ran: list[str] = []
    make(ran).run(dir=tmp_path)
    ran.clear()
    make(ran, title="u").run(dir=tmp_path)
    assert ran == ["about"]
