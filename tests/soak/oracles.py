"""What must hold, whatever happened; each function names the sentence that it holds the project to."""

from __future__ import annotations

import re
import shlex

from forking import Said

from .artifacts import check_artifacts
from .pages import check_views
from .spending import check_cost, check_payments, check_runs
from .world import VIEWS, BrokenError, World

CERTAIN = ("set aside", "put back", "move", "seal anew")
"""What a dry run lists and then certainly changes a file; what is adopted may stay as it is."""
ANSWERS_MAX = 25


def expect_code(world: World, said: Said, codes: tuple[int, ...]) -> None:
    """Exit statuses, contract section 2; 1 is right only if something was made to fail."""
    if said.code in codes or is_fair_refusal(world, said) or (said.code == 1 and world.failing):
        return
    raise BrokenError(f"exit status {said.code}: {said.text[-2500:]}")


def is_fair_refusal(world: World, said: Said) -> bool:
    """A lost run's files are not taken over with other parameters; what is not there is not continued."""
    lost = ["lost", "record"] in world.log()
    if said.code == 2 and world.has_others and "belongs to run" in said.text:
        return True
    return (
        said.code == 2
        and lost
        and bool(re.search(r"other parameters|No run|no run|parameter|Nothing is on record", said.text))
    )


# --- after each command ------------------------------------------------------------------------------------------


def check_recover(world: World) -> None:
    """`--dry-run` says of each task and its files what is then done; a second `recover` does nothing."""
    before = world.entries()
    words = ["recover", "soak.py", "--json", *(world.param_words() if world.has_others else [])]
    foreseen = world(*words, "--dry-run")
    done = world(*words)
    expect_code(world, done, (0, 3))
    if foreseen.code != done.code:
        raise BrokenError(
            f"foreseen {foreseen.code}, done {done.code}: {foreseen.text[-1500:]} {done.text[-1500:]}"
        )
    if done.code not in (0, 3):
        return
    planned, carried_out = foreseen.json(), done.json()
    if planned["tasks"] != carried_out["tasks"]:
        differ = [pair for pair in zip(planned["tasks"], carried_out["tasks"], strict=False) if pair[0] != pair[1]]
        raise BrokenError(f"planned and done differ: {differ}")
    after = world.entries()
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    changed = {file_of(name) for name in names if is_of_a_task(name)}
    listed, certain = listed_in(planned["actions"]), listed_in(planned["actions"], CERTAIN)
    if not certain <= changed <= listed:
        raise BrokenError(
            f"foreseen only: {certain - changed}, done only: {changed - listed}; {planned['actions']}"
        )
    if planned["run_id"] is None:
        return
    world.run_id = planned["run_id"]
    check_views(world, are_items_guessed=are_items_guessed(world))
    journal = world.journal.read_bytes()
    again = world(*words)
    if (again.code, again.json()["events"], world.journal.read_bytes()) != (done.code, 0, journal):
        raise BrokenError(f"a second recover recorded something: {again.out[-3000:]}")


def are_items_guessed(world: World) -> bool:
    """After a loss, a rebuilt run's pages list items that earlier pages had, until their function has run:
    "a view must not know less than before"."""
    tasks = world.status()["tasks"]
    is_open = any(task["step"] in ("xs", "ys") and task["status"] != "completed" for task in tasks)
    return is_open and ["lost", "record"] in world.log()


def is_of_a_task(name: str) -> bool:
    """Whether it is no view, nothing of our own, and nothing that was kept of a file or is parked for a moment."""
    last = name.rpartition("/")[2]
    return not (name.startswith((".holdfast", *VIEWS)) or ".bak." in last or last.startswith(".moving-"))


def file_of(name: str) -> str:
    """The file that a seal, or a stream, beside it belongs to."""
    return name.removesuffix(".seal").removesuffix(".part")


def listed_in(actions: list[dict[str, str]], kinds: tuple[str, ...] = ()) -> set[str]:
    """The files of tasks that a dry run names in actions of these kinds, or of any."""
    chosen = [one for one in actions if not kinds or one["do"] in kinds]
    names = {name for one in chosen for name in (one["path"], one["to"]) if name}
    return {file_of(name) for name in names if is_of_a_task(name)}


def check_plan(world: World) -> None:
    """What `plan` says would run is what then runs, and nothing that it calls reused."""
    chosen_run = ["--resume", world.run_id] if world.is_begun() else []
    said = world("plan", "soak.py", *chosen_run, *world.param_words(), "--json")
    if said.code != 0:
        expect_code(world, said, (0,))
        return
    plan = {world.oldest(task["id"]): task for task in said.json()["tasks"] if task["id"] in world.tasks()}
    before = len(world.log())
    done = world.go()
    expect_code(world, done, (0, 3))
    lines = world.log()[before:]
    ran = {line[1] for line in lines if line[0] == "run"}
    if any(line[0] == "rewind" for line in lines):
        return
    wrong = {
        task: plan[task]
        for task in ran & plan.keys()
        if plan[task]["action"] not in ("run", "redo", "continue") and not plan[task]["if_different"]
    }
    if wrong:
        raise BrokenError(f"ran, although plan said otherwise: {wrong}")
    left = {
        task
        for task, one in plan.items()
        if one["action"] in ("run", "redo", "continue")
        and not one["if_different"]
        and task not in ran
        # A lost value is there again once another task has given the same one.
        and "objects/" not in one["reason"]
    }
    if left and done.code == 0 and not world.failing:  # a step that fails may be left out, with what needs it
        raise BrokenError(f"did not run, although plan said so: {[plan[task] for task in left]}")


# --- the end -----------------------------------------------------------------------------------------------------


def finish(world: World) -> None:
    """Every state has a command that leads out of it, and `status` prints it: 0 stuck runs."""
    world.let_fail()
    if world.is_begun() and world.status().get("totals", {}).get("skipped"):
        world("retry", "--all", "--run", world.run_id)
    for _ in range(ANSWERS_MAX):
        said = world.go("--budget", "1000")
        expect_code(world, said, (0, 3))
        if said.code == 0:
            return
        if said.code == 2:
            start_over(world)
        else:
            answer(world)
    raise BrokenError(f"stuck: {world('status').text[-3000:]}")


def start_over(world: World) -> None:
    """What was refused for its parameters is wanted all the same."""
    world.note("asked", "*")
    world.run_id += "-anew"
    said = world("run", "soak.py", "--force", "--run-id", world.run_id, *world.param_words())
    expect_code(world, said, (0, 3))


def answer(world: World) -> None:
    """Carry out the commands that `status` shows."""
    text = world("status", world.run_id).text
    foreign = re.findall(r"^  \S+: (.+) (?:belongs to another run|belong to other runs)$", text, re.MULTILINE)
    for name in dict.fromkeys(one for names in foreign for one in names.split(", ")):  # tasks may share a file
        (world.root / name).rename(world.root / f"{name}.moved-away")
    commands = wanted_commands(world)
    if not commands and not foreign:
        raise BrokenError(f"waits for a person, but names no command: {text}")
    for words in commands:
        said = world(*words)
        if said.code != 0:
            raise BrokenError(f"the command that status names fails: {words} {said.text}")


def wanted_commands(world: World) -> list[list[str]]:
    """The commands that `status` shows, each with one of the answers that it offers."""
    text = world("status", world.run_id).text
    wanted = []
    for command in re.findall(r"^ +holdfast ((?:approve|decide|retry|reject) [^\n]*)$", text, re.MULTILINE):
        words = shlex.split(command.split(" (")[0])
        if words[0] == "decide":
            words[2] = chosen(world, words[1], command, text)
        wanted.append(words)
    return wanted


def chosen(world: World, task: str, command: str, text: str) -> str:
    """Keep or restore what was edited; make anew whatever else is asked about."""
    offered = re.findall(r"\b(keep|restore|redo|continue)\b", command)
    was_changed = bool(re.search(rf"^  {re.escape(task)}: .+ (?:was|were) changed after", text, re.MULTILINE))
    is_edit = was_changed and world.is_edited(world.oldest(task))
    choices = [one for one in offered if one != "keep" or is_edit]
    choice = world.dice.choice(choices)
    world.has_kept_edits |= choice == "keep"
    world.note("asked" if choice in ("redo", "continue") else "answered", world.oldest(task))
    return choice


def check_end(world: World, undisturbed: World) -> None:
    """Everything that is promised of a run that says it is complete."""
    check_views(world, 0)
    check_whole(world)
    check_no_op(world)
    check_recover(world)
    check_words(world)
    check_progress(world)
    check_zombies(world)
    check_payments(world)
    check_cost(world)
    check_runs(world)
    check_artifacts(world, undisturbed, finish)


def check_whole(world: World) -> None:
    """Exit status 0 means that every task is complete and verified."""
    said = world("verify", world.run_id, "--json")
    if said.code != 0:
        raise BrokenError(f"verify after the end: {said.text[-3000:]}")


def check_no_op(world: World) -> None:
    """Completed, it is verified and otherwise 'nothing to do': no body runs, nothing is paid."""
    before = world.log()
    said = world.go()
    expect_code(world, said, (0,))
    new = [line for line in world.log()[len(before) :] if line[0] not in ("did",)]
    if new or "othing to do" not in said.text:
        raise BrokenError(f"a complete run did something: {new} {said.text}")


def check_zombies(world: World) -> None:
    """After its timeout the context of a step that goes on is dead."""
    if any(line[0] == "zombie" for line in world.log()):
        raise BrokenError("a step went on after its timeout, and was not refused")


def check_words(world: World) -> None:
    """Nothing is deleted that a person did not ask to delete."""
    lost = world.tokens - world.present_tokens() - world.destroyed
    if lost:
        raise BrokenError(f"words of a person are gone: {lost}")


def check_progress(world: World) -> None:
    """progress.md: one section per finished item, no duplicates after a redo."""
    text = (world.run_dir / "progress.md").read_text() if (world.run_dir / "progress.md").is_file() else ""
    told = re.findall(r"SECTION (\S+) ", text)
    if len(told) != len(set(told)):
        raise BrokenError(f"a section twice in progress.md: {sorted(told)}")
