"""The short way to a decision: what is taken over at once is what the long way takes over, event for event.

HOLDFAST_DAMAGE_SEEDS=N tries so many projects with other damage.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.engine.projects import events_of
from tests.scenarios.damages import FILE_DAMAGES

from holdfast import Context, Pipeline, seals
from holdfast import events as ev
from holdfast.decisions import SEALED_WHOLE
from holdfast.engine.commit import Recorded
from holdfast.layout import ProjectLayout
from holdfast.project.recover import Recovery, recover
from holdfast.project.run import Hooks, execute
from holdfast.recovery.shortcut import Shortcut
from holdfast.runs.choosing import Request
from holdfast.stores import ahead, objects

SEEDS = range(int(os.environ.get("HOLDFAST_DAMAGE_SEEDS", "16")))
WHEN = {"seq", "ts", "v", "prev", "sum", "host", "pid", "to", "findings"}  # what differs between two recoveries

Project = Callable[[str], Path]


CHANGES = ("", "", "title", "version", "marker")


def pipeline(change: str = "") -> Pipeline:
    """Steps of every kind: with and without a context, a check, a copy, a value beside the file, several files.

    `change` says what somebody has changed about it.
    """
    pipe = Pipeline("both", params={"topic": (str, "tides")})
    pipe.phase("Write")
    title = "Second" if change == "title" else "Two"
    pipe.items("ch", ["one", {"id": "two", "title": title}, "three", "four"])
    version = 2 if change == "version" else 1
    marker = "REVIEWED" if change == "marker" else None

    @pipe.items("part")
    def parts(outline: str) -> list[str]:
        return ["a", "b"]

    @pipe.step(writes="out/outline.md")
    def outline(topic: str) -> str:
        return f"# {topic}"

    @pipe.step(each="ch", writes="drafts/{ch}.md", phase="Write", version=version)
    def draft(ctx: Context, ch: str, outline: str) -> str:
        ctx.usage(cost_usd=0.25, input_tokens=7)
        return f"{ch} of {outline}\n"

    @pipe.step(each="ch", writes="reviews/{ch}.html", phase="Write", marker=marker)
    def review(draft: str) -> str:
        return f"<p>{len(draft)}</p>"

    @pipe.step(each="ch", writes="tables/{ch}.csv", phase="Write", copy=False)
    def table(draft: str) -> str:
        return f"{len(draft)},1\n"

    @pipe.step(each="ch", writes="checked/{ch}.md", phase="Write", check=lambda output: "checked" in output)
    def checked(draft: str, review: str) -> str:
        return f"checked {draft}"

    @pipe.step(each="ch", writes={"text": "pairs/{ch}.md", "more": "pairs/{ch}.svg"}, phase="Write")
    def pair(draft: str) -> dict[str, Any]:
        return {"text": draft, "more": "<svg/>\n", "size": len(draft)}

    @pipe.step(each="ch", writes="sized/{ch}.md", phase="Write")
    def sized(pair: dict[str, Any]) -> str:
        return f"{pair['size']}\n"

    @pipe.step(each="ch", writes="named/{ch}.md", phase="Write")
    def named(pair: dict[str, Any], ch: str) -> str:
        return f"{ch}: {pair['size']}\n"

    @pipe.step(each="ch", writes="last/{ch}.md", phase="Write", copy=False, version=2)
    def last(checked: str, table: str, pair: dict[str, Any], topic: str) -> str:
        return f"{topic}: {checked}{table}{pair['size']}"

    @pipe.step(each="ch", phase="Write")
    def score(draft: str) -> int:
        return len(draft)

    @pipe.step(each="ch", writes="graded/{ch}.md", phase="Write")
    def graded(score: int, draft: str) -> str:
        return f"{draft}{score}\n"

    @pipe.step(each="part", writes="parts/{part}.md")
    def piece(part: str, draft: dict[str, str]) -> str:
        return part + "".join(draft.values())

    @pipe.step(each="part", writes="more/{part}.md")
    def more(piece: str, score: dict[str, int]) -> str:
        return piece + str(sum(score.values()))

    @pipe.step(writes="out/book.md")
    def book(last: dict[str, str], piece: dict[str, str]) -> str:
        return "".join([*last.values(), *piece.values()])

    return pipe


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    assert pipeline().run(dir=root, run_id="ID").status == "completed"
    return root


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Project:
    def copy(name: str) -> Path:
        shutil.copytree(finished, tmp_path / name)
        return tmp_path / name

    return copy


@pytest.fixture
def shortened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Counter[str]]:
    """Has even so few files read ahead; gives a count of the tasks that were taken over at once, by step."""
    taken: Counter[str] = Counter()
    look = Shortcut.look

    def counting(self: Shortcut, nodes: Any, parts_of: Any) -> Any:
        found = look(self, nodes, parts_of)
        taken.update(one.node.spec.name for one in found.values())
        return found

    def begin() -> Counter[str]:
        monkeypatch.setattr("holdfast.stores.tree.FILES_MIN", 1)
        monkeypatch.setattr(Shortcut, "look", counting)
        return taken

    return begin


def recovered(root: Path, change: str = "", *, dry_run: bool = False) -> Recovery:
    return recover(pipeline(change).compile(), ProjectLayout(root), Request(), dry_run=dry_run)


def told(root: Path) -> list[dict[str, Any]]:
    """The events one by one, also those that were recorded together."""
    events = [one for event in events_of(root) for one in event.get("tasks", (event,))]
    return [{key: value for key, value in event.items() if key not in WHEN} for event in events]


def edit(path: Path, dice: Random) -> None:
    """Somebody writes something above all else."""
    path.write_bytes(b"Edited.\n" + path.read_bytes())


def seal_oddly(path: Path, dice: Random) -> None:
    """A whole seal that says something else than is expected of the file."""
    parts = seals.take_apart(path.read_bytes())
    if parts.seal is None:
        return
    odd: list[dict[str, Any]] = [{"run": "OTHER"}, {"round": 1}, {"marker": "ODD"}, {"input_digest": "?"}]
    odd += [{"task": "outline"}, {"inputs": ""}, {"kind": "bytes"}, {"set_digest": "0" * 12}]
    odd += [
        {"value_digest": "0" * 64},
        {"known_as": "0" * 64},
        {"input_digest": "0" * 64},
        {"newline_added": True},
    ]
    path.write_bytes(parts.body + seals.write_seal(seals.vary(parts.seal, **dice.choice(odd))))


def lose(root: Path, dice: Random) -> None:
    """All state, sometimes but for the copies, and some artifacts; sometimes views too."""
    shutil.rmtree(root / ".holdfast" / ("runs" if dice.random() < 0.3 else ""))
    if dice.random() < 0.5:
        (root / "checkpoint.md").unlink()
    files = sorted(path for path in root.rglob("*.*") if path.is_file() and root / ".holdfast" not in path.parents)
    files = [path for path in files if path.parent != root]
    for path in dice.sample(files, dice.randrange(7)):
        dice.choice([*FILE_DAMAGES, *[edit, seal_oddly] * 4])(path, dice)
    if dice.random() < 0.3:
        (root / "drafts/two.md.part").write_text("half")
    three, four = root / "reviews/three.html", root / "reviews/four.html"
    if dice.random() < 0.3 and three.is_file() and not four.is_dir():
        four.unlink(missing_ok=True)
        shutil.copy(three, four)


@pytest.mark.parametrize("seed", SEEDS)
def test_both_ways_lead_to_the_same(project: Project, shortened: Callable[[], Counter[str]], seed: int) -> None:
    """Whatever is damaged or changed: the same decisions in the same order, the same events, the same files.

    The dry run foresees them, and there is nothing left to be done a second time.
    """
    long, short = project("long"), project("short")
    for root in (long, short):
        lose(root, random.Random(seed))
    change = random.Random(seed).choice(CHANGES)
    foreseen = recovered(long, change, dry_run=True)
    the_long_way = recovered(long, change)
    taken = shortened()
    foreseen_in_short = recovered(short, change, dry_run=True)
    assert taken
    in_short = recovered(short, change)
    assert foreseen_in_short.tasks == foreseen.tasks == the_long_way.tasks == in_short.tasks
    assert foreseen_in_short.actions == foreseen.actions
    assert told(short) == told(long)
    assert recovered(short, change).tasks == recovered(long, change).tasks
    assert told(short) == told(long)
    assert {p.name for p in (short / ".holdfast/objects").iterdir()} == {
        p.name for p in (long / ".holdfast/objects").iterdir()
    }


def test_only_steps_that_nobody_has_a_say_in_are_taken_over_at_once(
    project: Project, shortened: Callable[[], Counter[str]]
) -> None:
    """Not what a check has to see, what has its seal beside it, or several files; but what unknown inputs made."""
    root = project("short")
    shutil.rmtree(root / ".holdfast")
    taken = shortened()
    recovered(root)
    assert taken == {
        "outline": 1,
        "draft": 4,
        "review": 4,
        "sized": 4,
        "named": 4,
        "last": 4,
        "graded": 4,
        "piece": 2,
        "more": 2,
        "book": 1,
    }


def test_what_is_made_from_a_lost_value_is_not_taken_for_made_from_the_next(
    project: Project, shortened: Callable[[], Counter[str]]
) -> None:
    """A sibling needs the value again: what comes out then is compared with the seal, and asked about."""
    root = project("short")
    shutil.rmtree(root / ".holdfast")
    (root / "sized/two.md").unlink()
    shortened()
    actions = {task.id: task.action for task in recovered(root).tasks}
    assert (actions["pair[two]"], actions["sized[two]"], actions["named[two]"]) == ("redo", "run", "adopt")
    inputs = {event["step_id"]: event["inputs"] for event in told(root) if event["event"] == "task_adopted"}
    assert inputs["named[two]"]["pair"].startswith("?")
    assert not inputs["named[one]"]["pair"].startswith("?")


def test_copies_are_kept_where_their_steps_want_them(
    project: Project, shortened: Callable[[], Counter[str]]
) -> None:
    """Each object is whole, and what comes from the copies is what was there."""
    root = project("short")
    before = (root / "drafts/two.md").read_bytes()
    shutil.rmtree(root / ".holdfast")
    shortened()
    recovered(root)
    (root / "drafts/two.md").unlink()
    recovered(root)
    assert (root / "drafts/two.md").read_bytes() == before
    pack = objects.Pack(root / ".holdfast/objects/ID.pack")
    pack.refresh()
    assert pack.damage == []
    assert all(is_whole for _, is_whole in pack.prove())


def test_where_no_step_wants_copies_no_pack_is_begun(
    tmp_path: Path, shortened: Callable[[], Counter[str]]
) -> None:
    """As the dry run says: nothing is written to objects/."""
    pipe = Pipeline("uncopied")

    @pipe.step(writes="out/a.md", copy=False)
    def a() -> str:
        return "a"

    pipe.run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    taken = shortened()
    recover(pipe.compile(), ProjectLayout(tmp_path), Request())
    assert taken == {"a": 1}
    assert list((tmp_path / ".holdfast/objects").iterdir()) == []


def test_what_was_read_long_ago_is_read_again(
    project: Project, shortened: Callable[[], Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever decides may have been held up between reading and adopting, and somebody has edited meanwhile."""
    root = project("short")
    shutil.rmtree(root / ".holdfast")
    taken = shortened()
    look = Shortcut.look

    def held_up(self: Shortcut, nodes: Any, parts_of: Any) -> Any:
        found = look(self, nodes, parts_of)
        draft = root / "drafts/two.md"
        if any(one.node.id == "draft[two]" for one in found.values()):
            draft.write_bytes(b"Edited. " + draft.read_bytes())
            monkeypatch.setattr(ahead, "_FRESH_S", -1.0)
        return found

    monkeypatch.setattr(Shortcut, "look", held_up)
    actions = {task.id: task.action for task in recovered(root).tasks}
    assert taken["draft"] == 4
    assert actions["draft[two]"] == "ask"
    assert actions["draft[one]"] == "adopt"
    adopted = [event["step_id"] for event in told(root) if event["event"] == "task_adopted"]
    assert len(adopted) == len(set(adopted))


def test_observers_hear_of_each_task(project: Project, shortened: Callable[[], Counter[str]]) -> None:
    """That some were recorded together is nobody's business but the journal's."""
    heard: dict[str, list[str]] = {}
    for name in ("long", "short"):
        root = project(name)
        shutil.rmtree(root / ".holdfast")
        adopted = heard[name] = []

        def observe(recorded: Sequence[Recorded], adopted: list[str] = adopted) -> None:
            adopted += [one.event.step_id for one in recorded if isinstance(one.event, ev.TaskAdopted)]

        execute(pipeline().compile(), ProjectLayout(root), Request(), Hooks(on_events=observe))
        taken = shortened()
    assert taken["draft"] == 4
    assert sorted(heard["short"]) == sorted(heard["long"])
    assert "draft[two]" in heard["short"]


def test_what_is_adopted_at_once_has_the_words_of_the_long_way() -> None:
    """A reader of the plan cannot tell which way was gone."""
    assert SEALED_WHOLE.reason == "whole and sealed, only the record was missing"
