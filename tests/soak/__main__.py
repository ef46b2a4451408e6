"""`python -m tests.soak --seeds 0..100`: try many seeds, and reduce each that breaks a promise."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from soak.soaking import broken_by, reduced


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seeds", default="0..20", help="A..B (B is left out), or one number")
    parser.add_argument("--skip", default="", help="actions to leave out, by number: 2,5")
    parser.add_argument("--often", default="", help="actions that happen ten times as often: migrate,trade_paths")
    parser.add_argument(
        "--folder", type=Path, help="where projects are made, and left  [default: a temporary one]"
    )
    parser.add_argument("--reduce", action="store_true", help="find the fewest actions that break a seed")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("..")
    skip = frozenset(int(number) for number in given.skip.split(",") if number)
    with tempfile.TemporaryDirectory() as passing:
        folder = (given.folder or Path(passing)).resolve()  # bodies run in the project
        folder.mkdir(parents=True, exist_ok=True)
        seeds, often = range(int(first), int(last or int(first) + 1)), frozenset(given.often.split(","))
        return try_all(seeds, folder, skip, often, reduce=given.reduce)


def try_all(seeds: range, folder: Path, skip: frozenset[int], often: frozenset[str], *, reduce: bool) -> int:
    failed = 0
    for seed in seeds:
        told = broken_by(seed, folder / str(seed), skip, often)
        if told and reduce:
            skipped, told = reduced(seed, folder / str(seed), often)
            told += f"\nreduced: --skip {','.join(map(str, sorted(skipped)))}"
        failed += bool(told)
        print(told or f"seed {seed}: fine", flush=True)
    print(f"{len(seeds)} seeds, {failed} of them broken")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
