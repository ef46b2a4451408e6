"""Changes of mind: other parameters, items, versions, names, paths and steps, and a project that is moved."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from . import oracles
from .pipelines import FILES, PHASES, Step, drawn_step, gathers_between, renamed
from .world import World


def change_topic(world: World) -> str:
    note_moved(world, {step.name for step in world.sketch.steps if "{topic}" in step.folder})
    world.params["topic"] = world.dice.choice(["kelp", "sand", "foam"])
    world.are_params_new = True
    return world.params["topic"]


def change_items(world: World) -> str:
    """One more or one less."""
    if "x" not in world.sketch.items:
        return "no items"
    if "x" in world.sketch.made_by or ("y" in world.sketch.items and world.dice.random() < 0.5):
        world.params["n"] = str(world.dice.choice([1, 2, 3, 11, 12, 13]))
        world.are_params_new = True
    else:
        items = world.sketch.items["x"]
        world.sketch.items["x"] = (
            items[:-1] if len(items) > 1 and world.dice.random() < 0.5 else [*items, f"d{len(items)}"]
        )
        world.write_pipeline()
    return f"{world.items()}"


def change_title(world: World) -> str:
    """A field of a given item: what is made for it is out of date."""
    if not world.items() or "x" in world.sketch.made_by:
        return "no items"
    item = world.dice.choice(world.items())
    world.sketch.titles[item] = world.dice.choice(["Roots", "Fronds"])
    for step in world.sketch.steps:
        for one in world.items_of(step):
            if one.partition("/")[0] == item and step.manner == "process":  # its output does not tell
                world.note("asked", f"{step.name}[{one}]")
    world.write_pipeline()
    return f"{world.sketch.titles}"


def change_inbox(world: World) -> str:
    text = world.dice.choice(["the first letter\n", "another letter\n"])
    (world.root / "inbox" / "a.txt").write_text(text)
    return text.strip()


def raise_version(world: World) -> str:
    step = world.dice.choice(world.sketch.steps)
    step.version, step.migrated = step.version + 1, 0
    world.write_pipeline()
    return f"{step.name} to {step.version}"


def lower_version(world: World) -> str:
    """Somebody runs an old copy of the pipeline: refused, if newer work is there."""
    step = world.dice.choice(world.sketch.steps)
    if step.version == 1 or step.migrated:
        return "there is no older one"
    step.version -= 1
    world.write_pipeline()
    said = world.go()
    step.version += 1
    world.write_pipeline()
    if said.code != 2:
        oracles.expect_code(world, said, (0, 3))
    return f"{step.name} {said.code}"


def rename(world: World) -> str:
    step = world.dice.choice(world.sketch.steps)
    if step.traits.get("quirk") == "marker":  # with another name it would be another marker, and part of the text
        return "not"
    renamed(world.sketch, step.name, f"{step.name}_anew" if step.now == step.name else step.name)
    world.write_pipeline()
    return step.name


def migrate(world: World) -> str:
    """A newer version, and a function that brings what was made before to it."""
    step = world.dice.choice([step for step in world.sketch.steps if step.kind != "section"])
    step.version, step.migrated = step.version + 1, step.migrated + 1
    world.note("raised", step.name)
    world.note_whole()
    world.write_pipeline()
    return f"{step.name} to {step.version}"


def change_paths(world: World) -> str:
    """The files of a step belong elsewhere from now on."""
    step = world.dice.choice(world.sketch.steps)
    note_moved(world, {step.name})
    step.folder = "" if step.folder else "elsewhere/"
    world.write_pipeline()
    return f"{step.name} {step.folder}"


def trade_paths(world: World) -> str:
    """Two steps change places: each has the path of the other from now on."""
    steps = [step for step in world.sketch.steps if step.paths()]
    pairs = [(one, two) for one in steps for two in steps if one.name < two.name and is_like(one, two)]
    if not pairs:
        return "nothing to trade"
    one, two = world.dice.choice(pairs)
    note_moved(world, {one.name, two.name})
    one.stem, two.stem = two.stem or two.name, one.stem or one.name
    world.write_pipeline()
    return f"{one.name} {two.name}"


def is_like(one: Step, two: Step) -> bool:
    """Whether both have the same paths but for their names."""
    return (one.each, one.suffix, one.folder, FILES[one.kind]) == (
        two.each,
        two.suffix,
        two.folder,
        FILES[two.kind],
    )


def change_suffix(world: World) -> str:
    """A text belongs into another form of file, with its seal inside or beside it."""
    steps = [
        step
        for step in world.sketch.steps
        if step.kind in ("text", "bare") and step.traits.get("quirk") != "marker"
    ]
    if not steps:
        return "no text"
    step = world.dice.choice(steps)
    note_moved(world, {step.name})
    step.was_inline |= step.suffix != ".txt"
    step.suffix = world.dice.choice([suffix for suffix in (".md", ".html", ".txt") if suffix != step.suffix])
    world.write_pipeline()
    return f"{step.name} {step.suffix}"


def move_memory(world: World) -> str:
    """The memory file belongs elsewhere, with all that people wrote into it."""
    if not any(step.kind == "section" for step in world.sketch.steps):
        return "no memory"
    if ["lost", "record"] in world.log():
        world.note("lost", "file", "memory")
    world.sketch.memory = "memory.md" if "/" in world.sketch.memory else "meta/memory.md"
    world.write_pipeline()
    return world.sketch.memory


def change_copy(world: World) -> str:
    """Files are copied from now on, or no longer."""
    step = world.dice.choice(world.sketch.steps)
    if not step.paths():
        return "no files"
    step.copy, step.was_uncopied = not step.copy, True
    world.write_pipeline()
    return f"{step.name} {step.copy}"


def add_step(world: World) -> str:
    """One more, which takes some of those that are there."""
    sketch = world.sketch
    added = drawn_step(f"t{len(sketch.steps)}", sketch, world.dice)
    added.now, added.phase = added.name, PHASES[1] if any(step.phase for step in sketch.steps) else ""
    sketch.steps.append(added)
    return rewritten(world, undo=lambda: sketch.steps.remove(added))


def change_takes(world: World) -> str:
    """A step takes one more of those before it, or one less."""
    steps = world.sketch.steps
    number = world.dice.randrange(1, len(steps))
    step, before = steps[number], [one.name for one in steps[:number]]
    other = world.dice.choice(before)
    if step.kind == "section" or other in (step.objects_to, "memory"):
        return "no change"
    taken = list(step.takes)
    step.takes = [name for name in taken if name != other] if other in taken else [*taken, other]

    def undo() -> None:
        step.takes = taken

    return f"{step.name} {step.takes} {rewritten(world, undo=undo)}"


def rewritten(world: World, *, undo: Callable[[], None]) -> str:
    """The pipeline as it is now, unless what follows what would then be a loop."""
    if gathers_between(world.sketch):
        undo()
        return "would be a loop"
    world.write_pipeline()
    return ""


def note_moved(world: World, steps: set[str]) -> None:
    """After a loss, or before the record of a killed step, nobody knows where the files of these steps were."""
    tasks = {owner.task for owner in world.owners().values() if owner.step.name in steps}
    known = set() if ["lost", "record"] in world.log() else recorded(world)
    for task in sorted(tasks - known):
        world.note("lost", "file", task)


def recorded(world: World) -> set[str]:
    """The tasks that are finished on record."""
    tasks = world.status()["tasks"] if world.is_begun() else []
    return {world.oldest(task["id"]) for task in tasks if task["status"] == "completed"}


def drop_step(world: World) -> str:
    """A step leaves the pipeline, or comes back."""
    sketch = world.sketch
    if sketch.dropped:
        sketch.steps += sketch.dropped
        sketch.dropped = []
    elif unneeded := sketch.unneeded():
        gone = world.dice.choice(unneeded)
        sketch.steps.remove(gone)
        sketch.dropped = [gone]
    world.write_pipeline()
    return f"{[step.name for step in sketch.dropped]}"


def let_fail(world: World) -> str:
    """A step that fails for now, or no longer."""
    names = ["checklist", *(step.name for step in world.sketch.steps)]
    world.let_fail(*([] if world.failing else [world.dice.choice(names)]))
    return " ".join(world.failing)


def move(world: World) -> str:
    to = world.folder / f"moved {world.dice.randrange(10**6)}"
    shutil.move(world.root, to)
    world.root = to
    return ""
