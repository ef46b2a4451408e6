"""A history: some of all that may happen to a project, one thing after another, as a seeded dice falls."""

from __future__ import annotations

from collections.abc import Callable

from . import changes, commands, edits, mishaps, others
from .world import World

Action = Callable[[World], str]

ACTIONS: dict[Action, int] = {
    commands.run: 7,
    commands.run_killed: 9,
    commands.run_interrupted: 2,
    commands.run_foreseen: 4,
    commands.run_on_failing_disk: 3,
    commands.run_spoken_to: 2,
    commands.run_anew: 1,
    commands.storm: 1,
    commands.clean: 1,
    commands.redo: 1,
    commands.recover: 3,
    commands.recover_killed: 1,
    commands.recover_storm: 1,
    commands.answer: 3,
    commands.look: 3,
    commands.approve: 1,
    commands.reject: 1,
    commands.decide: 1,
    commands.retry: 1,
    commands.note: 1,
    mishaps.damage_artifact: 5,
    edits.edit_artifact: 3,
    edits.write_into_memory: 1,
    mishaps.damage_state: 3,
    mishaps.lose_all_state: 1,
    mishaps.tear_journal: 1,
    mishaps.lose_view: 1,
    edits.turn_back_cell: 1,
    edits.claim_cell: 1,
    changes.change_topic: 2,
    changes.change_items: 1,
    changes.change_inbox: 1,
    changes.change_title: 1,
    changes.raise_version: 1,
    changes.rename: 1,
    changes.move: 1,
    changes.migrate: 1,
    changes.change_paths: 1,
    changes.trade_paths: 1,
    changes.change_suffix: 1,
    changes.move_memory: 1,
    changes.change_copy: 1,
    changes.add_step: 1,
    changes.change_takes: 1,
    changes.drop_step: 1,
    changes.lower_version: 1,
    commands.run_meddled_with: 2,
    changes.let_fail: 2,
    mishaps.stash: 2,
    mishaps.put_back_artifact: 1,
    mishaps.put_back_state: 1,
    mishaps.put_back_view: 1,
    mishaps.lose_folder: 1,
    edits.edit_half: 1,
    mishaps.swap: 1,
    edits.edit_letter: 1,
    edits.edit_rows: 1,
    others.run_another: 1,
    others.agent_writes: 1,
    others.set_clock: 1,
    others.change_settings: 1,
}


OFTEN = 10


def happen(world: World, *, skip: frozenset[int] = frozenset(), often: frozenset[str] = frozenset()) -> None:
    """Three to sixteen things, the first of them a run; those in `skip` are left out, to find what matters."""
    dice = world.dice
    weights = [weight * (OFTEN if action.__name__ in often else 1) for action, weight in ACTIONS.items()]
    chosen = [dice.choice([commands.run, commands.run_killed, commands.run_killed])]
    chosen += dice.choices(list(ACTIONS), weights, k=dice.randrange(2, 16))
    seeds = [dice.randrange(2**32) for _ in chosen]
    for number, (action, seed) in enumerate(zip(chosen, seeds, strict=True)):
        dice.seed(seed)
        if number in skip:
            continue
        world.told.append(f"{number}: {action.__name__}")
        world.note("action", str(number), action.__name__)
        world.told.append(f"   {action(world)}")
    dice.seed(seeds[-1] + 1)
