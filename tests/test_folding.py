"""State: the fold of events, told as stories."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import events as ev
from holdfast.errors import CheckpointCorruptionError
from holdfast.folding import FOLD_VERSION, REOPENED, fold
from holdfast.journal.lines import decode_event
from holdfast.state import COMPLETED, FAILED, IN_PROGRESS, NEEDS_REVIEW, PENDING, RunState, rounds_key
from holdfast.values import digest


def told(*events: ev.Event, state: RunState | None = None) -> RunState:
    state = state or RunState()
    for number, event in enumerate(events, start=state.seq + 1):
        fold(state, event, number, 1000.0 + number)
    return state


def started(task: str, **facts: object) -> ev.NodeEntered:
    return ev.NodeEntered(step_id=task, node=task.partition("[")[0], **facts)


def ended(task: str, status: str = COMPLETED, **facts: object) -> ev.NodeExited:
    return ev.NodeExited(step_id=task, node=task.partition("[")[0], status=status, **facts)


def test_a_step_from_start_to_end() -> None:
    """A start and an end make a completed task with its value and times."""
    state = told(started("a"), ended("a", duration=0.5, output_digest="out", value=msgspec.Raw(b"[1]")))
    task = state.task("a")
    assert (task.status, task.attempt, task.duration, task.output_digest) == (COMPLETED, 1, 0.5, "out")
    assert task.accepted is not None and bytes(task.accepted.value) == b"[1]"
    assert (task.started_at, task.completed_at, state.last_completed) == (1001.0, 1002.0, "a")


def test_an_attempt_cut_off_by_a_crash_does_not_count() -> None:
    """Continuing finds the task pending, with the attempts it had used before."""
    state = told(
        started("a", attempt=1),
        ended("a", FAILED, attempt=1, error="boom"),
        started("a", attempt=2),
        ev.RunContinued(),
    )
    task = state.task("a")
    assert (task.status, task.failures, task.attempt, task.cut_off) == (PENDING, 1, 1, True)


def spent(task: str, cost: float, **facts: object) -> ev.UsageRecorded:
    return ev.UsageRecorded(step_id=task, cost_usd=cost, **facts)


def adopted(task: str, **facts: object) -> ev.TaskAdopted:
    return ev.TaskAdopted(step_id=task, node=task, evidence="sealed", **facts)


def test_what_a_cut_off_attempt_has_cost_is_wasted_once() -> None:
    """It is not counted again when the round is thrown away later."""
    state = told(started("a"), spent("a", 1.0), ev.RunContinued(), started("a"), spent("a", 2.0), ended("a"))
    assert (state.cost_usd, state.wasted_cost_usd) == (3.0, 1.0)
    told(ev.TaskInvalidated(step_id="a", reason="x"), state=state)
    assert state.wasted_cost_usd == 3.0


def test_what_a_cut_off_attempt_has_cost_is_not_wasted_if_its_output_is_adopted() -> None:
    """Only its end was not on record. Thrown away later, it is wasted, once."""
    state = told(started("a"), spent("a", 1.0), ev.RunContinued())
    assert state.wasted_cost_usd == 1.0
    told(ev.RunContinued(), adopted("a", cost_usd=1.0), state=state)
    assert (state.cost_usd, state.wasted_cost_usd, state.task("a").round_cost_usd) == (1.0, 0.0, 1.0)
    told(adopted("a", cost_usd=1.0), state=state)
    assert state.wasted_cost_usd == 0.0
    told(ev.TaskInvalidated(step_id="a", reason="x"), state=state)
    assert state.wasted_cost_usd == 1.0


def test_what_is_found_again_is_not_wasted() -> None:
    """A lost file that somebody brought back before its step ran again; made again, it was paid for in vain."""
    lost = [started("a"), spent("a", 1.0), ended("a"), ev.TaskInvalidated(step_id="a", reason="x", damaged=True)]
    assert told(*lost).wasted_cost_usd == 1.0
    state = told(*lost, adopted("a", cost_usd=1.0))
    assert (state.cost_usd, state.wasted_cost_usd, state.task("a").round_cost_usd) == (1.0, 0.0, 1.0)
    assert told(*lost, started("a"), spent("a", 1.0), ended("a")).wasted_cost_usd == 1.0


def test_what_another_attempt_or_round_has_cost_stays_wasted() -> None:
    """The output that is adopted is the last attempt's; that of another round was never cut off."""
    twice = [started("a"), spent("a", 1.0), ev.RunContinued(), started("a"), spent("a", 2.0), ev.RunContinued()]
    assert told(*twice, adopted("a", cost_usd=2.0)).wasted_cost_usd == 1.0
    assert told(*twice, adopted("a", cost_usd=2.0, round=1)).wasted_cost_usd == 3.0


def test_what_a_round_costs_is_what_its_task_has_cost_since_it_began() -> None:
    """A seal tells the cost of all rounds; thrown away later, an earlier one is not wasted a second time."""
    sent_back = [started("a"), spent("a", 1.0), ended("a"), ev.TaskInvalidated(step_id="a", reason="x")]
    again = ev.TaskInvalidated(step_id="a", reason="y")
    state = told(*sent_back, started("a", round=1), ev.RunContinued(), adopted("a", cost_usd=3.0, round=1))
    assert (state.cost_usd, state.wasted_cost_usd, state.task("a").round_cost_usd) == (3.0, 1.0, 2.0)
    assert told(again, state=state).wasted_cost_usd == 3.0


def test_finished_work_that_a_later_round_has_overtaken_is_wasted() -> None:
    """The record is an older copy that was put back; the seal tells of the round that it does not know."""
    state = told(started("a"), spent("a", 1.0), ended("a"), adopted("a", cost_usd=3.0, round=1))
    assert (state.cost_usd, state.wasted_cost_usd, state.task("a").round_cost_usd) == (3.0, 1.0, 2.0)


@pytest.mark.parametrize("fresh", [True, False])
def test_continuing_gives_fresh_attempts_unless_told_not_to(fresh: bool) -> None:
    """`--no-retry` leaves what needs review as it is."""
    state = told(started("a"), ended("a", NEEDS_REVIEW, kind="error"), ev.RunContinued(fresh_attempts=fresh))
    assert state.task("a").status == (PENDING if fresh else NEEDS_REVIEW)


def test_used_up_rounds_wait_for_a_person_also_after_continuing() -> None:
    """A raiser whose rounds are used up is not tried again by itself."""
    state = told(started("r"), ended("r", NEEDS_REVIEW, kind="rounds"), ev.RunContinued(fresh_attempts=True))
    assert state.task("r").status == NEEDS_REVIEW


def test_sent_back_work_starts_a_new_round_with_the_objections() -> None:
    """The target gets feedback and what it had given; the raiser is pending in a new round; spend is wasted."""
    state = told(
        started("draft"),
        ev.UsageRecorded(step_id="draft", once="call", cost_usd=0.5),
        ended("draft", output_digest="d1", value=msgspec.Raw(b'"v1"')),
        started("r1"),
        ended("r1", FAILED, error="busy", kind="error"),
        started("r1", attempt=2),
        ev.RewindRequested(step_id="r1", targets={"draft": "sources"}, keep=("r2",)),
    )
    assert state.rounds == {rounds_key("r1", "draft"): 1}
    assert state.recalls["draft"].feedback == ("sources",)
    assert state.keeps == {"r2": "r1"}
    raiser = state.task("r1")
    assert (raiser.status, raiser.round, raiser.failures, raiser.error, raiser.kind) == (PENDING, 1, 0, "", "")
    told(ev.TaskRewound(step_id="draft", feedback=("sources",)), state=state)
    task = state.task("draft")
    assert (task.status, task.round, task.attempt, task.feedback) == (PENDING, 1, 0, ("sources",))
    assert task.previous is not None and bytes(task.previous.value) == b'"v1"'
    assert (state.cost_usd, state.wasted_cost_usd) == (0.5, 0.5)
    assert state.recalls == {}


def test_a_paid_call_is_replayable_until_its_round_ends() -> None:
    """A failure keeps the record; a refused output (a new round) drops it."""
    once = ev.OnceRecorded(step_id="a", key="k", result=msgspec.Raw(b"1"))
    state = told(started("a"), once, ended("a", FAILED, error="x"))
    assert "k" in state.once["a"]
    told(started("a", attempt=2), ended("a", FAILED, error="no", kind="refused", new_round=True), state=state)
    assert "a" not in state.once
    assert state.task("a").round == 1


PAID = (
    started("a"),
    ev.UsageRecorded(step_id="a", cost_usd=1.0),
    ev.OnceRecorded(step_id="a", key="k", result=msgspec.Raw(b"1")),
    ev.UsageRecorded(step_id="a", once="k", cost_usd=2.0),
    ended("a"),
)


def test_finished_work_that_is_lost_is_made_again_from_its_paid_calls() -> None:
    """Damage begins no new round: the calls are replayed, and only what was spent beside them is wasted."""
    state = told(*PAID, ev.TaskInvalidated(step_id="a", reason="damaged", damaged=True))
    task = state.task("a")
    assert (task.status, task.round) == (PENDING, 0)
    assert (state.cost_usd, state.wasted_cost_usd) == (3.0, 1.0)
    assert state.once["a"]["k"].usages == 1
    told(started("a", attempt=2), ev.UsageRecorded(step_id="a", cost_usd=1.0), ended("a"), state=state)
    assert (state.cost_usd, state.wasted_cost_usd) == (4.0, 1.0)


def test_a_new_round_after_damage_wastes_what_is_left_of_the_old_one() -> None:
    """What damage had wasted is not counted twice."""
    state = told(*PAID, ev.TaskInvalidated(step_id="a", reason="damaged", damaged=True))
    told(started("a", attempt=2), ended("a"), ev.TaskInvalidated(step_id="a", reason="x"), state=state)
    assert (state.cost_usd, state.wasted_cost_usd) == (3.0, 3.0)
    assert state.once == {}


def test_a_journal_that_began_a_new_round_for_damage_replays_nothing_in_it() -> None:
    """Earlier versions did so: the round of the next start says it."""
    state = told(*PAID, ev.TaskInvalidated(step_id="a", reason="damaged", damaged=True), started("a", round=1))
    assert state.once == {}


def test_work_that_is_adopted_after_a_kill_keeps_its_paid_calls() -> None:
    """If its value turns out to be lost, it is made again from them."""
    paid = ev.OnceRecorded(step_id="a", key="k", result=msgspec.Raw(b"1"))
    state = told(started("a"), paid, ev.TaskAdopted(step_id="a", node="a", evidence="sealed"))
    assert "k" in state.once["a"]
    assert told(adopted("a", round=1), state=state).once == {}  # made in another round, without them


def test_spend_outside_a_paid_call_is_lost_with_its_attempt() -> None:
    """Loose spend of a failed attempt is wasted; spend of a recorded call is not."""
    state = told(
        started("a"),
        ev.UsageRecorded(step_id="a", cost_usd=1.0),
        ev.OnceRecorded(step_id="a", key="k", result=msgspec.Raw(b"1")),
        ev.UsageRecorded(step_id="a", once="k", cost_usd=2.0),
        ended("a", FAILED, error="x"),
    )
    assert (state.cost_usd, state.wasted_cost_usd) == (3.0, 1.0)
    assert state.once["a"]["k"].usages == 1


def test_spend_reported_inside_a_call_is_kept_once_the_call_is() -> None:
    """Usage inside a call that was recorded is not wasted by a later failure."""
    state = told(
        started("a"),
        ev.UsageRecorded(step_id="a", once="k", inside=True, cost_usd=2.0),
        ev.OnceRecorded(step_id="a", key="k", result=msgspec.Raw(b"1"), spent=2.0),
        ended("a", FAILED, error="x"),
    )
    assert (state.cost_usd, state.wasted_cost_usd) == (2.0, 0.0)
    assert state.once["a"]["k"].usages == 0


def test_invalidated_work_is_pending_and_its_spend_wasted() -> None:
    """Finished work that no longer applies begins a new round."""
    state = told(
        started("a"),
        ev.UsageRecorded(step_id="a", once="k", cost_usd=2.0),
        ended("a"),
        ev.TaskInvalidated(step_id="a", reason="changed since: topic"),
    )
    task = state.task("a")
    assert (task.status, task.round, task.redo_reason) == (PENDING, 1, "changed since: topic")
    assert state.wasted_cost_usd == 2.0


def test_a_renamed_step_keeps_its_tasks() -> None:
    """`was=` moves records to the new name, item by item."""
    state = told(
        started("draft[a]"),
        ended("draft[a]"),
        ev.PipelineDeclared(spec=msgspec.Raw(b"{}"), renamed={"draft": "write"}),
    )
    assert list(state.tasks) == ["write[a]"]
    assert state.last_completed == "write[a]"


def test_a_renamed_step_keeps_what_it_sent_back() -> None:
    """Rounds, objections under way and wishes to keep go by its new name, as raiser and as target."""
    state = told(
        started("review[a]"),
        ev.RewindRequested(step_id="review[a]", targets={"draft[a]": "shorter"}, keep=("proof[a]",)),
        ev.RewindRequested(step_id="phase:Is it -> good", targets={"review[a]": "again"}),
        ev.MemoryWritten(step_id="review", path="terms.md"),
        ev.PipelineDeclared(spec=msgspec.Raw(b"{}"), renamed={"review": "critique", "draft": "write"}),
    )
    assert state.rounds == {"critique[a] -> write[a]": 1, "phase:Is it -> good -> critique[a]": 1}
    assert {task: recall.raisers for task, recall in state.recalls.items()} == {
        "write[a]": ("critique[a]",),
        "critique[a]": ("phase:Is it -> good",),
    }
    assert (state.keeps, state.memories) == ({"proof[a]": "critique[a]"}, {"terms.md": "critique"})


def test_retry_resets_failures_and_rounds() -> None:
    """`retry` leads out of needs_review, also when rounds were used up."""
    state = told(
        started("r"),
        ev.RewindRequested(step_id="r", targets={"d": ""}),
        started("r"),
        ended("r", NEEDS_REVIEW, kind="rounds"),
        ev.RetryRequested(step_ids=("r",)),
    )
    assert state.task("r").status == PENDING
    assert state.rounds == {}


FINISHED = (started("a"), ended("a"), ev.RunStopped(status=COMPLETED))


@pytest.mark.parametrize(
    "wish",
    [
        ev.RewindRequested(step_id="", targets={"a": ""}),
        ev.Decided(step_id="a", choice="redo"),
        ev.Decided(step_id="a", choice="restore"),
        ev.RedoRequested(step_ids=("a",)),
    ],
)
def test_a_complete_run_of_which_somebody_wants_something_is_open_again(wish: ev.Event) -> None:
    """What is wanted is done by the next run; a run that is open anyway stays as it stands."""
    state = told(*FINISHED, wish)
    assert (state.status, state.reason) == (IN_PROGRESS, REOPENED)
    assert told(ev.RunContinued(), ev.RunStopped(status=FAILED), wish).status == FAILED


def test_a_wish_that_arrives_while_the_engine_ends_is_not_forgotten() -> None:
    """The engine says completed, having looked before the wish was there."""
    wish = ev.RewindRequested(step_id="", targets={"a": ""})
    state = told(*FINISHED[:2], wish, ev.RunStopped(status=COMPLETED))
    assert (state.status, state.reason) == (IN_PROGRESS, REOPENED)


def test_what_leaves_nothing_to_do_leaves_the_run_complete() -> None:
    """An approval, a task left out, a retry of what is done."""
    state = told(
        *FINISHED,
        ev.GateApproved(step_id="ok"),
        ev.Decided(step_id="a", choice="skip"),
        ev.RetryRequested(step_ids=()),
    )
    assert state.status == COMPLETED


def test_a_persons_decisions_are_kept_with_who_what_and_outcome() -> None:
    """Each is one entry; what a step itself sends back is none."""
    state = told(
        ev.GateApproved(step_id="ok", by="ada"),
        ev.RewindRequested(step_id="ok", targets={"a": "shorter"}),
        ev.Decided(step_id="b", choice="keep"),
        ev.RetryRequested(step_ids=("c",)),
        ev.RetryRequested(step_ids=("c", "d")),
        started("r"),
        ev.RewindRequested(step_id="r", targets={"a": "no"}),
    )
    assert [(d.what, d.task, d.why, d.outcome) for d in state.decisions] == [
        ("approved by ada", "ok", "", "what stands behind it may start"),
        ("sent back in the name of ok", "a", "shorter", "it is done again"),
        ("decided by a person: keep", "b", "", "what is there is accepted as it is"),
        ("retry, asked for by a person", "c", "", "a fresh set of attempts"),
        ("retry of 2 tasks, asked for by a person", "", "", "a fresh set of attempts"),
    ]


def test_an_unknown_event_changes_only_the_number() -> None:
    """Events of a newer minor version are passed over."""
    event = decode_event(b'{"seq":1,"event":"from_the_future","step_id":"a"}')
    state = RunState()
    fold(state, event, 7, 1.0)
    assert (state.seq, state.tasks) == (7, {})


def test_a_snapshot_is_nothing_but_a_saved_fold() -> None:
    """Encoding and decoding a state gives the same state, mid-run."""
    state = told(
        ev.RunStarted(run_id="r", pipeline="p", ordinal=3, params={"a": 1}),
        started("a"),
        ended("a", files=(ev.FileRecord("", "a.md", 3, "00", "text"),), value=msgspec.Raw(b'{"x":[1]}')),
        started("b"),
        ev.OnceRecorded(step_id="b", key="k", kind="bytes", result_ref="ff"),
        ev.NoteAdded(text="n", impact="i"),
        ev.Tagged(fields={"t": 1}),
        ev.GateReached(step_id="g"),
    )
    again = msgspec.json.decode(msgspec.json.encode(state), type=RunState)
    assert msgspec.json.encode(again) == msgspec.json.encode(state)
    assert again.task("b").status == IN_PROGRESS


def test_a_known_event_that_does_not_read_is_damage_not_news() -> None:
    """Only events of unknown names are passed over: a known one with other types is told."""
    with pytest.raises(CheckpointCorruptionError, match="node_exit"):
        decode_event(b'{"event":"node_exit","step_id":1}')


def a_long_story() -> RunState:
    """A run in which a little of everything happens."""
    file = ev.FileRecord("", "a.md", 3, "abc", "text")
    return told(
        ev.RunStarted(run_id="r", pipeline="p", ordinal=1, params={"n": 2}, file="p.py", host="h", pid=1),
        ev.PipelineDeclared(spec=msgspec.Raw(b"{}"), renamed={}),
        ev.PhaseStarted(step_id="phase:Writing"),
        started("a"),
        ev.OnceRecorded(step_id="a", key="k", round=0, kind="json", result=msgspec.Raw(b"1")),
        spent("a", 0.5, once="k", input_tokens=7),
        ended("a", FAILED, attempt=1, error="boom", kind="error", retry_in=1.0),
        started("a", attempt=2),
        ended("a", attempt=2, duration=0.5, output_digest="out", files=(file,), inputs={"x": "1"}),
        adopted("b", cost_usd=0.25, tokens=3, files=(file,), output_digest="b"),
        ev.TaskKept(step_id="b", reason="kept", files=(file,)),
        ev.ArtifactHealed(step_id="a", path="a.md", problem="missing"),
        ev.ArtifactSetAside(step_id="b", path="b.md", to="b.md.bak.1", reason="edited"),
        ev.QuestionAsked(step_id="c", about="partial", detail="half"),
        ev.Decided(step_id="c", choice="redo"),
        ev.RewindRequested(step_id="a", targets={"b": "shorter"}),
        ev.TaskRewound(step_id="b", feedback=("shorter",)),
        started("b", round=1),
        ended("b", round=1, output_digest="b1"),
        ev.TaskInvalidated(step_id="a", reason="its inputs changed"),
        ev.NoteAdded(text="note", impact="none"),
        ev.DecisionMade(what="this", why="that"),
        ev.SectionWritten(step_id="a", title="A", text="text", sources=("s",)),
        ev.Tagged(fields={"words": 3}),
        ev.GateReached(step_id="gate", ask="ok?"),
        ev.GateApproved(step_id="gate", by="me"),
        ev.RewindRequested(step_id="gate", targets={"b": "nicer"}),
        ev.JournalRepaired(missing=((3, 3),), missing_total=1, kept_as="q"),
        ev.StateMended(findings=("mended",)),
        ev.RunContinued(fresh_attempts=True, host="h", pid=2),
        ev.RedoRequested(step_ids=("a",)),
        started("d"),
        spent("d", 0.125),
        ev.OnceRecorded(step_id="d", key="k", kind="json", result=msgspec.Raw(b"2")),
        ended("d", output_digest="d"),
        ev.TaskInvalidated(step_id="d", reason="damaged", damaged=True),
        adopted("d", cost_usd=0.5, round=2, output_digest="d2"),
        started("e"),
        ev.OnceRecorded(step_id="e", key="k", kind="json", result=msgspec.Raw(b"3")),
        ended("e", output_digest="e"),
        ev.TaskInvalidated(step_id="e", reason="its inputs changed", stale=True),
        ev.RunStopped(status=IN_PROGRESS, reason="interrupted"),
    )


def without_defaults(value: Any) -> Any:
    """Whether a field at its default is written or left out says nothing."""
    if isinstance(value, dict):
        return {key: without_defaults(inner) for key, inner in value.items() if inner}
    return [without_defaults(inner) for inner in value] if isinstance(value, list) else value


def test_another_fold_has_another_version() -> None:
    """If this fails, the same journal gives another state: raise FOLD_VERSION, and put the new digest here."""
    made = without_defaults(msgspec.json.decode(msgspec.json.encode(a_long_story())))
    assert {FOLD_VERSION: digest(msgspec.json.encode(made, order="sorted"))[:16]} == {10: "41f1af5e2914a84a"}
