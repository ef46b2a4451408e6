"""`make proof`: everything that can be tried, in parts; what has passed on this commit is not run again.

    make proof               all parts, or what is left of them
    make proof PART=crash    one part; `make proof-crash` is the same
    make proof PART=--list   say what has passed and what is left

A part is done in units. Each that passes leaves a file .proof/COMMIT/PART/UNIT, so after an interruption the same
command goes on with the next. Changes that are not committed are tried too, but nothing is noted of them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", "")
SEEDS, SEEDS_EACH = 500, 50
EXAMPLES, EXAMPLES_EACH = 3000, 500
PASSES, PASSES_EACH = 1500, 300
DAMAGES = 200


@dataclass(frozen=True)
class Unit:
    """One command that passes or fails."""

    part: str
    name: str
    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


def units() -> Iterator[Unit]:
    """All there are, what is quick first."""
    for name in ("lint", "types", "check"):
        yield Unit("test", name, ("make", name))
    yield Unit("more", "marked", (*PYTEST, "-m", "proof"))
    for path in ("tests/scenarios/test_dry_run.py", "tests/scenarios/test_random_damage.py"):
        yield Unit("more", Path(path).stem, (*PYTEST, path), {"HOLDFAST_DAMAGE_SEEDS": str(DAMAGES)})
    for path in sampling_tests():
        yield Unit("crash", path.stem, (*PYTEST, str(path)), {"HOLDFAST_CRASH_POINTS": "all"})
    for number in range(0, EXAMPLES, EXAMPLES_EACH):
        command = (*PYTEST, "tests/engine/test_machine.py")
        yield Unit("machine", str(number), command, {"HOLDFAST_MACHINE_EXAMPLES": str(EXAMPLES_EACH)})
    for number in range(0, PASSES, PASSES_EACH):
        command = (*PYTEST, "tests/engine/test_pass_properties.py")
        yield Unit("machine", f"pass-{number}", command, {"HOLDFAST_PASS_EXAMPLES": str(PASSES_EACH)})
    for seed in range(0, SEEDS, SEEDS_EACH):
        seeds = f"{seed}..{seed + SEEDS_EACH}"
        yield Unit("soak", seeds, (sys.executable, "-m", "tests.soak", "--seeds", seeds))
    yield Unit("bench", "bench", (sys.executable, "bench/bench.py"))


def sampling_tests() -> list[Path]:
    """The files whose tests try only some of many places, unless told to try all."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in files if path.parent.name == "crash" or "from sampling import" in path.read_text()]


class Record:
    """What has passed on the commit that is checked out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commit = clean_commit(root)

    def _stamp(self, unit: Unit) -> Path:
        return self.root / ".proof" / self.commit / unit.part / unit.name

    def has(self, unit: Unit) -> bool:
        return bool(self.commit) and self._stamp(unit).exists()

    def note(self, unit: Unit, seconds: float) -> None:
        """Nothing, if files were changed while it ran: then nobody knows what has passed."""
        if self.commit and clean_commit(self.root) == self.commit:
            self._stamp(unit).parent.mkdir(parents=True, exist_ok=True)
            self._stamp(unit).write_text(f"passed in {seconds:.0f} s\n")


def clean_commit(root: Path) -> str:
    """The commit that is checked out; none if there are changes."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.strip()

    return "" if git("status", "--porcelain") else git("rev-parse", "HEAD")


def prove(wanted: Sequence[Unit], record: Record) -> int:
    """Run what has not passed yet; the number of units that failed."""
    failed = []
    for unit in wanted:
        if record.has(unit):
            continue
        print(f"--- {unit.part}: {unit.name}", flush=True)
        began = time.monotonic()
        if subprocess.run(unit.command, cwd=record.root, env={**os.environ, **unit.env}, check=False).returncode:
            failed.append(unit)
        else:
            record.note(unit, time.monotonic() - began)
    for unit in failed:
        print(f"FAILED  {unit.part}: {unit.name}")
    return len(failed)


def tell(wanted: Sequence[Unit], record: Record) -> None:
    """What has passed, and what is left, one line a part."""
    if not record.commit:
        print("There are changes that are not committed: nothing is noted of what passes.")
    for part in dict.fromkeys(unit.part for unit in wanted):
        those = [unit for unit in wanted if unit.part == part]
        left = [unit.name for unit in those if not record.has(unit)]
        print(f"{part:8} {len(those) - len(left):3} of {len(those)} passed", *(["  left:", *left] if left else []))


def main() -> int:
    everything = list(units())
    parts = list(dict.fromkeys(unit.part for unit in everything))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help=f"{', '.join(parts)}; all, if none is named")
    parser.add_argument("--list", action="store_true", help="only tell what has passed and what is left")
    given = parser.parse_args()
    if unknown := set(given.part) - set(parts):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(parts)}")
    wanted = [unit for unit in everything if unit.part in (given.part or parts)]
    record, failed = Record(ROOT), 0
    try:
        if not given.list:
            failed = prove(wanted, record)
    except KeyboardInterrupt:
        print("\nInterrupted; the same command goes on.")
        failed = 1
    tell(wanted, record)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
