"""Every artifact as an undisturbed run makes it: what that run has to be told first, and what nobody can know."""

from __future__ import annotations

import re
from collections.abc import Callable

from holdfast import seals

from .bodies import digest
from .pipelines import Step
from .world import BrokenError, World, overrides

CHANGES = ("change_topic", "change_inbox", "change_items", "change_title", "raise_version", "change_takes")
SECTION = "section of "  # in place of a path
_SECTION = re.compile(rb"<!-- holdfast section=(\S+) bytes=(\d+) -->\n")


def check_artifacts(world: World, undisturbed: World, finish: Callable[[World], None]) -> None:
    """Every artifact as an undisturbed run makes it, given the same words of people."""
    mine = artifacts(world)
    overrides(undisturbed, kept_words(world, mine))
    undisturbed.params, undisturbed.sketch = world.params, world.sketch
    undisturbed.write_pipeline()
    inbox = (world.root / "inbox" / "a.txt").read_text()
    (undisturbed.root / "inbox" / "a.txt").write_text(inbox)
    finish(undisturbed)
    theirs = artifacts(undisturbed)
    unknown = behind_lost_values(world)
    for name, content in theirs.items():
        if mine.get(name) != content and owner_of(world, name) not in unknown:
            raise BrokenError(f"{name} is wrong:\n{show(mine.get(name))}\nand should be\n{show(content)}")


def show(content: bytes | None) -> str:
    return "missing" if content is None else content[:2000].decode(errors="backslashreplace")


def owner_of(world: World, name: str) -> str:
    owners = world.owners()
    return owners[name].step.name if name in owners else "memory"


def behind_lost_values(world: World) -> set[str]:
    """Steps whose files may be of older inputs and nobody can tell: contract 3.7, "an input whose value is lost
    is unknown, not different", and no task with an intact sealed artifact runs again after a loss."""
    lines = world.log()
    if ["lost", "record"] not in lines:
        return set()
    has_changed = world.has_kept_edits or any(line[-1] in CHANGES for line in lines)
    behind: set[str] = set()
    for step in world.sketch.steps:
        takes = step.names() - {*step.keeps, *step.after}
        is_unknown = has_changed and any(not world.sketch.step(name).paths() for name in takes)
        if takes & behind or is_unknown or is_believed_reviewed(world, step):
            behind.add(step.name)
    return behind


def is_believed_reviewed(world: World, target: Step) -> bool:
    """Whether a lost run had a reviewer without files: it was done, so nobody objects to what is made anew."""
    return any(step.objects_to == target.name and not step.paths() for step in world.sketch.steps)


def artifacts(world: World) -> dict[str, bytes]:
    """Path -> body of each file that the pipeline makes now; of a memory file, each section."""
    found = {}
    for name in world.owners():
        path = world.root / name
        if path.is_file() and not path.is_symlink():
            found[name] = authored(path.read_bytes()) if seals.is_inline(name) else beside(world, name)
    return found | sections(world)


def authored(data: bytes) -> bytes:
    """What was returned: without the seal, and without a newline that only the seal needed."""
    parts = seals.take_apart(data)
    return seals.author_body(parts.body, parts.seal is not None and parts.seal.newline_added)


def beside(world: World, name: str) -> bytes:
    """A file with its seal beside it; one that had it inside keeps the newline that it needed there."""
    data = (world.root / name).read_bytes()
    return data.removesuffix(b"\n") if world.owners()[name].step.was_inline else data


def sections(world: World) -> dict[str, bytes]:
    path = world.root / world.sketch.memory
    data = path.read_bytes() if path.is_file() else b""
    return {
        f"{SECTION}{world.oldest(opened[1].decode())}": data[opened.end() : opened.end() + int(opened[2])]
        for opened in _SECTION.finditer(data)
    }


def kept_words(world: World, mine: dict[str, bytes]) -> dict[str, str]:
    """What an undisturbed run has to be told: edits that were kept, and sections that stand although
    what they were made from has changed ("a section once accepted stands")."""
    wanted = {}
    owners = world.owners()
    made = {(line[1], line[2]) for line in world.log() if line[0] == "made"}
    for name, content in mine.items():
        text = content.decode(errors="replace")
        had_seal = name in owners and (seals.is_inline(name) or owners[name].step.was_inline)
        is_kept = world.has_kept_edits and had_seal
        if name in owners and "PERSON-" in text and not is_kept:
            raise BrokenError(f"an edit of {name} was trusted, and nobody said so")
        # A flipped bit in a text is an edit, too, as far as anybody can tell.
        if is_kept and ["lost", "file", owners[name].task] in world.log():
            wanted[f"{owners[name].task} {owners[name].key}"] = text
        task = name.removeprefix(SECTION)
        if name.startswith(SECTION) and (task, digest(text)) in made:
            wanted[f"{task} "] = text
    return wanted
