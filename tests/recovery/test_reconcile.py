"""What is believed of one task: evidence in, decision out; and what is done about it: as foretold."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Pipeline, Project, decisions
from holdfast import events as ev
from holdfast.artifacts import looks as look
from holdfast.artifacts.files import Files
from holdfast.artifacts.looks import Look
from holdfast.decisions import Action
from holdfast.engine.advance import ACTIONS_MAX, Pass
from holdfast.recovery.actions import Do
from holdfast.recovery.evidence import Evidence, Policy
from holdfast.recovery.reconcile import decide, other_marker
from holdfast.seals import Seal, vary
from holdfast.state import COMPLETED, NEEDS_REVIEW, SKIPPED, Accepted, TaskState

DONE = TaskState(status=COMPLETED, input_digest="in", inputs={"outline": "aa"}, accepted=Accepted(), version=1)
LONG = b"A sentence that goes on. " * 10


def seal(**changes: Any) -> Seal:
    return vary(Seal("draft[a]", "run1", 0, "in", "sum"), **changes)


def evidence(record: TaskState | None = None, **facts: Any) -> Evidence:
    known = {
        "run_id": "run1",
        "record": record or TaskState(),
        "recorded": record is not None,
        "input_digest": "in",
        "parts": {"version": "1", "outline": "aa"},
        "version": 1,
        "marker": "DRAFT_COMPLETE",
    }
    return Evidence(**{**known, **facts})


def action(found: Evidence, **policy: Any) -> str:
    return decide(found, Policy(**policy)).action


def one_file(kind: str, **facts: Any) -> dict[str, Look]:
    return {"drafts/a.md": Look(kind, **facts)}


# --- finished work ---------------------------------------------------------------------------------------


def test_intact_work_from_the_same_inputs_is_trusted() -> None:
    """Same inputs, whole files: nothing to do."""
    assert action(evidence(DONE, files=one_file(look.SEALED))) == decisions.TRUST


def test_other_inputs_mean_redo_and_name_what_changed() -> None:
    """The reason names the input that differs."""
    found = evidence(DONE, input_digest="other", parts={"version": "1", "outline": "bb"})
    decision = decide(found, Policy())
    assert (decision.action, decision.reason) == (decisions.REDO, "what it was made from has changed: outline")


def test_a_raised_version_means_redo_unless_a_migration_covers_it() -> None:
    """With a chain of migrations the value is brought along instead."""
    found = evidence(DONE, input_digest="new", version=2, parts={"version": "2", "outline": "aa"})
    decision = decide(found, Policy())
    assert (decision.action, decision.reason) == (decisions.REDO, "its version was raised from 1 to 2")
    assert action(replace(found, migratable=True, old_version_digest="in")) == decisions.MIGRATE


@pytest.mark.parametrize("kind", [look.MISSING, look.EMPTY, look.DAMAGED])
def test_damage_is_healed_from_objects_else_redone(kind: str) -> None:
    """A whole copy heals it; without one the step runs again."""
    found = evidence(DONE, files=one_file(kind))
    assert action(replace(found, healable={"drafts/a.md": True})) == decisions.HEAL
    assert action(replace(found, healable={"drafts/a.md": False})) == decisions.REDO


def test_a_changed_file_is_a_persons() -> None:
    """Asked by default, kept or restored when told."""
    found = evidence(DONE, files=one_file(look.CHANGED), healable={"drafts/a.md": True})
    assert action(found) == decisions.ASK
    assert action(found, on_changed="keep") == decisions.KEEP
    assert action(found, on_changed="restore") == decisions.HEAL


def test_a_lost_value_is_redone_unless_it_went_with_the_record() -> None:
    """A value that objects/ no longer has is like a missing file; one lost with the record is made on demand."""
    assert action(evidence(DONE, value_lost=True)) == decisions.REDO
    taken = evidence(DONE, value_lost=True, consumed=True)
    assert action(taken, only_needed=True) == decisions.LEAVE
    assert action(replace(taken, wanted=True), only_needed=True) == decisions.REDO
    rebuilt = replace(DONE, value_lost=True)
    assert action(evidence(rebuilt, value_lost=True)) == decisions.LEAVE
    assert action(evidence(rebuilt, value_lost=True, wanted=True)) == decisions.REDO


def test_a_lost_value_is_redone_also_if_the_files_beside_it_could_be_put_back() -> None:
    """Healed files alone would leave a finished task without its value."""
    found = evidence(DONE, value_lost=True, files=one_file(look.DAMAGED), healable={"drafts/a.md": True})
    decision = decide(found, Policy())
    assert (decision.action, decision.paths) == (decisions.REDO, ("drafts/a.md",))
    assert action(replace(found, record=replace(DONE, value_lost=True))) == decisions.HEAL


def test_an_edit_is_not_kept_where_the_value_beside_it_has_to_be_made_again() -> None:
    """Kept, it would leave a finished task without its value, and be set aside by the next run unasked."""
    found = evidence(DONE, value_lost=True, files=one_file(look.CHANGED))
    assert action(found) == decisions.ASK
    decision = decide(found, Policy(on_changed="keep"))
    assert (decision.action, decision.paths) == (decisions.REDO, ("drafts/a.md",))
    assert action(replace(found, record=replace(DONE, value_lost=True)), on_changed="keep") == decisions.KEEP


def test_a_kept_edit_is_set_aside_where_its_lost_value_is_made_again() -> None:
    """The step must run for its value: the person's text is beside the new one."""
    record = replace(DONE, evidence="kept", value_lost=True)
    decision = decide(evidence(record, value_lost=True, wanted=True, files=one_file(look.SEALED)), Policy())
    assert (decision.action, decision.paths) == (decisions.REDO, ("drafts/a.md",))


def test_an_unknown_input_hides_no_other_that_differs() -> None:
    """The seal names each input: what is known is compared, also where another is lost."""
    record = replace(DONE, inputs={"outline": "?", "plan": "?aa", "param mood": "cc"})
    lost = {"version": "1", "outline": "?", "plan": "aa", "param mood": "cc"}
    taken = {"outline": False, "plan": False}
    same = evidence(record, input_digest="other", parts=lost, taken=taken, files=one_file(look.SEALED))
    assert action(same) == decisions.TRUST
    assert action(replace(same, parts={**lost, "plan": "bb"})) == decisions.ASK
    assert action(replace(same, parts={**lost, "plan": "bb"}, taken={"plan": True})) == decisions.REDO
    assert action(replace(same, parts={**lost, "param mood": "dd"})) == decisions.REDO


def test_work_that_a_rewind_keeps_stays_accepted() -> None:
    """`keep` holds against another input."""
    assert action(evidence(DONE, input_digest="other", kept_by="r1[a]")) == decisions.KEEP


def test_another_path_moves_the_file() -> None:
    """Changed `writes` redoes nothing."""
    assert action(evidence(DONE, files=one_file(look.SEALED), moved={"drafts/a.md": "d/a.md"})) == decisions.MOVE


def test_another_marker_is_put_into_the_seal() -> None:
    """Only files whose seal was read are judged by it: `--quick` reads none."""
    decision = other_marker(evidence(DONE, files=one_file(look.SEALED, seal=seal(marker="OLD"))))
    assert decision is not None and (decision.action, decision.paths) == (decisions.MOVE, ("drafts/a.md",))
    right = seal(marker="DRAFT_COMPLETE")
    assert other_marker(evidence(DONE, files=one_file(look.SEALED, seal=right))) is None
    assert other_marker(evidence(DONE, files=one_file(look.SEALED))) is None


def test_review_and_skip_stay() -> None:
    """What a person must see, and what was left out, stays so."""
    assert action(evidence(TaskState(status=NEEDS_REVIEW, error="boom"))) == decisions.HOLD
    assert action(evidence(TaskState(status=SKIPPED))) == decisions.SKIP


# --- open work -------------------------------------------------------------------------------------------


def test_a_whole_sealed_file_without_record_is_adopted() -> None:
    """A crash between artifact and record costs nothing."""
    assert action(evidence(files=one_file(look.SEALED, seal=seal()))) == decisions.ADOPT


@pytest.mark.parametrize(
    "other", [{"input_digest": "older"}, {"round": 0}], ids=["made from other inputs", "of an earlier round"]
)
def test_a_seal_that_does_not_fit_is_set_aside(other: dict[str, Any]) -> None:
    """A seal of other inputs, or of a round the journal has left, is not adopted."""
    found = evidence(
        TaskState(round=1, cut_off=True), files=one_file(look.SEALED, seal=seal(**{"round": 1, **other}))
    )
    assert action(found) == decisions.REDO


def test_a_seal_of_a_round_that_is_not_on_record_yet_is_adopted() -> None:
    """The record is an older copy: it cannot have sent that back."""
    found = evidence(TaskState(round=1, cut_off=True), files=one_file(look.SEALED, seal=seal(round=2)))
    assert action(found) == decisions.ADOPT
    others = one_file(look.SEALED, seal=seal(round=2, run="another"))
    assert action(replace(found, files=others)) == decisions.REDO, "whose rounds are not this run's"


def test_finished_work_that_a_later_round_has_overtaken_is_adopted() -> None:
    """The record is an older copy. What a person decided, and other inputs than the seal's, speak against it."""
    newer = one_file(look.CHANGED, seal=seal(round=1))
    found = evidence(replace(DONE, input_digest="older"), files=newer, is_overtaken=True)
    assert action(found) == decisions.ADOPT
    assert action(replace(found, is_overtaken=False)) == decisions.REDO
    assert action(replace(found, input_digest="newest")) == decisions.REDO
    assert action(evidence(replace(DONE, decided="restore"), files=newer, is_overtaken=True)) != decisions.ADOPT


def test_unknown_inputs_are_not_different() -> None:
    """With all state lost, an input whose value is gone does not speak against a seal."""
    found = evidence(files=one_file(look.SEALED, seal=seal(input_digest="older")), parts={"plan": "?"})
    assert action(found) == decisions.ADOPT


def test_another_runs_file_is_asked_about() -> None:
    """A file of a run that exists is never taken or overwritten silently."""
    found = evidence(files=one_file(look.SEALED, seal=seal(run="run0")), living_runs=frozenset({"run0"}))
    assert action(found) == decisions.ASK


def test_a_forced_run_adopts_nothing() -> None:
    """`--force` sets aside what is in its way."""
    assert action(evidence(files=one_file(look.SEALED, seal=seal())), adopt=False) == decisions.REDO


def test_plain_markers_are_adopted_only_if_the_journal_never_accepted() -> None:
    """From the first acceptance on, only hashes count."""
    marked = one_file(look.MARKED, body=LONG)
    assert action(evidence(files=marked)) == decisions.ADOPT
    assert action(evidence(TaskState(round=1), files=marked)) == decisions.REDO


def test_a_file_that_merely_exists_counts_only_where_no_marker_is_expected() -> None:
    """`marker=None`: a non-empty file is adopted; else it is half finished."""
    half = one_file(look.HALF, body=LONG)
    assert action(evidence(files=half, marker=None)) == decisions.ADOPT
    assert action(evidence(files=half)) == decisions.REDO


@pytest.mark.parametrize(
    ("body", "policy", "expected"),
    [
        (LONG, "redo", decisions.REDO),
        (LONG, "continue", decisions.CONTINUE),
        (LONG, "ask", decisions.ASK),
        (b"short", "continue", decisions.REDO),
        (b"\xff" * 200, "continue", decisions.REDO),
    ],
)
def test_half_finished_output_follows_the_chosen_strategy(body: bytes, policy: str, expected: str) -> None:
    """Too short, or no text, is never continued."""
    found = evidence(parts_files={"drafts/a.md.part": Look(look.HALF, body=body)})
    assert action(found, on_partial=policy) == expected
    if expected == decisions.CONTINUE:
        assert decide(found, Policy(on_partial=policy)).partial == body.decode()


def test_nothing_there_means_run() -> None:
    """No record, no file: it simply runs."""
    assert decide(evidence(files=one_file(look.MISSING)), Policy()).reason == "not started"


# --- acting ----------------------------------------------------------------------------------------------


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
        return Look(look.CHANGED, "edited", body, found.seal)

    monkeypatch.setattr(Files, "check", changing)
    result = Project.open(tmp_path).run(pipe, resume="r")
    assert (result.status, result.needs_review) == ("paused", ["one"])
    assert looks < 10 * ACTIONS_MAX
