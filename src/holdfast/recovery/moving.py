"""Finished files whose step names another path now: each is brought there, sealed, and nothing is lost on the way.

Rule 1. Moving comes before judging: whether a file is wanted as it is, is asked where it belongs.
Rule 2. An edited text is moved as it is. What is damaged stays where it is until that is dealt with, and so does
        an edit whose seal would have to leave the file, or come into it.
Rule 3. Whatever has the new name and is no finished file of this run is set aside, and told.
Rule 4. A finished file of another task that has the new name gives way: it is parked under a name that only its
        task and its path determine, and is then brought to its own new path. So files may trade places.
Rule 5. A file whose new name differs only in case is parked, too: a disk that folds case has one file by both
        names, and who deletes the old one deletes the new.

Crash story: a file is moved, or parked, before the event that says so. Killed in between, it is whole at its old
path, at its new one or where it is parked: `_locate` looks at all three, and goes on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts import looks as look
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.looks import Look
from holdfast.artifacts.products import SECTION, UNWRITTEN, for_file, is_parked, parked_path, seal_of
from holdfast.artifacts.sealed_files import SealedFiles
from holdfast.decisions import Action, Foretold, Step
from holdfast.events import FileRecord
from holdfast.pipeline.names import fold
from holdfast.pipeline.nodes import Node
from holdfast.recovery.actions import GONE, Do, Say, SetAside
from holdfast.recovery.relocating import Relocating
from holdfast.seals import Seal
from holdfast.state import COMPLETED, Accepted, TaskState
from holdfast.values import digest

_SECTIONS = (SECTION, UNWRITTEN)

Claim = Callable[[Node, Mapping[str, str]], str]
"""Which other task writes to one of these paths, too; "" if none does."""


class Moving:
    """Brings the finished files of one run to the paths that its pipeline names."""

    def __init__(self, inputs: Inputs, claimed_by: Claim) -> None:
        self.state = inputs.state
        self.inputs = inputs
        self.artifacts = inputs.artifacts
        self._sealed_files = SealedFiles(inputs.artifacts)
        self._files = Relocating(inputs.artifacts, self._sealed_files)
        self._claimed_by = claimed_by
        self._homes: dict[str, str] | None = None  # path -> the task whose finished file was there at first

    def bring_home(self, node: Node) -> Iterator[Action]:
        """What moves the files of a finished task. Each is to be done before the next is asked for."""
        yield from self._bring_all(deque([node]))

    def is_away(self, node: Node) -> bool:
        """Whether a finished file of a task is not where the pipeline names it. Asked of every task."""
        record = self.state.tasks.get(node.id)
        if record is None or record.accepted is None or not record.accepted.files:
            return False
        paths = self.inputs.paths(node)
        for file in record.accepted.files:
            if paths.get(file.key, file.path) != file.path:
                return bool(self._away(node))
        return False

    def free(self, path: str) -> Iterator[Action]:
        """Have the finished file at this path brought where it belongs now, if that is elsewhere."""
        due: deque[Node] = deque()
        yield from self._give_way(path, due)
        yield from self._bring_all(due)

    def _bring_all(self, due: deque[Node]) -> Iterator[Action]:
        while due:
            node = due.popleft()
            if not self._claimed_by(node, self.inputs.paths(node)):
                yield from self._bring_files(node, due)

    def _bring_files(self, node: Node, due: deque[Node]) -> Iterator[Action]:
        """Move the files of one task until none can go on: a damaged one can when a sibling has taken its path."""
        is_moving = True
        while is_moving:
            is_moving = False
            for file, target in self._away(node):
                for action in self._bring(node, file.key, target, due):
                    is_moving = True
                    yield action

    def _away(self, node: Node) -> list[tuple[FileRecord, str]]:
        """The finished files of a task that are not where the pipeline names them, and where that is."""
        record = self.state.tasks.get(node.id)
        if record is None or record.status != COMPLETED or record.accepted is None:
            return []
        files = record.accepted.files
        paths = self.inputs.paths(node) if files else {}
        found = [(file, paths.get(file.key, file.path)) for file in files]
        return [(file, to) for file, to in found if to != file.path and file.kind not in _SECTIONS]

    def _bring(self, node: Node, key: str, target: str, due: deque[Node]) -> Iterator[Action]:
        """Move one file; whose file gives way to it is due next."""
        if fold(self._file(node, key).path) == fold(target):
            yield from self._give_way(self._file(node, key).path, due)
        file = self._file(node, key)
        place, found = self._locate(node, file, target)
        is_edited = found.kind == look.CHANGED and seals.is_inline(place.path) and seals.is_inline(target)
        if place.path == target:  # moved before, and not recorded
            if found.is_whole:
                place = yield from self._end(node, place)
            elif place.stored and place.sha256 != file.sha256:
                yield Do(Foretold(), partial(self._keep_again, place))
        elif found.kind == look.MISSING or self._is_taken(node, place, found):
            yield from self._give_way(target, due)
            place, body = self._files.lost_at(file, target)  # from now on that is where it is missing
            if body is not None:
                yield Do(Foretold(), partial(self._keep, place, body))
            for path in self._files.in_the_way(place, node.names):
                yield from self._set_aside(node, path)
        elif is_edited or self._is_proved(place, found):
            new, body = self._files.at_another_path(place, target, as_it_is=is_edited)
            yield from self._give_way(target, due)
            for path in [target] if is_edited else self._files.in_the_way(new, node.names):
                yield from self._set_aside(node, path)
            place = yield from self._move(node, place, new, body, found)
        elif place.path == file.path:
            return
        yield Say(self._moved(node, file, place))
        if place.path == target:
            yield Do(Foretold(), partial(self._clear_up, node, file))

    def _keep_again(self, file: FileRecord) -> Sequence[ev.Event]:
        self.artifacts.keep_again(file)
        return ()

    def _keep(self, file: FileRecord, body: bytes) -> Sequence[ev.Event]:
        self.artifacts.objects.put(body, file.sha256)
        return ()

    def _clear_up(self, node: Node, file: FileRecord) -> Sequence[ev.Event]:
        """Delete what a kill has left of a file that is in its place: where it was parked, and seals beside it."""
        parked = replace(file, path=parked_path(node.id, file.path))
        if self.artifacts.files.check(parked, node.names).kind == look.SEALED:
            self.artifacts.tree.remove(parked.path, sync=True)
        for place in (file, parked) if not seals.is_inline(file.path) else ():
            self._files.remove_seal(place, node.names)
        return ()

    def _is_proved(self, place: FileRecord, found: Look) -> bool:
        """Whether nothing is lost if only the accepted bytes are taken along."""
        if found.kind == look.SEALED:
            return True
        has_seal = seals.is_inline(place.path) or self.artifacts.files.exists(seals.seal_path(place.path))
        return found.is_whole and not has_seal  # else that seal, damaged, is kept by whoever mends it

    def _file(self, node: Node, key: str) -> FileRecord:
        accepted = self.state.task(node.id).accepted or Accepted()
        return next(file for file in accepted.files if file.key == key)

    def _moved(self, node: Node, old: FileRecord, new: FileRecord) -> ev.ArtifactMoved:
        files = self._with(node, new).files
        return ev.ArtifactMoved(step_id=node.id, path=old.path, to=new.path, files=files)

    def _with(self, node: Node, new: FileRecord) -> Accepted:
        """What is accepted of a task, with another record of one of its files."""
        accepted = self.state.task(node.id).accepted or Accepted()
        return replace(accepted, files=tuple(new if f.key == new.key else f for f in accepted.files))

    # --- where a file is -----------------------------------------------------------------------------------

    def _locate(self, node: Node, file: FileRecord, target: str) -> tuple[FileRecord, Look]:
        """An accepted file where it is found, and how it looks there."""
        here = self.artifacts.files.check(file, node.names)
        is_taken = self._is_taken(node, file, here)
        if here.kind in (look.SEALED, look.CHANGED) and not is_taken:
            return file, here
        parked = parked_path(node.id, file.path)
        seen = [self._seen_at(node, file, path) for path in (target, parked)]
        for place, found in seen:
            if found.kind in (look.SEALED, look.CHANGED) and not self._is_anothers(node, place, found):
                return place, found
        if here.is_whole and not is_taken:
            return file, here
        return next(((place, found) for place, found in seen if found.is_whole), (file, here))

    def _seen_at(self, node: Node, file: FileRecord, path: str) -> tuple[FileRecord, Look]:
        """A file as it looks at another path, where it may have got the newline that a seal inside needs."""
        place = replace(file, path=path)
        found = self.artifacts.files.check(place, node.names)
        if found.seal is None or file.newline_added or not found.seal.newline_added:
            return place, found
        longer = replace(place, size=file.size + 1, sha256=found.seal.sha256, newline_added=True)
        seen = self.artifacts.files.check(longer, node.names)
        is_same = found.kind == look.SEALED or digest(seals.author_body(seen.body, True)) == file.sha256
        return (longer, seen) if seen.kind == look.SEALED and is_same else (place, found)

    def _is_taken(self, node: Node, file: FileRecord, found: Look) -> bool:
        """Whether the path where a file is on record is another's by now, there or to come back there."""
        accepted = self.state.task(node.id).accepted or Accepted()
        is_siblings = any(other.path == file.path and other.key != file.key for other in accepted.files)
        return is_siblings or self._is_anothers(node, file, found)

    def _is_anothers(self, node: Node, file: FileRecord, found: Look) -> bool:
        """Whether what is found at the path of a file is another finished file that belongs there by now."""
        seal = found.seal
        if seal is None or seal.run != self.state.run_id:
            return False
        if seal.task in node.names:
            return self._is_siblings(node, file, found, seal)
        other = self.inputs.graph.nodes.get(seal.task)
        return other is not None and file.path in self.inputs.paths(other).values()

    def _is_siblings(self, node: Node, file: FileRecord, found: Look, seal: Seal) -> bool:
        """The same of one task's several files: none is an edit of the other."""
        accepted = self.state.task(node.id).accepted or Accepted()
        others = {other.sha256 for other in accepted.files if other.key != file.key}
        others -= {file.sha256, self._file(node, file.key).sha256}
        author = digest(seals.author_body(found.body, seal.newline_added))
        return digest(found.body) == seal.sha256 and not others.isdisjoint((seal.sha256, author))

    # --- moving it -----------------------------------------------------------------------------------------

    def _move(
        self, node: Node, place: FileRecord, new: FileRecord, body: bytes | None, found: Look
    ) -> Generator[Action, None, FileRecord]:
        """Move one file, or write it anew where it is; gives its record as it is then."""
        seal, moved = self._seal(node, new), [new]

        def move() -> Sequence[ev.Event]:
            moved[0] = self._files.move(place, new, body, seal)
            if new.sha256 != place.sha256:  # the seals of a set name each other's hashes
                self._seal_siblings(node, new, seal)
            return ()

        seen = found if body is None else Look(look.SEALED, body=body, seal=for_file(seal, new))
        is_seen = place.path != new.path and not is_parked(place.path)
        step = Step("move", place.path, new.path) if is_seen else Step("write", new.path)
        yield Do(Foretold((), {place.path: GONE, new.path: seen}, [step]), move)
        return moved[0]

    def _end(self, node: Node, place: FileRecord) -> Generator[Action, None, FileRecord]:
        """A file that came to its new path without a seal, by hand or torn, and may lack the newline above one."""
        new, body = self._files.ended(place, self.artifacts.body(place))
        if new.sha256 == place.sha256:
            return place
        return (yield from self._move(node, place, new, body, GONE))

    def _seal(self, node: Node, new: FileRecord) -> Seal:
        record, accepted = self.state.task(node.id), self._with(node, new)
        return seal_of(self.state.run_id, node, replace(record, accepted=accepted))

    def _seal_siblings(self, node: Node, new: FileRecord, seal: Seal) -> None:
        for sibling in self._with(node, new).files:
            if sibling.key != new.key and self.artifacts.files.check(sibling, node.names).kind == look.SEALED:
                self._sealed_files.write(sibling, None, seal)

    # --- who has its name ----------------------------------------------------------------------------------

    def _set_aside(self, node: Node, path: str) -> Iterator[Action]:
        if self.artifacts.files.exists(path):
            yield SetAside(self.artifacts, node.id, path, "in the way of a finished file")

    def _give_way(self, path: str, due: deque[Node]) -> Iterator[Action]:
        """Park the finished file at this path, if there is one that belongs elsewhere; its task is due next."""
        owner = self._owner(path)
        if owner is None:
            return
        node, file = owner
        to = replace(file, path=parked_path(node.id, path))
        for name in self._files.in_the_way(to, node.names):
            yield from self._set_aside(node, name)
        found = self.artifacts.files.check(file, node.names)
        yield Do(Foretold((), {file.path: GONE, to.path: found}), partial(self._park, file, to))
        yield Say(self._moved(node, file, to))
        due.append(node)

    def _park(self, file: FileRecord, to: FileRecord) -> Sequence[ev.Event]:
        self._files.park(file, to)
        return ()

    def _owner(self, path: str) -> tuple[Node, FileRecord] | None:
        """The finished file that is found at a path which its step no longer names, and its task."""
        if self._homes is None:
            self._homes = _homes(self.state.tasks)
        node = self.inputs.graph.nodes.get(self._homes.get(path, ""))
        for file, target in self._away(node) if node is not None else ():
            if node is not None and file.path == path:
                place, found = self._locate(node, file, target)
                is_there = place.path == path and (found.is_whole or found.kind in (look.SEALED, look.CHANGED))
                return (node, file) if is_there else None
        return None


def _homes(tasks: Mapping[str, TaskState]) -> dict[str, str]:
    """The paths of all accepted files, each with its task."""
    return {
        file.path: task
        for task, record in tasks.items()
        for file in (record.accepted.files if record.accepted is not None else ())
    }
