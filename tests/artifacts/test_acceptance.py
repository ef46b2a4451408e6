"""One acceptance in two halves: whoever has an output offers it, and it lands whole, recorded, or not at all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import Pipeline, seals
from holdfast import events as ev
from holdfast.artifacts.acceptance import Acceptance
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.keeping import Artifacts
from holdfast.artifacts.looks import CHANGED, MISSING, SEALED, Look
from holdfast.artifacts.offers import ADOPTED, MIGRATED, PERSON, ObjectedError, Offer, OvertakenError
from holdfast.artifacts.parts import Ingredients
from holdfast.artifacts.products import UNWRITTEN, OutputRefusedError
from holdfast.errors import ValueRefusedError
from holdfast.events import FileRecord
from holdfast.folding import fold
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.unfolding import build_graph
from holdfast.state import COMPLETED, IN_PROGRESS, RunState, TaskState
from holdfast.stores import disk
from holdfast.values import digest
from stores.local import local_stores

TEXT = "what was made\n"
EDITED = b"what was made, and mended\n"
NOW = Ingredients({"x": "1"}, "in")


class Killed(BaseException):
    """The process is gone."""


class Project:
    """The stores of one process, and the state that what it records is folded into."""

    def __init__(self, root: Path, state: RunState | None = None, *, stores: Any = None) -> None:
        self.root = root
        self.state = state or RunState(run_id="R")
        pipe = Pipeline("p")
        pipe.items("ch", ["a"])
        pipe.step(name="text", writes="out/text.md", marker="DONE")(lambda: "")
        pipe.step(name="data", writes="out/data.json")(lambda: {})
        pipe.step(name="both", writes={"text": "both.md", "table": "both.csv"})(lambda: {})
        pipe.step(name="value")(lambda: 0)
        pipe.step(name="loose", writes="loose.md", copy=False)(lambda: "")
        pipe.step(name="terms", each="ch", appends="terms.md")(lambda ch: "")
        self.graph = build_graph(pipe.compile().spec, {})
        self.tree, self.objects = stores or local_stores(root)
        self.artifacts = Artifacts(self.tree, self.objects)
        self.acceptance = Acceptance(Inputs(self.graph, self.state, self.artifacts, root))
        self.events: list[ev.Event] = []

    def node(self, name: str) -> Node:
        return self.graph.nodes[name]

    def begin(self, name: str) -> TaskState:
        """The task is at work; gives what its record will be, but for the output."""
        self.state.tasks[name] = replace(self.state.task(name), status=IN_PROGRESS, attempt=1)
        return replace(self.state.task(name), input_digest="in", inputs={"x": "1"}, cost_usd=0.5)

    def offer(self, name: str, output: Any) -> Offer:
        return self.acceptance.offer(self.node(name), output, self.begin(name))

    def land(self, offer: Offer, now: Ingredients | None = None) -> list[ev.Event]:
        """As a commit does: objects are durable before what names them is recorded."""
        self.objects.sync()
        landed = list(self.acceptance.land(offer, now))
        self.objects.sync()
        for event in landed:
            fold(self.state, event, len(self.events), 0.0)
            self.events.append(event)
        return landed

    def look(self, path: str, name: str) -> Look:
        return self.artifacts.files.look(path, self.node(name).names, None)

    def again(self) -> Project:
        """What the next process finds, which has the same record."""
        self.objects.close()
        return Project(self.root, self.state)

    def staged(self) -> list[Path]:
        tmp = self.root / ".holdfast" / "tmp"
        return list(tmp.iterdir()) if tmp.exists() else []


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# --- a story for each who offers ---------------------------------------------------------------------------


def test_what_a_body_gave_is_kept_and_staged_then_lands_whole_and_is_recorded(project: Project) -> None:
    offer = project.offer("text", TEXT)
    (file,) = offer.files
    assert project.objects.get(file.sha256) == TEXT.encode()
    assert (project.look("out/text.md", "text").kind, len(project.staged())) == (MISSING, 1)
    (exited,) = project.land(offer)
    assert isinstance(exited, ev.NodeExited)
    found = project.look("out/text.md", "text")
    assert (found.kind, found.body, project.staged()) == (SEALED, TEXT.encode(), [])
    assert found.seal is not None
    assert (found.seal.input_digest, found.seal.cost_usd, found.seal.marker) == ("in", 0.5, "DONE")
    record = project.state.task("text")
    assert record.status == COMPLETED and record.accepted is not None
    assert project.artifacts.load(record.accepted) == TEXT
    assert not project.artifacts.files.is_touched(exited.files[0])


def test_files_of_one_step_and_the_value_beside_them_land_as_one_set(project: Project) -> None:
    project.land(project.offer("both", {"text": TEXT, "table": "1,2\n", "size": 3}))
    accepted = project.state.task("both").accepted
    assert accepted is not None
    assert project.artifacts.load(accepted) == {"text": TEXT, "table": "1,2\n", "size": 3}
    found = [project.look(path, "both").seal for path in ("both.md", "both.csv")]
    assert len({(seal.set_digest, seal.value_digest) for seal in found if seal is not None}) == 1


def test_a_value_without_files_is_on_record_alone(project: Project) -> None:
    (exited,) = project.land(project.offer("value", {"a": 1}))
    assert isinstance(exited, ev.NodeExited) and bytes(exited.value) == b'{"a":1}'


def test_a_section_is_in_its_copy_until_its_file_is_drawn(project: Project) -> None:
    project.land(project.offer("terms[a]", "a term"))
    accepted = project.state.task("terms[a]").accepted
    assert accepted is not None and [file.kind for file in accepted.files] == [UNWRITTEN]
    assert project.artifacts.load(accepted) == "a term"
    assert not (project.root / "terms.md").exists()


def test_a_file_that_proves_itself_is_adopted_as_it_lies_there(project: Project) -> None:
    """Its copy is kept, and nothing is written to it."""
    project.land(project.offer("text", TEXT))
    before = (project.root / "out/text.md").stat()
    lost = Project(project.root, RunState(run_id="R"))
    found = lost.look("out/text.md", "text")
    assert found.seal is not None
    record = FileRecord("", "out/text.md", len(found.body), found.seal.sha256, "text")
    made = TaskState(evidence="sealed", input_digest="in")
    offer = lost.acceptance.offer_found(
        lost.node("text"), [(record, found.body)], made, by=ADOPTED, is_sealed=True
    )
    (adopted,) = lost.land(offer)
    assert isinstance(adopted, ev.TaskAdopted) and adopted.output_digest == digest(TEXT.encode())
    after = (project.root / "out/text.md").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert lost.objects.get(record.sha256) == TEXT.encode()


def test_a_file_that_others_left_is_adopted_and_gets_its_seal(project: Project) -> None:
    (project.root / "out").mkdir()
    (project.root / "out/text.md").write_text(TEXT + "<!-- DONE -->\n")
    project.land(left_by_others(project))
    found = project.look("out/text.md", "text")
    assert (found.kind, found.body) == (SEALED, TEXT.encode())
    assert [type(event) for event in project.events] == [ev.TaskAdopted]


def test_an_edit_that_a_person_keeps_is_sealed_as_it_is(project: Project) -> None:
    project.land(project.offer("text", TEXT))
    edit(project)
    (kept,) = project.land(kept_edit(project))
    found = project.look("out/text.md", "text")
    assert isinstance(kept, ev.TaskKept) and kept.files[0].by_hand
    assert (found.kind, found.body, project.objects.get(digest(EDITED))) == (SEALED, EDITED, EDITED)
    assert project.state.task("text").output_digest == digest(EDITED)


def test_another_form_of_an_output_takes_its_place_and_is_known_as_before(project: Project) -> None:
    project.land(project.offer("data", {"a": 1}))
    known = project.state.task("data").output_digest
    (written,) = project.land(other_form(project))
    assert isinstance(written, ev.ValueMigrated) and written.version == 2
    found = project.look("out/data.json", "data")
    assert found.kind == SEALED and found.seal is not None
    assert (found.seal.known_as, found.seal.step_version, project.state.task("data").output_digest) == (
        known,
        2,
        known,
    )


# --- what does not land ------------------------------------------------------------------------------------


def test_what_is_not_as_declared_is_refused_before_anything_is_written(project: Project) -> None:
    refused = [("text", None), ("both", {"text": TEXT}), ("both", TEXT), ("terms[a]", 3)]
    for name, output in refused:
        with pytest.raises(OutputRefusedError):
            project.offer(name, output)
    with pytest.raises(ValueRefusedError):
        project.offer("data", {"a": object()})
    assert project.staged() == []


def test_what_a_check_objects_to_is_not_on_offer(project: Project) -> None:
    node, made = project.node("text"), project.begin("text")
    with pytest.raises(ObjectedError, match="too short") as error:
        project.acceptance.offer(node, TEXT, made, check=lambda output: "too short")
    assert (error.value.output, project.staged()) == (TEXT, [])


def test_the_same_output_offered_twice_is_accepted_once(project: Project) -> None:
    first, second = project.offer("text", TEXT), project.offer("text", TEXT)
    assert len(project.land(first)) == 1
    assert (project.land(second), project.staged()) == ([], [])
    assert project.look("out/text.md", "text").kind == SEALED


def test_another_output_of_a_task_that_has_one_is_too_late(project: Project) -> None:
    first, second = project.offer("text", TEXT), project.offer("text", "another\n")
    project.land(first, NOW)
    with pytest.raises(OvertakenError):
        project.land(second, NOW)
    assert (project.look("out/text.md", "text").body, project.staged()) == (TEXT.encode(), [])


def test_an_output_of_an_earlier_round_is_too_late(project: Project) -> None:
    offer = project.offer("text", TEXT)
    project.state.tasks["text"] = replace(project.state.task("text"), round=1)
    with pytest.raises(OvertakenError):
        project.land(offer, NOW)
    assert (project.look("out/text.md", "text").kind, project.staged()) == (MISSING, [])


def test_an_output_made_from_other_inputs_than_there_are_now_is_too_late(project: Project) -> None:
    """For whoever has no hold on its turn, and says what it would be made of now."""
    offer = project.offer("text", TEXT)
    with pytest.raises(OvertakenError, match="has changed"):
        project.land(offer, Ingredients({"x": "2"}, "other"))
    assert (project.look("out/text.md", "text").kind, project.staged()) == (MISSING, [])
    assert len(project.land(project.offer("text", TEXT), NOW)) == 1


def test_what_somebody_put_there_while_an_offer_waited_is_set_aside_and_told(project: Project) -> None:
    offer = project.offer("text", TEXT)
    (project.root / "out").mkdir()
    (project.root / "out/text.md").write_text("mine\n")
    aside, exited = project.land(offer)
    assert isinstance(aside, ev.ArtifactSetAside) and isinstance(exited, ev.NodeExited)
    assert (project.root / aside.to).read_text() == "mine\n"


def test_an_offer_is_data(project: Project) -> None:
    """It may be kept, or sent, and lands as it was made."""
    offer = project.offer("both", {"text": TEXT, "table": "1,2\n", "size": 3})
    sent = msgspec.json.decode(msgspec.json.encode(offer), type=Offer)
    project.land(sent)
    assert project.look("both.md", "both").kind == project.look("both.csv", "both").kind == SEALED


# --- stopped before, in the middle of and after every write ------------------------------------------------


def left_by_others(project: Project) -> Offer:
    record = FileRecord("", "out/text.md", len(TEXT), digest(TEXT.encode()), "text")
    made = TaskState(evidence="marker", input_digest="in")
    return project.acceptance.offer_found(project.node("text"), [(record, TEXT.encode())], made, by=ADOPTED)


def edit(project: Project) -> None:
    path = project.root / "out/text.md"
    path.write_bytes(path.read_bytes().replace(TEXT.encode(), EDITED))
    assert project.look("out/text.md", "text").kind == CHANGED


def kept_edit(project: Project) -> Offer:
    record = FileRecord("", "out/text.md", len(EDITED), digest(EDITED), "text", by_hand=True)
    made = replace(project.state.task("text"), output_digest="")
    return project.acceptance.offer_found(
        project.node("text"), [(record, EDITED)], made, by=PERSON, edited={record.path}
    )


def other_form(project: Project) -> Offer:
    made = replace(project.state.task("data"), version=2)
    return project.acceptance.offer(project.node("data"), {"a": 1, "b": 2}, made, by=MIGRATED)


def nothing_there(project: Project) -> None:
    """The task begins with an empty folder."""


def marked_there(project: Project) -> None:
    (project.root / "out").mkdir()
    (project.root / "out/text.md").write_text(TEXT + "<!-- DONE -->\n")


def edited_there(project: Project) -> None:
    project.land(project.offer("text", TEXT))
    edit(project)


def accepted_there(project: Project) -> None:
    project.land(project.offer("data", {"a": 1}))


def sent_back_there(project: Project) -> None:
    project.land(project.offer("both", {"text": "first\n", "table": "0\n"}))
    project.state.tasks["both"] = replace(project.state.task("both"), status=IN_PROGRESS, round=1)


BOTH = {"text": TEXT, "table": "1,2\n", "size": 3}

STORIES: dict[str, tuple[str, Callable[[Project], None], Callable[[Project], Offer], list[str]]] = {
    "body": ("text", nothing_there, lambda p: p.offer("text", TEXT), ["out/text.md"]),
    "body-without-copy": ("loose", nothing_there, lambda p: p.offer("loose", TEXT), ["loose.md"]),
    "body-of-several": ("both", nothing_there, lambda p: p.offer("both", BOTH), ["both.md", "both.csv"]),
    "body-again": ("both", sent_back_there, lambda p: p.offer("both", BOTH), ["both.md", "both.csv"]),
    "adopted": ("text", marked_there, left_by_others, ["out/text.md"]),
    "person": ("text", edited_there, kept_edit, ["out/text.md"]),
    "migrated": ("data", accepted_there, other_form, ["out/data.json"]),
    "section": ("terms[a]", nothing_there, lambda p: p.offer("terms[a]", "a term"), []),
}


class KillAt:
    """Kills before the N-th operation on the disk; if `torn`, a write is half done by then."""

    def __init__(self, number: int, *, torn: bool) -> None:
        self._numbers = itertools.count(1)
        self._at = number
        self._torn = torn
        self.is_over = False

    def __call__(self, operation: str, path: str) -> None:
        if self.is_over or next(self._numbers) < self._at:  # a dead process removes no temporaries
            if self.is_over:
                raise OSError("the process is dead")
            return
        self.is_over = True
        if self._torn and operation == "write":
            raise disk.TornWrite(_killed)
        _killed()


def _killed() -> None:
    raise Killed


@pytest.fixture
def unhooked() -> Iterator[None]:
    yield
    disk.hook = None


@pytest.mark.usefixtures("unhooked")
@pytest.mark.parametrize("torn", [False, True], ids=["before", "during"])
@pytest.mark.parametrize("story", STORIES)
def test_whenever_it_is_stopped_what_is_there_is_old_or_new_and_offering_again_leads_on(
    tmp_path: Path, story: str, torn: bool
) -> None:
    """No file is believed that is neither, and the end is as if nothing had been."""
    name, prepare, make, paths = STORIES[story]
    wanted = finished(tmp_path / "undisturbed", name, prepare, make, paths)
    for number in itertools.count(1):
        project = Project(tmp_path / str(number))
        prepare(project)
        before = bodies(project, name, paths)
        disk.hook = kill = KillAt(number, torn=torn)
        try:
            project.land(make(project))
        except Killed:
            pass
        finally:
            disk.hook = None
        if not kill.is_over:
            assert number > 1
            return
        after = project.again()
        for path, body in bodies(after, name, paths).items():
            assert body in (before[path], wanted[path], None), f"{path}, killed before operation {number}"
        after.land(make(after))
        assert bodies(after, name, paths) == wanted
        accepted = after.state.task(name).accepted
        assert accepted is not None
        for file in accepted.files:
            assert not file.stored or after.objects.get(file.sha256) is not None
        after.objects.close()


def finished(root: Path, name: str, prepare: Any, make: Any, paths: list[str]) -> dict[str, bytes | None]:
    """What the files of an undisturbed project hold."""
    project = Project(root)
    prepare(project)
    project.land(make(project))
    project.objects.close()
    return bodies(project, name, paths)


def bodies(project: Project, name: str, paths: list[str]) -> dict[str, bytes | None]:
    """What each file is believed to hold; None if it is not believed."""
    found = {path: project.look(path, name) for path in paths}
    return {path: seen.body if seen.kind == SEALED else None for path, seen in found.items()}


def test_the_seal_beside_a_file_speaks_for_both_forms_while_one_replaces_the_other(tmp_path: Path) -> None:
    """Killed between the two renames, whichever is there proves itself."""
    project = Project(tmp_path)
    accepted_there(project)
    offer = other_form(project)
    announced, body, sealed = offer.staged
    assert [one.path for one in offer.staged] == [announced.path, "out/data.json", announced.path]
    for landing in (announced, body, sealed):
        project.acceptance.sealed_files.land([landing])
        assert project.look("out/data.json", "data").kind == SEALED
    assert announced.path == seals.seal_path("out/data.json")
