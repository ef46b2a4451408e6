"""Actions: what each foretells is what it does, and a task that never comes to rest is asked about."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from holdfast import Pipeline, Project
from holdfast import events as ev
from holdfast.artifacts.files import Files
from holdfast.artifacts.looks import CHANGED, Look
from holdfast.decisions import Action
from holdfast.engine.advance import ACTIONS_MAX, Pass
from holdfast.recovery.actions import Do


def pipeline(folder: str = "drafts", version: int = 1, marker: str = "DONE") -> Pipeline:
    pipe = Pipeline("p")
    pipe.items("n", ["a", "b"])

    @pipe.step(writes="plan.md")
    def plan() -> str:
        return "the plan\n"

    @pipe.step(each="n", writes=f"{folder}/{{n}}.md", marker=marker)
    def draft(n: str, plan: str) -> str:
        return f"{n}: {plan}"

    @pipe.step(each="n", writes={"table": "tables/{n}.csv", "page": "tables/{n}.md"}, version=version)
    def table(n: str, draft: str) -> dict[str, str]:
        return {"table": f"{n};1\n", "page": draft}

    if version == 2:
        pipe.migration("table", 1)(lambda before: {**before, "table": before["table"].strip() + ";2\n"})

    @pipe.step(each="n", appends="words.md", sources=["draft"])
    def words(source: str) -> str:
        return source

    return pipe


def damage(root: Path, dice: Random) -> None:
    """Some files deleted, emptied, edited, cut or exchanged; sometimes the record, or objects, with them."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and ".holdfast" not in path.parts]
    for path in dice.sample(files, 3):
        data = path.read_bytes()
        harms = [
            path.unlink,
            lambda path=path: path.write_bytes(b""),
            lambda path=path: path.write_bytes(b"\0\0"),
            lambda path=path, data=data: path.write_bytes(b"A person's words.\n" + data),
            lambda path=path, data=data: path.write_bytes(data[: len(data) // 2]),
            lambda path=path: shutil.copy(dice.choice(files[:1]), path) if path != files[0] else None,
        ]
        dice.choice(harms)()
    if dice.random() < 0.4:
        shutil.rmtree(root / ".holdfast" / dice.choice(["runs", "objects"]))
    choice = dice.choice(["ask", "keep", "restore"])
    (root / "holdfast.toml").write_text(f'[run]\non_changed = "{choice}"\n')


@pytest.mark.parametrize("seed", range(30))
def test_what_is_foretold_is_what_is_done(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Event for event, and each file then looks as it was said to."""
    assert pipeline().run(dir=tmp_path, run_id="r").status == "completed"
    dice = Random(seed)
    damage(tmp_path, dice)
    seen: list[Action] = []

    def carry_out(self: Pass, actions: Iterable[Action]) -> bool:
        files, before = self.inputs.artifacts.files, len(seen)
        for action in actions:
            seen.append(action)
            foretold = action.foretell()
            done = list(action.perform())
            self.record_all(done)
            if not isinstance(action, Do):  # what another part of the code does is only outlined
                assert [timeless(event) for event in done] == [timeless(event) for event in foretold.events]
            for path, found in foretold.looks.items():
                names = tuple(node.id for node in self.inputs.graph.tasks())
                assert files.look(path, names, None).kind == found.kind, (action, path)
        return len(seen) > before

    monkeypatch.setattr(Pass, "carry_out", carry_out)
    now = pipeline(dice.choice(["drafts", "texts"]), dice.choice([1, 2]), dice.choice(["DONE", "READY"]))
    Project.open(tmp_path).recover(now)
    assert seen


def timeless(event: ev.Event) -> tuple[type, str, object]:
    """An event but for names that tell the moment, and for marks."""
    files = getattr(event, "files", ())
    return type(event), event.step_id, [(file.path, file.sha256) for file in files]


def test_a_file_that_is_another_one_at_each_look_becomes_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever keeps changing it: the run neither trusts it nor goes on for ever."""
    pipe = Pipeline("p")
    pipe.step(name="one", writes="one.md")(lambda: "one\n")
    pipe.run(dir=tmp_path, run_id="r")
    (tmp_path / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    check, looks = Files.check, 0

    def changing(self: Files, *args: object) -> Look:
        nonlocal looks
        looks += 1
        body = f"A person's words, {looks} of them.\n".encode()
        found = check(self, *args)  # type: ignore[arg-type]
        return Look(CHANGED, "edited", body, found.seal)

    monkeypatch.setattr(Files, "check", changing)
    result = Project.open(tmp_path).run(pipe, resume="r")
    assert (result.status, result.needs_review) == ("paused", ["one"])
    assert looks < 10 * ACTIONS_MAX
