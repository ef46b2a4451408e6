"""The story of Holdfast in half a minute: a run is killed, continued, damaged, robbed of its state, and pays once.

    python demo/demo.py [--seed N] [--speed X] [--keep]

Everything happens in a temporary folder, without network or key. Every number that is printed was measured:
from the run's journal, from the generator's own bill, or from the bytes of the files (`facts.py`). The first
claim that does not hold ends the demo with exit status 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from facts import DoesNotHoldError, Journal, bodies, body_of, read_bill, read_journal
from generator import CALLS_LOG, SPEED
from screen import WIDTH, Screen

TOPIC = "kelp forests"
AGAIN = ("run", "book.py")  # the topic is the pipeline's default: the same parameters, the same run
RUN = ("run", "book.py", "-p", f"topic={TOPIC}")
KILL_AFTER = (6, 28)  # finished steps, of 39: some are done, some are not
STEP_S = 0.15
POLL_S = 0.002
TRIES = 5
PATIENCE_S = 120


class Demo:
    """One telling: the project it happens in, and what has been measured so far."""

    def __init__(self, folder: Path, seed: int, speed: float) -> None:
        self.folder = folder
        self.project = folder / "book"
        self.bill = folder / "calls.log"
        self.chance = random.Random(seed)
        self.speed = speed
        self.screen = Screen(speed)
        self.spared: list[tuple[str, int, float]] = []  # what happened, steps and dollars not spent twice

    def tell(self) -> None:
        killed = self.start_and_kill()
        self.look_at_disk()
        self.resume(killed)
        self.damage_and_heal()
        self.lose_the_state()
        self.compare_with_untroubled_run()
        self.add_up()

    # --- the chapters --------------------------------------------------------------------------------------

    def start_and_kill(self) -> Journal:
        self.screen.heading(1, "Start a run, and kill it without warning")
        self.screen.typed(f'holdfast run book.py -p topic="{TOPIC}"')
        target = self.chance.randint(*KILL_AFTER)
        delay = self.chance.uniform(0, STEP_S) / self.speed
        for _ in range(TRIES):
            self.lay_out(self.project)
            pid = self.killed_after(target, delay)
            if pid:
                break
            shutil.rmtree(self.project)  # it finished before we could: once more
            self.bill.unlink(missing_ok=True)
        else:
            raise DoesNotHoldError(f"the run finished {TRIES} times before it could be killed")
        journal = read_journal(self.project)
        back = f", {len(journal.sent_back())} of them sent back" if journal.sent_back() else ""
        self.screen.say(f"  kill -9 {pid}, with {len(journal.finished())} steps finished{back}, others under way")
        return journal

    def look_at_disk(self) -> None:
        self.screen.heading(2, "Ask the disk: what is done, what is next?")
        self.screen.typed("holdfast status")
        self.screen.quote(self.holdfast("status").splitlines())
        self.screen.pause(2.0)
        self.screen.typed("head -n 15 RESUME.md      # for a person, or an agent that remembers nothing")
        view = self.project / "RESUME.md"
        lines = view.read_text().splitlines() if view.exists() else ["(killed before it was drawn)"]
        self.screen.quote(lines[:15])
        self.screen.pause(2.0)

    def resume(self, killed: Journal) -> None:
        self.screen.heading(3, "Continue")
        unanswered = set(read_bill(self.bill)) - killed.answered()
        self.screen.typed("holdfast resume")
        self.screen.quote(self.holdfast("resume").splitlines()[-1:])
        since = read_journal(self.project).after(killed)
        finished = killed.finished()
        again = [task for task in since.started() if task in finished]
        reviewed = since.sent_back() & {task for task, _ in finished}
        also = f"; later a review sent {len(reviewed)} of them back" if reviewed else ""
        self.check(not again, f"of {len(finished)} finished steps, {len(again)} ran again (journal){also}")
        twice = {call for call, times in read_bill(self.bill).items() if times > 1}
        self.check(
            twice <= unanswered,
            f"paid calls made again: {len(twice)}, of {len(unanswered)} without an answer at the kill (bill)",
        )
        self.spared.append(("killed with -9", len(finished), killed.cost_usd()))

    def damage_and_heal(self) -> None:
        self.screen.heading(4, "Damage a finished draft")
        path = self.chance.choice(sorted(self.project.glob("drafts/*.md")))
        name, task = path.relative_to(self.project), f"draft[{path.name[:4]}]"
        good = body_of(path)
        self.scribble(path)
        self.screen.say(f"  256 bytes of noise, in the middle of {name}")
        before, billed = read_journal(self.project), read_bill(self.bill)
        self.screen.typed("holdfast run book.py")
        self.screen.quote(self.holdfast(*AGAIN).splitlines()[-1:])
        since = read_journal(self.project).after(before)
        self.check(since.healed() == {task} and body_of(path) == good, f"{name} reads byte for byte as before")
        steps, calls, spent = since.started().total(), self.calls_since(billed), since.cost_usd()
        self.check(
            not steps and not calls and not spent, f"steps run: {steps}; calls: {calls}; spent: ${spent:.2f}"
        )
        self.spared.append(("damaged artifact", 1, before.cost_of(task)))

    def lose_the_state(self) -> None:
        self.screen.heading(5, "Delete everything that Holdfast knows")
        before, files, billed = read_journal(self.project), bodies(self.project), read_bill(self.bill)
        self.screen.typed("rm -r .holdfast checkpoint.md RESUME.md")
        shutil.rmtree(self.project / ".holdfast")
        for view in ("checkpoint.md", "RESUME.md"):
            (self.project / view).unlink()
        self.screen.typed("holdfast run book.py")
        self.screen.quote(self.holdfast(*AGAIN).splitlines()[1:3])
        now = read_journal(self.project)
        ran = sorted(task for task, _ in now.started())
        self.check(now.run_id == before.run_id, f"the run has its id back: {now.run_id}")
        self.check(len(now.adopted()) == len(files), f"{len(files)} artifacts were believed by their seals")
        self.check(not self.calls_since(billed), f"calls of the generator: {self.calls_since(billed)}")
        self.check(ran == ["chapters"], "only `chapters` ran: it has no file, only reads the outline")
        self.check(bodies(self.project) == files, "every artifact is unchanged")
        self.spared.append(("all state lost", len(now.adopted()), before.cost_usd()))

    def compare_with_untroubled_run(self) -> None:
        self.screen.heading(6, "Compare with a run that nothing happened to")
        calm = self.folder / "calm"
        self.lay_out(calm)
        self.holdfast(*RUN, project=calm, bill=self.folder / "calm.log")
        self.check(bodies(calm) == bodies(self.project), f"all {len(bodies(calm))} files are the same")

    def add_up(self) -> None:
        self.screen.heading(7, "Not done twice, not paid twice")
        for what, steps, dollars in self.spared:
            self.screen.say(f"  {what:<18}{steps:>4} {'step ' if steps == 1 else 'steps'}   ${dollars:.4f}")
        steps = sum(row[1] for row in self.spared)
        dollars = sum(row[2] for row in self.spared)
        self.screen.say(f"  {'in all':<18}{steps:>4} steps   ${dollars:.4f}   (prices are simulated)")

    # --- the stage -----------------------------------------------------------------------------------------

    def lay_out(self, project: Path) -> None:
        """A fresh project: the pipeline and its generator, nothing else."""
        project.mkdir()
        for name in ("book.py", "generator.py"):
            shutil.copy(Path(__file__).with_name(name), project)

    def environment(self, bill: Path) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        return plain | {CALLS_LOG: str(bill), SPEED: str(self.speed), "COLUMNS": str(WIDTH - 2)}

    def holdfast(self, *arguments: str, project: Path | None = None, bill: Path | None = None) -> str:
        """Run a command to its end; gives what it printed. It must succeed."""
        try:
            done = subprocess.run(
                [sys.executable, "-m", "holdfast", *arguments],
                cwd=project or self.project,
                env=self.environment(bill or self.bill),
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise DoesNotHoldError(f"holdfast {arguments[0]} did not end") from error
        if done.returncode:
            words = (done.stderr.splitlines() or done.stdout.splitlines() or ["no word"])[-1]
            raise DoesNotHoldError(f"holdfast {arguments[0]} ended with {done.returncode}: {words}")
        return done.stdout

    def killed_after(self, target: int, delay: float) -> int:
        """Start the run; kill it `delay` seconds after `target` steps are finished. 0: it was too quick."""
        engine = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *RUN],
            cwd=self.project,
            env=self.environment(self.bill),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self.wait_for(engine, target)
            time.sleep(delay)
        finally:
            engine.kill()
            self.screen.passed()
        if engine.wait() not in (0, -signal.SIGKILL):
            raise DoesNotHoldError(f"holdfast run ended by itself, with {engine.returncode}")
        return 0 if engine.returncode == 0 else engine.pid

    def wait_for(self, engine: subprocess.Popen[bytes], target: int) -> None:
        """Watch the journal until `target` steps are finished, or the engine has ended."""
        give_up_at = time.monotonic() + PATIENCE_S
        while engine.poll() is None and (finished := len(read_journal(self.project).finished())) < target:
            if time.monotonic() > give_up_at:
                raise DoesNotHoldError(f"holdfast run stands still after {finished} steps")
            self.screen.passing(f"steps finished: {finished}")
            time.sleep(POLL_S)

    def calls_since(self, billed: Counter[str]) -> int:
        """How many calls the generator has had since `billed` was read."""
        return read_bill(self.bill).total() - billed.total()

    def scribble(self, path: Path) -> None:
        """Overwrite the middle of a file with bytes that are no text."""
        noise = self.chance.randbytes(255) + b"\0"
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(noise)

    def check(self, is_so: bool, claim: str) -> None:
        if not is_so:
            raise DoesNotHoldError(claim)
        self.screen.holds(claim)


def main() -> int:
    options = read_options()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    demo = Demo(folder, options.seed, options.speed)
    demo.screen.say("A book of six chapters, 39 steps, from a built-in generator: no network, no key.")
    demo.screen.say(f"Folder: {demo.project}   seed: {options.seed} (--seed {options.seed} repeats it)")
    try:
        demo.tell()
    except DoesNotHoldError as error:
        demo.screen.broken(str(error))
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if options.keep:
            demo.screen.say(f"Kept: {folder}")
        else:
            shutil.rmtree(folder)
    return 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Kill, damage and rob a run; see that it pays once.")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="which moment to kill at")
    parser.add_argument("--speed", type=_speed, default=os.environ.get(SPEED, "1"), help="2 is twice as fast")
    parser.add_argument("--keep", action="store_true", help="leave the folder there to look at")
    return parser.parse_args()


def _speed(text: str) -> float:
    speed = float(text)
    if not 0.01 <= speed <= 1000:
        raise ValueError("between 0.01 and 1000")
    return speed


if __name__ == "__main__":
    sys.exit(main())
