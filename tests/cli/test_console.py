"""What is shown while a run goes on."""

from __future__ import annotations

import io
import re
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import events as ev
from holdfast.cli import console as console_module
from holdfast.cli import live as live_module
from holdfast.cli.console import Console, PlainConsole, Progress
from holdfast.cli.printing import money, size, table
from holdfast.cli.run import make_console
from holdfast.engine.commit import Recorded
from holdfast.pipeline.spec import PipelineSpec
from holdfast.state import RunState
from holdfast.views.picture import Picture
from holdfast.wording import addressed


def exited(task: str, status: str = "completed", **facts: Any) -> ev.NodeExited:
    return ev.NodeExited(step_id=task, node=task.partition("[")[0], status=status, duration=2.1, **facts)


def told(*events: ev.Event) -> list[str]:
    progress = Progress({"draft": 3})
    lines = (progress.take(event, 0.0) for event in events)
    return [line.text for line in lines if line is not None]


def test_completion_tells_time_and_cost() -> None:
    """A finished task is one line with its duration and what it spent."""
    spent = ev.UsageRecorded(step_id="draft[ch05]", cost_usd=0.012)
    assert told(spent, exited("draft[ch05]")) == ["✓ draft[ch05]  2.1s  $0.012"]


def test_failure_tells_attempt_and_delay() -> None:
    """A failed attempt says which of how many it was, why, and when the next begins."""
    assert told(exited("draft[a]", "failed", error="boom", retry_in=4.0)) == [
        "✗ draft[a]  attempt 1/3: boom; again in 4.0s"
    ]


def test_an_attempt_that_is_not_the_last_is_not_told_as_the_last() -> None:
    """A resume gives fresh attempts, so the third of three may be followed by another."""
    assert told(exited("draft[a]", "failed", attempt=3, error="boom", retry_in=4.0)) == [
        "✗ draft[a]  attempt 3: boom; again in 4.0s"
    ]


def test_a_retry_that_waits_for_a_thread_to_end_names_no_time() -> None:
    """No attempt overlaps another; one that begins later has its delay."""
    late = exited("draft[a]", "failed", error="timed out", retry_in=4.0)
    begun = ev.NodeEntered(step_id="draft[a]", node="draft")
    assert told(ev.Overran(step_id="draft[a]", timeout=2), late, begun, late)[1:] == [
        "✗ draft[a]  attempt 1/3: timed out; again when it has ended",
        "✗ draft[a]  attempt 1/3: timed out; again in 4.0s",
    ]


def test_an_attempt_of_a_later_round_is_told_with_its_round() -> None:
    """Attempts begin at 1 in each round: "attempt 1/3" of one that needs a person would be a riddle."""
    assert told(exited("draft[a]", "needs_review", round=1, error="refused")) == [
        "✗ draft[a]  round 1, attempt 1: refused; needs a person"
    ]


def test_last_failure_needs_a_person() -> None:
    """The last attempt's failure says that a person is needed."""
    assert told(exited("draft[a]", "needs_review", attempt=3, error="boom")) == [
        "✗ draft[a]  attempt 3/3: boom; needs a person"
    ]


def test_a_note_of_a_megabyte_is_a_line_of_some_length() -> None:
    """Its beginning is shown."""
    line = Progress({}).take(ev.NoteAdded(text="x" * 1_000_000), 0.0)
    assert line is not None
    assert str(line)[10:].startswith("info     • xxx")
    assert len(str(line)) < 3000


def test_what_was_found_is_counted_in_words() -> None:
    """One is told as one, several as several; what could not be looked at yet is named."""
    one = ev.Recovered(counts={"trust": 1, "heal": 1, "ask": 1}, waiting=1)
    assert told(one) == [
        "» looked at the files: 1 finished task is whole; 1 is made whole again; 1 needs an answer from you;"
        " 1 waits for that answer"
    ]
    many = ev.Recovered(counts={"adopt": 34, "run": 2, "redo": 1}, again=("a",), behind=2)
    assert told(many) == [
        "» looked at the files: 34 whole ones are on record again; 1 is to be done again; 2 are still to run;"
        " the work begins again at a; 2 finished tasks after that run again only if what they take comes out"
        " differently"
    ]


def test_nothing_found_is_not_told() -> None:
    """A line without a fact in it is no line."""
    assert told(ev.Recovered()) == []


def test_a_repaired_journal_is_told_in_words() -> None:
    """Lost lines are counted; a journal that was missing is called missing."""
    damaged = ev.JournalRepaired(missing_total=1, kept_as="events.jsonl.damaged.1")
    assert told(damaged) == [
        "! the journal was damaged and repaired: 1 line is lost; the damaged one is kept as events.jsonl.damaged.1"
    ]
    assert told(ev.JournalRepaired(missing_total=9)) == [
        "! the journal was missing and was written anew from a snapshot"
    ]


def test_rewind_tells_the_feedback() -> None:
    """Sending work back names who, what and why."""
    event = ev.RewindRequested(step_id="r1[a]", targets={"draft[a]": "name your sources"})
    assert told(event) == ["↩ r1[a] sends back draft[a]: name your sources"]


def test_what_a_step_spent_before_it_sent_work_back_is_not_the_cost_of_its_next_round() -> None:
    """Each line of completion has the cost of what was accepted."""
    spent = ev.UsageRecorded(step_id="r1[a]", cost_usd=0.02)
    back = ev.RewindRequested(step_id="r1[a]", targets={"draft[a]": "again"})
    assert told(spent, back, spent, exited("r1[a]"))[-1] == "✓ r1[a]  2.1s  $0.020"


def test_running_tasks_and_their_last_words() -> None:
    """A task runs from its start to its end, with the last thing it logged."""
    progress = Progress({})
    progress.take(ev.NodeEntered(step_id="a", node="a"), 5.0)
    progress.take(ev.Logged(step_id="a", name="fetched", fields={"pages": 3}), 6.0)
    assert progress.running["a"].last_log == "fetched pages=3"
    assert progress.running["a"].since == 5.0
    progress.take(exited("a"), 7.0)
    assert progress.running == {}


def an_empty_picture() -> Picture:
    return Picture(RunState(run_id="r"), PipelineSpec(name="p"), {}, ("a", "b"), counts={"completed": 1})


def test_large_runs_are_told_in_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """After many completions, single lines give way to a line about the whole; failures are still told."""
    console = PlainConsole({})
    console.open(an_empty_picture)
    console.events([Recorded(0.0, exited(f"draft[{n}]")) for n in range(1000)])
    console.events([Recorded(0.0, exited("draft[x]", "needs_review", error="boom"))])
    console.close()
    lines = capsys.readouterr().err.splitlines()
    assert sum("✓" in line for line in lines) == console_module.LINES_MAX
    assert sum("1 of 2 steps done" in line for line in lines) == 1
    assert "boom" in lines[-1]


def test_a_summary_is_of_one_moment(capsys: pytest.CaptureFixture[str]) -> None:
    """What runs is counted in the picture, as what is done is: the console may be many events behind it."""
    counts = {"completed": 1, "in_progress": 1}
    console = PlainConsole({})
    console.open(lambda: replace(an_empty_picture(), counts=counts))
    console.events([Recorded(0.0, ev.NodeEntered(step_id=f"draft[{n}]", node="draft")) for n in range(500)])
    console.events([Recorded(0.0, exited(f"draft[{n}]")) for n in range(300)])
    console.close()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "steps done" in line]
    assert line.endswith("1 of 2 steps done, 1 running, cost $0.00")


def test_warnings_of_a_step_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A warning is a line of its own; ordinary log lines are not."""
    console = PlainConsole({})
    console.open(an_empty_picture)
    console.log("a", "INFO", "quiet")
    console.log("a", "WARNING", "loud\x1b[2J")
    console.close()
    err = capsys.readouterr().err
    assert err.rstrip().endswith("warning  a  loud")
    assert len(err.splitlines()) == 1


def test_failing_display_does_not_hurt_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """If the display breaks, it says so once; events are still taken without an error."""

    def broken() -> Picture:
        raise ZeroDivisionError

    console = PlainConsole({})
    console.open(broken)
    console.events([Recorded(0.0, exited(f"draft[{n}]")) for n in range(500)])
    console.events([])
    console.close()
    assert capsys.readouterr().err.splitlines()[-1].startswith("The display failed (ZeroDivisionError")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_live_display_draws_matrix_running_and_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal the picture shows what runs and the total, and failures stay in the scroll-back."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    console = make_console({}, quiet=False)
    console.open(an_empty_picture)
    console.log("a", "INFO", "some [bold]words\x1b[2J")
    console.events([Recorded(0.0, ev.NodeEntered(step_id="a", node="a"))])
    console.events([Recorded(0.0, exited("b", "needs_review", error="boom"))])
    console.close()
    shown = terminal.getvalue()
    assert "1 of 2 steps done" in shown
    assert "some [bold]words" in shown
    assert "b  attempt 1: boom; needs a person" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b[31m" not in shown


def seen(written: str) -> list[str]:
    """The lines that a terminal has in the end: all that is sent to it here moves its cursor, or erases a line."""
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", written):
        if piece == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif piece == "\x1b[1A":
            row = max(0, row - 1)
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece[0] not in "\x1b\r":
            lines[row] += piece
    return [line for line in lines if line]


def test_a_terminal_keeps_the_lines_that_a_pipe_gets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When the picture is gone, a line for each finished task, failure and warning is left, as in the README."""

    def show(console: Console) -> None:
        console.open(an_empty_picture)
        console.events([Recorded(0.0, exited(f"draft[{n}]")) for n in range(3)])
        console.log("draft[x]", "WARNING", "slow")
        console.events([Recorded(0.0, exited("draft[x]", "needs_review", error="boom"))])
        console.close()

    monkeypatch.setattr("holdfast.clock.now", lambda: 0.0)
    show(PlainConsole({}))
    plain = capsys.readouterr().err.splitlines()
    assert len(plain) == 5
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    show(make_console({}, quiet=False))
    assert seen(terminal.getvalue()) == plain


def test_a_terminal_lists_some_finished_tasks_and_says_that_it_counts_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run of thousands does not fill the scroll-back; what needs a person is still a line."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    console = make_console({}, quiet=False)
    console.open(an_empty_picture)
    console.events([Recorded(0.0, exited(f"draft[{n}]")) for n in range(1000)])
    console.events([Recorded(0.0, exited("draft[x]", "needs_review", error="boom"))])
    console.close()
    lines = seen(terminal.getvalue())
    assert sum("✓" in line for line in lines) == console_module.LINES_MAX
    assert [line[10:] for line in lines[console_module.LINES_MAX :]] == [
        "200 finished tasks are listed; the rest are only counted",
        "error    ✗ draft[x]  attempt 1: boom; needs a person",
    ]


def test_what_steps_print_stands_above_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line, whole, of every thread; brackets are no markup, and a bar drawn over itself is one line."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(live_module, "REFRESH_S", 0.0)
    monkeypatch.setattr(live_module.LiveConsole, "period_s", 0.001)
    console = make_console({}, quiet=False)
    console.open(an_empty_picture)

    def step(name: str) -> list[str]:
        for number in range(200):
            console.events([Recorded(0.0, ev.NodeEntered(step_id=f"{name}[{number}]", node=name))])
            for word in (name, " says", " [/so]"):
                print(word, end="", flush=True)
            print(f" {number}\r")
        print("10%\r20%", end="", file=sys.stderr, flush=True)
        return [f"{name} says [/so] {number}" for number in range(200)]

    while "steps done" not in terminal.getvalue():  # the picture stands
        time.sleep(0.001)
    with ThreadPoolExecutor(4) as pool:
        expected = [line for lines in pool.map(step, "abcd") for line in lines]
    console.close()
    assert sorted(seen(terminal.getvalue())) == sorted([*expected, *["20%"] * 4])


def test_what_is_printed_when_the_picture_is_over_is_not_held_back() -> None:
    """Nor in a process that a step has forked: what it flushes is out, however it ends."""
    below = io.BytesIO()
    printed = live_module.Printed(io.TextIOWrapper(below), threading.RLock(), print)
    printed.end()
    printed.write("from afar")
    printed.flush()
    assert below.getvalue() == b"from afar"


def test_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cannot move its cursor, or none at all, gets lines; --quiet gets nothing."""
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_console({}, quiet=False)) is PlainConsole
    assert type(make_console({}, quiet=True)) is Console


def test_a_terminal_without_our_signs_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for them is wider: the lines of a picture would break, and the picture not be found again."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(Terminal, "encoding", "latin-1")
    assert type(make_console({}, quiet=False)) is PlainConsole
    monkeypatch.setattr(Terminal, "encoding", "utf-8")
    assert type(make_console({}, quiet=False)) is live_module.LiveConsole


def test_amounts_read_well() -> None:
    """Money, time and sizes are shown with the digits that matter."""
    assert [money(usd) for usd in (0, 0.0042, 0.1234, 1234.5)] == ["$0.00", "$0.0042", "$0.123", "$1,234.50"]
    assert [size(n) for n in (512, 1500, 2_500_000, 3_000_000_000)] == ["512 B", "1.5 kB", "2.5 MB", "3.0 GB"]


def test_commands_are_addressed() -> None:
    """--dir and --run are put before a remark, and quoted for the shell."""
    command = "holdfast resume x --on-changed keep   (or: restore)"
    assert addressed(command, ".") == command
    assert addressed(command, "my book") == "holdfast resume x --on-changed keep --dir 'my book'   (or: restore)"
    assert addressed("holdfast approve g", ".", "r1") == "holdfast approve g --run r1"


def test_commands_in_a_sentence_are_addressed() -> None:
    """Each command in quotes, and the one behind a colon; what only mentions holdfast is left as it is."""
    two = "See who does with 'holdfast status', then 'holdfast resume'."
    assert addressed(two, "d") == "See who does with 'holdfast status --dir d', then 'holdfast resume --dir d'."
    spaced = "See who does with holdfast status --dir 'a b', then holdfast resume --dir 'a b'."
    assert addressed(two, "a b") == spaced
    assert addressed("Start one: holdfast run FILE.py", "d") == "Start one: holdfast run FILE.py --dir d"
    for text in (
        "See: holdfast why --help",
        "made by holdfast 1.0",
        "a task holdfast knows",
        "run 'holdfast' first",
    ):
        assert addressed(text, "d") == text


def test_tables_are_aligned_and_cut() -> None:
    """Columns line up by display width; a cell that is too long is cut."""
    lines = table(["a", "b"], [["漢字", "x"], ["y", "z" * 100]])
    assert lines[0] == "a     b"
    assert lines[1] == "漢字  x"
    assert len(lines[2]) == len("y     ") + 40
