"""What a step returns: on disk with its proof, and to consumers exactly as stored."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline


def single(tmp_path: Path, writes: Any, returned: Any, **options: Any) -> tuple[Any, Any]:
    """Run one step and a consumer; gives the result and what the consumer received."""
    pipe, received = Pipeline("p"), []

    @pipe.step(writes=writes, **options)
    def step() -> Any:
        return returned

    @pipe.step
    def consumer(step: Any) -> None:
        received.append(step)

    result = pipe.run(dir=tmp_path)
    return result, received[0] if received else None


@pytest.mark.parametrize(
    ("text", "above", "eol"),
    [
        ("two\nlines\n", "two\nlines\n", ""),
        ("no newline", "no newline\n", " eol=added"),
        ("text\nSTEP_COMPLETE inside\nend\n", "text\nSTEP_COMPLETE inside\nend\n", ""),
        ("späß ✅\r\n", "späß ✅\r\n", ""),
    ],
)
def test_a_text_file_is_the_text_and_its_seal(tmp_path: Path, text: str, above: str, eol: str) -> None:
    """On disk: the text, a newline if it had none, the seal line; consumers get the text as returned."""
    result, received = single(tmp_path, "out.md", text)
    body = above.encode()
    data = (tmp_path / "out.md").read_bytes()
    (accepted,) = (e for e in Harness(tmp_path).events("node_exit") if e["step_id"] == "step")
    seal = (
        f"<!-- STEP_COMPLETE holdfast=1 task=step run={result.run_id} round=0 in={accepted['in']} "
        f"sha256={hashlib.sha256(body).hexdigest()} cost=0 tokens=0{eol}"
    )
    assert data == body + f"{seal} sum={hashlib.sha256(seal.encode()).hexdigest()[:12]} -->\n".encode()
    assert (received, result.outputs["step"]) == (text, text)


@pytest.mark.parametrize("marker", ["<!-- DONE -->", "DONE", "DONE\n\n"])
def test_a_plain_marker_as_last_line_becomes_the_seal(tmp_path: Path, marker: str) -> None:
    """The seal takes its place; consumers receive the text without it."""
    _, received = single(tmp_path, "out.md", f"text\n{marker}", marker="DONE")
    assert received == "text\n"
    assert (tmp_path / "out.md").read_text().startswith("text\n<!-- DONE holdfast=1")


@pytest.mark.parametrize(
    ("name", "returned", "on_disk"),
    [
        ("out.bin", b"\x00\xff", b"\x00\xff"),
        ("out.txt", "plain", b"plain"),
        ("out.json", {"a": (1, 2)}, b'{\n  "a": [\n    1,\n    2\n  ]\n}\n'),
    ],
)
def test_other_formats_have_their_seal_beside_them(
    tmp_path: Path, name: str, returned: Any, on_disk: bytes
) -> None:
    """The file is exactly the content; NAME.seal is the proof; values come back as JSON holds them."""
    _, received = single(tmp_path, name, returned)
    assert (tmp_path / name).read_bytes() == on_disk
    assert hashlib.sha256(on_disk).hexdigest() in (tmp_path / f"{name}.seal").read_text()
    assert received == json.loads(json.dumps(returned)) if name == "out.json" else returned


def test_keys_of_a_dict_go_to_files_and_the_rest_stays_a_value(tmp_path: Path) -> None:
    """Consumers receive the dict whole, in every run."""
    returned = {"text": "sow\n", "score": 3, "data": b"\x01"}
    result, received = single(tmp_path, {"text": "sow.md", "data": "sow.bin"}, returned)
    assert received == returned == result.outputs["step"]
    assert (tmp_path / "sow.bin").read_bytes() == b"\x01"


@pytest.mark.parametrize("rest", [{}, {"score": 3}])
def test_files_left_without_a_record_are_adopted_with_their_value(tmp_path: Path, rest: dict[str, int]) -> None:
    """A kill between the files and the record loses neither: the seals name the value, objects/ has it."""
    pipe, ran = Pipeline("p"), []

    @pipe.step(writes={"text": "sow.md", "data": "sow.bin"})
    def step() -> dict[str, Any]:
        ran.append("step")
        return {"text": "sow\n", "data": b"\x01", **rest}

    @pipe.step
    def consumer(step: dict[str, Any]) -> list[str]:
        return sorted(step)

    before = pipe.run(dir=tmp_path, run_id="r").outputs["consumer"]
    journal = Harness(tmp_path).journal()
    lines = journal.read_bytes().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if b'"node_exit","step_id":"step"' in line)
    journal.write_bytes(b"".join(lines[:cut]))
    for snapshot in journal.parent.glob("checkpoint_*"):
        snapshot.unlink()
    result = pipe.run(dir=tmp_path, run_id="r")
    assert [event["step_id"] for event in Harness(tmp_path).events("task_adopted")] == ["step"]
    assert (result.status, ran, result.outputs["consumer"]) == ("completed", ["step"], before)


def test_a_large_file_is_moved_into_place(tmp_path: Path) -> None:
    """A step writes to ctx.out and returns it; consumers receive the final path."""
    pipe = Pipeline("p")

    @pipe.step(writes="big.bin")
    def big(ctx: Context) -> Path:
        ctx.out.write_bytes(b"z" * 3_000_000)
        return ctx.out

    @pipe.step
    def size(big: Path) -> int:
        return len(big.read_bytes())

    result = pipe.run(dir=tmp_path)
    assert result.outputs["size"] == 3_000_000
    assert result.outputs["big"] == tmp_path / "big.bin"
    (tmp_path / "big.bin").unlink()
    assert pipe.run(dir=tmp_path).status == "completed"
    assert (tmp_path / "big.bin").stat().st_size == 3_000_000


@pytest.mark.parametrize("where", ["inbox/data.md", "out.md", "made/link/data.md"])
def test_a_file_that_was_not_written_to_ctx_out_is_refused_and_left_alone(tmp_path: Path, where: str) -> None:
    """A path elsewhere may be somebody's own file: it is not moved, nothing is added to it, and nobody retries."""
    pipe, ran = Pipeline("p"), []
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "data.md").write_text("a person's")

    @pipe.step(writes="out.md", retries=2, backoff=0.0001)
    def step(ctx: Context) -> Path:
        ran.append(ctx.attempt)
        (tmp_path / "out.md").write_text("a person's")
        ctx.out.mkdir()
        (ctx.out / "link").symlink_to(tmp_path / "inbox")
        return ctx.out / "link" / "data.md" if "link" in where else tmp_path / where

    result = pipe.run(dir=tmp_path)
    (exited,) = Harness(tmp_path).events("node_exit", task="step")
    assert (result.status, ran, exited["kind"]) == ("failed", [1], "definition")
    assert ("a symbolic link at ctx.out" if "link" in where else "not ctx.out") in exited["error"]
    assert (tmp_path / "inbox" / "data.md").read_text() == (tmp_path / "out.md").read_text() == "a person's"


@pytest.mark.parametrize("name", ["own.md", "missing.md"])
def test_a_link_at_ctx_out_is_called_a_link(tmp_path: Path, name: str) -> None:
    """What it leads to is neither taken nor touched, and the message does not say that ctx.out is not ctx.out."""
    (tmp_path / "own.md").write_text("a person's")
    pipe = Pipeline("p")

    @pipe.step(writes="out.md")
    def step(ctx: Context) -> Path:
        ctx.out.symlink_to(tmp_path / name)
        return ctx.out

    assert pipe.run(dir=tmp_path).status == "failed"
    (exited,) = Harness(tmp_path).events("node_exit", task="step")
    assert exited["error"].startswith("left a symbolic link at ctx.out") and "not ctx.out" not in exited["error"]
    assert (tmp_path / "own.md").read_text() == "a person's" and not (tmp_path / "out.md").exists()


@pytest.mark.parametrize("name", ["b.md", "b.csv"])
def test_an_artifact_shares_its_bytes_with_no_other_file(tmp_path: Path, name: str) -> None:
    """A hard link left at ctx.out becomes a file of its own: neither sealing nor editing it reaches the other."""
    pipe = Pipeline("p")

    @pipe.step(writes="a.csv")
    def a() -> str:
        return "1;2"

    @pipe.step(writes=name)
    def b(ctx: Context, a: str) -> Path:
        os.link(tmp_path / "a.csv", ctx.out)
        return ctx.out

    assert pipe.run(dir=tmp_path).status == "completed"
    assert (tmp_path / "a.csv").read_text() == "1;2"
    assert (tmp_path / name).read_text().startswith("1;2")
    assert [(tmp_path / file).stat().st_nlink for file in ("a.csv", name)] == [1, 1]
    assert not list((tmp_path / ".holdfast" / "tmp").iterdir())


def test_several_large_files_lie_in_the_folder_made_of_ctx_out(tmp_path: Path) -> None:
    """`ctx.out` may be made a folder: each file in it is moved to its own place."""
    pipe = Pipeline("p")

    @pipe.step(writes={"one": "one.bin", "two": "two.bin"})
    def both(ctx: Context) -> dict[str, Path]:
        ctx.out.mkdir()
        for name in ("one", "two"):
            (ctx.out / name).write_text(name)
        return {name: ctx.out / name for name in ("one", "two")}

    assert pipe.run(dir=tmp_path).outputs["both"] == {n: tmp_path / f"{n}.bin" for n in ("one", "two")}
    assert [(tmp_path / f"{name}.bin").read_text() for name in ("one", "two")] == ["one", "two"]


def test_what_an_attempt_leaves_at_ctx_out_is_removed(tmp_path: Path) -> None:
    """The half of a large file, and a folder of which not all was given, do not stay when the attempt is over."""
    pipe = Pipeline("p")

    @pipe.step(writes={"one": "one.bin"}, retries=1, backoff=0.0001)
    def large(ctx: Context) -> dict[str, Path]:
        ctx.out.mkdir()
        for name in ("one", "scratch"):
            (ctx.out / name).write_text(name)
        if ctx.attempt == 1:
            raise ValueError
        return {"one": ctx.out / "one"}

    assert pipe.run(dir=tmp_path).status == "completed"
    assert not os.listdir(Harness(tmp_path).state / "tmp")


def test_a_large_file_that_is_refused_is_kept(tmp_path: Path) -> None:
    """It was paid for: it goes to quarantine like refused text, and the journal says where."""
    pipe = Pipeline("p")

    @pipe.step(writes="large.bin", retries=0, check=lambda large: "too small")
    def large(ctx: Context) -> Path:
        ctx.out.write_text("small")
        return ctx.out

    assert pipe.run(dir=tmp_path).status == "failed"
    (event,) = Harness(tmp_path).events("artifact_set_aside")
    assert (event["path"], event["reason"]) == ("large.bin", "refused in round 0")
    assert (Harness(tmp_path).journal().parent / event["to"]).read_text() == "small"
    assert not os.listdir(Harness(tmp_path).state / "tmp")


def test_a_stream_becomes_the_output(tmp_path: Path) -> None:
    """What was written piece by piece is in NAME.part while it grows, then the output, and the part is gone."""
    pipe, halfway = Pipeline("p"), []

    @pipe.step(writes="out.md")
    def stream(ctx: Context) -> None:
        ctx.write("one\n")
        halfway.append((tmp_path / "out.md.part").read_text())
        ctx.write("two\n")

    result = pipe.run(dir=tmp_path)
    assert (halfway, result.outputs["stream"]) == (["one\n"], "one\ntwo\n")
    assert not (tmp_path / "out.md.part").exists()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (Path.unlink, "is gone: No such file"),
        (lambda part: part.write_bytes(b"\xff" * 5), "is no text any more"),
        (lambda part: (part.unlink(), part.mkdir()), "is gone: it is a folder"),
    ],
)
def test_a_step_that_spoils_its_own_stream_has_failed(
    tmp_path: Path, spoil: Callable[[Path], object], words: str
) -> None:
    """It is the step's mistake, not the disk's: the attempt fails, and the next one may do better."""
    pipe = Pipeline("p")

    @pipe.step(writes="out.md", retries=1, backoff=0.0001)
    def stream(ctx: Context) -> None:
        ctx.write("text\n")
        if ctx.attempt == 1:
            spoil(tmp_path / "out.md.part")

    assert pipe.run(dir=tmp_path).outputs["stream"] == "text\n"
    failed, _ = Harness(tmp_path).events("node_exit")
    assert words in failed["error"]


@pytest.mark.parametrize(
    "meddle",
    [
        Path.unlink,
        lambda part: part.write_text("a draft of mine\n"),
        lambda part: part.write_text(part.read_text() + "a remark of mine\n"),
    ],
    ids=["removed", "replaced", "added to"],
)
@pytest.mark.parametrize("is_over", [False, True], ids=["while it grows", "at its end"])
def test_a_stream_that_others_change_is_not_taken_for_the_output(
    tmp_path: Path, meddle: Callable[[Path], object], is_over: bool
) -> None:
    """A text without its beginning, or with another one, would be sealed, and trusted for good."""
    pipe, part = Pipeline("p"), tmp_path / "out.md.part"

    @pipe.step(writes="out.md", retries=1, backoff=0.0001)
    def stream(ctx: Context) -> None:
        ctx.write("once upon a time\n")
        if ctx.attempt == 1 and not is_over:
            meddle(part)
        ctx.write("the end\n")
        if ctx.attempt == 1 and is_over:
            meddle(part)

    assert pipe.run(dir=tmp_path).outputs["stream"] == "once upon a time\nthe end\n"
    failed, _ = Harness(tmp_path).events("node_exit")
    assert "out.md.part" in failed["error"]
    kept = "".join(path.read_text() for path in tmp_path.glob("out.md.part.bak.*"))
    assert meddle is Path.unlink or "mine" in kept


def test_a_retry_does_not_continue_the_stream_of_the_attempt_before(tmp_path: Path) -> None:
    """Each attempt's stream begins empty: a failed one's text is not in the output."""
    pipe = Pipeline("p")

    @pipe.step(writes="out.md", retries=1, backoff=0.0001)
    def stream(ctx: Context) -> None:
        ctx.write(f"attempt {ctx.attempt}\n")
        if ctx.attempt == 1:
            raise ValueError

    assert pipe.run(dir=tmp_path).outputs["stream"] == "attempt 2\n"


@pytest.mark.parametrize("lost", [False, True], ids=["other inputs", "file lost"])
def test_a_stream_that_was_left_is_not_part_of_a_later_output(tmp_path: Path, lost: bool) -> None:
    """A finished step that runs again streams into an empty file; what stood there is set aside, and told."""
    pipe = Pipeline("p", params={"topic": str})

    @pipe.step(writes="out.md", copy=False)
    def stream(ctx: Context, topic: str) -> None:
        ctx.write(f"about {topic}\n")

    run_id = pipe.run(params={"topic": "kelp"}, dir=tmp_path).run_id
    (tmp_path / "out.md.part").write_text("an old stream\n")
    if lost:
        (tmp_path / "out.md").unlink()
    topic = "kelp" if lost else "algae"
    result = pipe.run(params={"topic": topic}, dir=tmp_path, resume=run_id)
    assert (result.status, result.outputs["stream"]) == ("completed", f"about {topic}\n")
    assert [path.read_text() for path in tmp_path.glob("out.md.part*")] == ["an old stream\n"]
    aside = Harness(tmp_path).events("artifact_set_aside")
    assert "out.md.part" in {e["path"] for e in aside}


def adopt_beside(project: Path, left: bytes, *, streamed: str) -> None:
    """A run that has only the file of a step that streamed it, and `left` where the stream was."""
    pipe = Pipeline("p")

    @pipe.step(writes="out.md")
    def stream(ctx: Context) -> None:
        ctx.write(streamed)

    pipe.run(dir=project)
    shutil.rmtree(project / ".holdfast")
    (project / "out.md.part").write_bytes(left)
    assert pipe.run(dir=project).status == "completed"


@pytest.mark.parametrize("left", ["one\ntwo\nSTREAM_COMPLETE\n", "one\ntwo\n", "one\n", ""])
def test_a_stream_is_gone_when_its_file_is_adopted(tmp_path: Path, left: str) -> None:
    """Killed between the sealed file and the end of its stream: the file is adopted, and the stream is gone."""
    adopt_beside(tmp_path, left.encode(), streamed="one\ntwo\nSTREAM_COMPLETE\n")
    assert not list(tmp_path.glob("out.md.*"))


@pytest.mark.parametrize("left", [b"one\nthree\n", b"\0\0"])
def test_another_stream_beside_an_adopted_file_is_set_aside(tmp_path: Path, left: bytes) -> None:
    """What a power cut, or an earlier attempt, has left there is no part of the file: it is kept, and told."""
    adopt_beside(tmp_path, left, streamed="one\ntwo\n")
    (kept,) = tmp_path.glob("out.md.part*")
    assert (kept.name.startswith("out.md.part.bak."), kept.read_bytes()) == (True, left)
    assert [e["to"] for e in Harness(tmp_path).events() if e["event"] == "artifact_set_aside"] == [kept.name]


@pytest.mark.parametrize("what", ["folder", "link"])
def test_what_cannot_be_read_where_a_stream_was_is_set_aside(tmp_path: Path, what: str) -> None:
    """Nobody can tell what it is: it is neither deleted nor in the way of the file's adoption."""
    pipe = Pipeline("p")

    @pipe.step(writes="out.md")
    def stream(ctx: Context) -> None:
        ctx.write("one\n")

    pipe.run(dir=tmp_path)
    shutil.rmtree(tmp_path / ".holdfast")
    left = tmp_path / "out.md.part"
    left.mkdir() if what == "folder" else left.symlink_to("elsewhere")
    assert pipe.run(dir=tmp_path).status == "completed"
    (kept,) = tmp_path.glob("out.md.part*")
    assert kept.name.startswith("out.md.part.bak.")
    assert (kept.is_dir(), kept.is_symlink()) == (what == "folder", what == "link")


class Unspeakable:
    """An object whose words cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": {1, 2}}, "value.a"),
        ({"a": [b"x"]}, r"value.a\[0\]"),
        ({"when": datetime(2026, 1, 1)}, "value.when"),
        ({"n": float("nan")}, "value.n"),
        ({1: "x"}, "a key that is not text: 1"),
        ({Unspeakable(): "x"}, "a key that is not text: a Unspeakable"),
    ],
)
def test_what_json_cannot_hold_is_refused_by_name(tmp_path: Path, value: Any, where: str) -> None:
    """The step fails, and its error names the field; nothing is turned into text silently."""
    result, _ = single(tmp_path, None, value)
    assert result.status == "failed"
    assert re.search(where, result.picture.record("step").error)


def test_a_large_value_is_kept_once_by_hash(tmp_path: Path) -> None:
    """The journal has a reference, not the value; consumers receive the value."""
    value = ["x" * 100] * 100
    result, received = single(tmp_path, None, value)
    (event,) = (e for e in Harness(tmp_path).events("node_exit") if e["step_id"] == "step")
    assert received == value == result.outputs["step"]
    assert "value" not in event and len(event["value_ref"]) == 64


@pytest.mark.parametrize("returned", [None, 5, "text"])
def test_a_step_that_does_not_give_what_it_writes_is_failed(tmp_path: Path, returned: Any) -> None:
    """A dict of files needs a dict: anything else is a failure, and no file appears."""
    result, _ = single(tmp_path, {"text": "out.md"}, returned)
    assert result.status == "failed"
    assert not (tmp_path / "out.md").exists()


@pytest.mark.parametrize(
    "ids", [["a", "A"], ["../x"], [""], [".hidden"], ["a b"], [5], "text", [{"title": "no id"}], ["con"]]
)
def test_bad_item_ids_are_a_mistake_of_the_items_function(tmp_path: Path, ids: Any) -> None:
    """They are refused before anything is made from them, and named."""
    pipe = Pipeline("p")

    @pipe.items("n")
    def make() -> Any:
        return ids

    @pipe.step(each="n", writes="{n}.md")
    def step(n: str) -> str:
        return n

    result = pipe.run(dir=tmp_path)
    assert (result.status, result.needs_review) == ("failed", ["make"])
    assert not list(tmp_path.glob("*.md.*"))


def test_a_consumer_cannot_change_what_others_receive(tmp_path: Path) -> None:
    """Each consumer gets its own copy of the stored form."""
    pipe, received = Pipeline("p"), []

    @pipe.step
    def source() -> dict[str, list[int]]:
        return {"a": [1]}

    def consumer(name: str) -> None:
        @pipe.step(name=name)
        def consume(source: dict[str, list[int]]) -> None:
            received.append(list(source["a"]))
            source["a"].append(2)

    consumer("one")
    consumer("two")
    assert pipe.run(dir=tmp_path, concurrency=1).status == "completed"
    assert received == [[1], [1]]


@pytest.mark.parametrize("nothing", ["", b""])
def test_an_output_of_no_bytes_is_whole_in_a_file_with_its_seal_beside(
    tmp_path: Path, nothing: str | bytes
) -> None:
    """It was accepted, and its seal says so: nothing is set aside, put back or found wanting."""
    pipe = Pipeline("p")
    pipe.step(lambda: nothing, name="a", writes="a.txt")
    first = pipe.run(dir=tmp_path)
    assert first.status == "completed"
    assert not Harness(tmp_path).verify(first.run_id).findings
    assert pipe.run(dir=tmp_path).status == "completed"
    assert not Harness(tmp_path).events("artifact_set_aside")
    shutil.rmtree(tmp_path / ".holdfast")
    pipe.run(dir=tmp_path)
    assert not Harness(tmp_path).events("node_enter")


def test_a_file_that_was_emptied_is_put_back(tmp_path: Path) -> None:
    """Its seal names other bytes than none."""
    pipe = Pipeline("p")
    pipe.step(lambda: "text", name="a", writes="a.txt")
    pipe.run(dir=tmp_path)
    (tmp_path / "a.txt").write_bytes(b"")
    assert pipe.run(dir=tmp_path).status == "completed"
    assert (tmp_path / "a.txt").read_text() == "text"


def test_a_step_that_changes_a_parameter_changes_it_for_nobody_else(tmp_path: Path) -> None:
    """Neither for the steps after it nor in the record, also deep inside."""
    pipe = Pipeline("p", params={"plan": (str, {"parts": [["a"]]})})

    @pipe.step
    def first(plan: dict[str, Any]) -> int:
        plan["parts"][0].append("b")
        plan["parts"].append([])
        return 1

    @pipe.step
    def second(first: int, plan: dict[str, Any]) -> dict[str, Any]:
        return plan

    result = pipe.run(dir=tmp_path)
    assert result.outputs["second"] == result.picture.state.params["plan"] == {"parts": [["a"]]}
