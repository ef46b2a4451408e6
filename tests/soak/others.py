"""What else goes on around a project: other runs in its folder, agents, settings, and a clock that is off."""

from __future__ import annotations

from holdfast import seals

from . import oracles
from .pipelines import FILE
from .world import World

YEARS_S = 365 * 86_400


def run_another(world: World) -> str:
    """The same pipeline with other parameters: refused, forced, or let have the paths of a finished run."""
    if not world.is_begun():
        return "nothing there"
    aside = world.folder / "another"
    aside.mkdir(exist_ok=True)
    (aside / "log").touch()
    words = ["run", FILE, "-p", "topic=other", "-p", f"n={world.params['n']}"]
    if world.dice.random() < 0.7:
        words += ["--force", "--run-id", f"other{world.dice.randrange(10**6)}"]
    said = world(*words, outside=aside)
    oracles.expect_code(world, said, (0, 2, 3))
    if said.code != 2:
        world.has_others = world.are_params_new = True
        for task in sorted({owner.task for owner in world.owners().values()} | {"memory"}):
            world.note("lost", "file", task)
    return ""


def agent_writes(world: World) -> str:
    """An agent makes a file of its own accord, with the plain marker that its step has."""
    owners = world.owners()
    names = [
        name for name, owner in owners.items() if seals.is_inline(name) and owner.step.kind in ("text", "bare")
    ]
    names = [name for name in names if not (world.root / name).exists() and not owners[name].step.objects_to]
    if not names:
        return "nothing to do"
    name = world.dice.choice(names)
    path = world.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# By an agent\n\n{world.new_token()}\n<!-- {owners[name].step.now.upper()}_COMPLETE -->\n")
    world.note("lost", "file", owners[name].task)
    world.has_kept_edits = True
    return name


def set_clock(world: World) -> str:
    world.clock_s = world.dice.choice([0, -3600, 3600, -10 * YEARS_S, 10 * YEARS_S])
    return str(world.clock_s)


def change_settings(world: World) -> str:
    """holdfast.toml."""
    lines = ["[run]", f"concurrency = {world.dice.choice([1, 2, 9])}", "grace_s = 20"]
    lines += ["on_partial = 'continue'"] if world.dice.random() < 0.3 else []
    lines += ["[keep]", f"snapshots = {world.dice.choice([2, 3])}"]
    (world.root / "holdfast.toml").write_text("\n".join(lines) + "\n")
    return " ".join(lines)
