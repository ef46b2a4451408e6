"""docs/formats.md is complete, and a reader written from it with the standard library alone reads a real run."""

import hashlib
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import Harness
from holdfast import Context, Pipeline, events, state
from holdfast.folding import FOLD_VERSION
from holdfast.runs.history import FORMAT

from .sessions import ROOT

PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
EVENTS = {cls.__struct_config__.tag: cls for cls in events.KINDS}


def rows_of_events() -> dict[str, list[str]]:
    """Event -> the fields that its row in the page's table names."""
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+` ?)+)\|", PAGE, re.MULTILINE)
    return {event: re.findall(r"`(\w+)`", fields) for event, fields in rows if event in EVENTS}


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_every_event_has_a_row_with_exactly_its_fields(event: str) -> None:
    """The table of events names each event and each of its fields, and no other."""
    declared = [field.encode_name for field in msgspec.structs.fields(EVENTS[event])]
    assert rows_of_events().get(event) == declared


@pytest.mark.parametrize(
    "struct",
    [state.RunState, state.TaskState, state.OnceRecord, state.Accepted, state.Recall, events.FileRecord],
    ids=lambda struct: struct.__name__,
)
def test_every_field_of_a_snapshot_is_named(struct: type[msgspec.Struct]) -> None:
    """Whatever a snapshot or a file record may hold is on the page."""
    begins = "**File records**" if struct is events.FileRecord else "## Snapshots"
    told = PAGE[PAGE.index(begins) :].partition("\n\nA task is **done**" if begins[0] == "*" else "\n## Seals")[0]
    missing = [field.name for field in msgspec.structs.fields(struct) if f"`{field.name}`" not in told]
    assert missing == []


def test_the_numbers_of_a_snapshot_are_those_that_are_written() -> None:
    """The page says which format and which fold are written now."""
    assert f"`format` (now {FORMAT}), `fold` (now {FOLD_VERSION})" in PAGE
    assert f'{{"format":{FORMAT},"fold":{FOLD_VERSION},"position":' in PAGE


# --- a reader, from the page's rules; json, hashlib, re and sqlite3 only ---------------------------------


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_journal(data: bytes) -> list[dict[str, Any]]:
    """Every good line of a journal that is whole but for a torn tail."""
    good, last = [], {"seq": 0, "sum": "0" * 16}
    for line in data.split(b"\n")[:-1]:
        event = json.loads(line)
        assert list(event)[:3] == ["seq", "ts", "v"]
        assert list(event)[-2:] == ["prev", "sum"]
        assert event["v"] == 1
        assert event["sum"] == sha(line[: line.rindex(b',"sum":')])[:16]
        assert event["prev"] == last["sum"]
        assert event["seq"] > last["seq"]
        good.append(event)
        last = event
    return good


def done_tasks(journal: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Task -> the event that made it done."""
    done: dict[str, dict[str, Any]] = {}
    for event in journal:
        kind = event["event"]
        if kind == "task_adopted" or (kind == "node_exit" and event["status"] == "completed"):
            done[event["step_id"]] = event
        for task in _undone_by(event):
            done.pop(task, None)
    return done


def _undone_by(event: dict[str, Any]) -> list[str]:
    kind = event["event"]
    if kind == "redo_requested":
        return list(event["step_ids"])
    if kind == "rewind_requested":
        return list(event["targets"])
    ends = kind in ("task_invalidated", "task_rewound", "task_skipped")
    return [event["step_id"]] if ends or (kind == "decided" and event["choice"] in ("redo", "skip")) else []


def spent(journal: list[dict[str, Any]]) -> float:
    """What the run has cost, counted by task."""
    cost: dict[str, float] = {}
    for event in journal:
        task, named = event.get("step_id", ""), event.get("cost_usd", 0.0)
        if event["event"] == "usage":
            cost[task] = cost.get(task, 0.0) + named
        elif event["event"] in ("node_exit", "task_adopted"):
            cost[task] = max(cost.get(task, 0.0), named)
    return sum(cost.values())


def read_snapshot(data: bytes) -> dict[str, Any]:
    snapshot = json.loads(data)
    assert list(snapshot) == ["format", "fold", "position", "state", "sha256"]
    assert snapshot["sha256"] == sha(data[: data.rindex(b',"sha256":')])
    return dict(snapshot)


def read_seal(line: bytes) -> dict[str, str]:
    match = re.fullmatch(rb"<!-- (?:(\S+) )?holdfast=1((?: [a-z0-9]+=\S*)+) -->", line.strip())
    assert match, line
    return dict(word.split("=", 1) for word in match[2].decode().split())


def sealed_body(path: Path) -> tuple[bytes, dict[str, str]]:
    data = path.read_bytes()
    if path.suffix != ".md":
        return data, read_seal(path.with_name(path.name + ".seal").read_bytes())
    start = data.rstrip().rfind(b"\n") + 1
    return data[:start], read_seal(data[start:])


def read_pack(data: bytes) -> dict[str, bytes]:
    objects, at = {}, 0
    while at < len(data):
        end = data.index(b"\n", at)
        header = json.loads(data[at:end])
        body = data[end + 1 : end + 1 + header["size"]]
        assert sha(body) == header["sha256"]
        assert data[end + 1 + header["size"]] == ord("\n")
        objects[header["sha256"]] = body
        at = end + 2 + header["size"]
    return objects


# --- a real run ------------------------------------------------------------------------------------------

pipe = Pipeline("formats", params={"big": int})
pipe.items("part", ["a", "b"])


@pipe.step(each="part", writes="notes/{part}.md")
def note(ctx: Context, part: str) -> str:
    answer = ctx.once("answer", lambda: "x" * 3000)
    ctx.usage(input_tokens=3, output_tokens=4, cost_usd=0.25)
    return f"# {part}\n{answer[:10]}"  # no newline at the end


@pipe.step(writes="table.csv")
def table(note: dict[str, str]) -> str:
    return "part,length\n" + "".join(f"{part},{len(text)}\n" for part, text in note.items())


@pipe.step
def value(big: int) -> dict[str, Any]:
    return {"text": "y" * big}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("formats")
    assert pipe.run(params={"big": 5000}, dir=folder, run_id="r1").status == "completed"
    return folder


def run_dir(project: Path) -> Path:
    return project / ".holdfast" / "runs" / "r1"


def test_journal_reads_by_the_rules(project: Path) -> None:
    """Every line proves itself and the one before, and what is done follows from the events."""
    journal = read_journal((run_dir(project) / "events.jsonl").read_bytes())
    assert journal[0]["event"] == "run_started"
    assert set(done_tasks(journal)) == {"note[a]", "note[b]", "table", "value"}
    assert spent(journal) == 0.5
    assert next(e for e in journal if e.get("step_id") == "table")["parents"] == ["note[*]"]


def test_what_is_done_and_spent_can_be_read_after_a_kill_and_a_decision(tmp_path: Path) -> None:
    """An adopted file has cost what was booked before the kill, once; what a person wants again is not done."""
    pipe.run(params={"big": 10}, dir=tmp_path, run_id="r1", concurrency=1)
    path = run_dir(tmp_path) / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    ended = next(n for n, line in enumerate(lines) if b'"node_exit","step_id":"note[a]"' in line)
    path.write_bytes(b"".join(lines[:ended]))  # as after a kill between a file and its record
    for snapshot in run_dir(tmp_path).glob("checkpoint_*"):
        snapshot.unlink()
    assert pipe.run(params={"big": 10}, dir=tmp_path).status == "completed"
    Harness(tmp_path).decide("table", "redo", run_id="r1")
    journal = read_journal(path.read_bytes())
    assert "task_adopted" in [event["event"] for event in journal if event.get("step_id") == "note[a]"]
    assert set(done_tasks(journal)) == {"note[a]", "note[b]", "value"}
    assert spent(journal) == Harness(tmp_path).picture("r1").state.cost_usd == 0.5


def test_what_a_lost_run_has_adopted_is_done_and_has_cost(tmp_path: Path) -> None:
    """Each adoption is an event of its own."""
    pipe.run(params={"big": 10}, dir=tmp_path, run_id="r1")
    shutil.rmtree(tmp_path / ".holdfast")
    assert pipe.run(params={"big": 10}, dir=tmp_path).status == "completed"
    journal = read_journal((run_dir(tmp_path) / "events.jsonl").read_bytes())
    adopted = [event["step_id"] for event in journal if event["event"] == "task_adopted"]
    assert sorted(adopted) == sorted(done_tasks(journal)) == ["note[a]", "note[b]", "table", "value"]
    assert spent(journal) == Harness(tmp_path).picture("r1").state.cost_usd == 0.5


def test_a_snapshot_knows_what_a_repaired_journal_has_lost(tmp_path: Path) -> None:
    """The newest one that proves itself, and the lines with a higher number, whatever line it names."""
    pipe.run(params={"big": 10}, dir=tmp_path, run_id="r1", concurrency=1)
    path = run_dir(tmp_path) / "events.jsonl"
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"node_exit","step_id":"note[a]"', b'"node_exit","step_id":"note[?]"'))
    assert pipe.run(params={"big": 10}, dir=tmp_path).status == "completed"
    journal = read_journal(path.read_bytes())
    (repaired,) = [event for event in journal if event["event"] == "journal_repaired"]
    assert repaired["missing_total"] == 1
    assert "note[a]" not in done_tasks(journal)
    for snapshot in run_dir(tmp_path).glob("checkpoint_*.json"):
        state = read_snapshot(snapshot.read_bytes())["state"]
        assert state["tasks"]["note[a]"]["status"] == "completed"


def test_snapshot_proves_itself_and_names_its_line(project: Path) -> None:
    """The newest snapshot's hash and sidecar fit, and its position is a line of the journal."""
    path = max(run_dir(project).glob("checkpoint_*.json"))
    snapshot = read_snapshot(path.read_bytes())
    seq, line_hash, offset = snapshot["position"]
    lines = (run_dir(project) / "events.jsonl").read_bytes()[:offset]
    journal, last = read_journal(lines), lines.splitlines()[-1]
    assert (journal[-1]["seq"], sha(last[: last.rindex(b',"prev":')])[:16]) == (seq, line_hash)
    assert {task for task, row in snapshot["state"]["tasks"].items() if row["status"] == "completed"} == set(
        done_tasks(journal)
    )
    assert path.with_suffix(".sha256").read_text() == f"{sha(path.read_bytes())}  {path.name}\n"


def test_artifacts_prove_themselves(project: Path) -> None:
    """Each accepted file's seal names its task and hashes the bytes above it, as the journal says."""
    journal = read_journal((run_dir(project) / "events.jsonl").read_bytes())
    checked = 0
    for task, event in done_tasks(journal).items():
        for record in event.get("files", []):
            body, seal = sealed_body(project / record["path"])
            assert (seal["task"], seal["run"], seal["in"]) == (task, "r1", event["in"])
            assert sha(body) == seal["sha256"] == record["sha256"]
            assert (seal.get("eol") == "added") == record.get("newline_added", False)
            checked += 1
    assert checked == 3


def test_pack_holds_every_object_that_the_journal_names(project: Path) -> None:
    """Accepted files, large values and large results of paid calls are in the pack, by hash."""
    objects = read_pack((project / ".holdfast" / "objects" / "r1" / "0001.pack").read_bytes())
    journal = read_journal((run_dir(project) / "events.jsonl").read_bytes())
    named = {record["sha256"] for event in journal for record in event.get("files", [])}
    named |= {event[ref] for event in journal for ref in ("value_ref", "result_ref") if event.get(ref)}
    assert len(named) == 5
    assert named <= set(objects)


def test_every_member_of_the_summary_is_named(project: Path) -> None:
    """Whatever checkpoint.json holds is on the page, but for parameters and tags at its top level."""
    told = PAGE[PAGE.index("## Views and their stamps") : PAGE.index("### Read back")]
    (path,) = project.glob(".holdfast/runs/*/checkpoint.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    own = [name for name in document if name not in {**document["params"], **document["tags"]}]
    assert [name for name in own if f"`{name}`" not in told and f'"{name}"' not in told] == []


def test_views_carry_fitting_stamps(project: Path) -> None:
    """The stamp of each view covers what stands above it."""
    for path in (project / "checkpoint.md", project / "RESUME.md"):
        data = path.read_bytes()
        start = data.rstrip().rfind(b"\n") + 1
        stamp = re.fullmatch(rb"<!-- holdfast view run=r1 seq=\d+ sha256=([0-9a-f]{64}) -->\n", data[start:])
        assert stamp and stamp[1].decode() == sha(data[:start])
    data = (run_dir(project) / "checkpoint.json").read_bytes()
    assert json.loads(data)["stamp"]["sha256"] == sha(data[: data.rindex(b'"stamp":')])


def test_todos_query_lists_what_can_start(project: Path) -> None:
    """The page's query, on a run that is complete, lists nothing, and every task is done."""
    (query,) = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    with sqlite3.connect(project / ".holdfast" / "todos.db") as database:
        assert database.execute(query).fetchall() == []
        assert dict(database.execute("SELECT status, count(*) FROM todos GROUP BY status")) == {"done": 4}
    database.close()
