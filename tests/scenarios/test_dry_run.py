"""`recover --dry-run` on projects that a seeded dice has damaged: what it says is then done.

The seed is in the test's name. HOLDFAST_DAMAGE_SEEDS=N tries so many of them.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from .damages import FILE_DAMAGES, delete
from .state_project import RUN_ID, Project

SEEDS = range(int(os.environ.get("HOLDFAST_DAMAGE_SEEDS", "24")))
ADOPTED = "adopt"
"""A file that proves itself stays as it is; one that does not gets its seal."""

BOOK = """
from pathlib import Path

from holdfast import Context, Pipeline

OUTSIDE = Path(__file__).resolve().parent.parent
pipe = Pipeline("book", params={"topic": (str, "kelp")})


@pipe.step(writes="outline.md")
def outline(topic: str) -> str:
    return f"ch01 ch02\\n\\nall about {topic}\\n"


@pipe.items("chapter")
def chapters(outline: str) -> list:
    return outline.split()[:2]


@pipe.step(each="chapter", writes="drafts/{chapter}.md", marker="DRAFT_DONE")
def draft(ctx: Context, chapter: str, outline: str) -> str:
    ctx.section(f"{chapter} is drafted")
    return f"# {chapter}\\n\\n{outline}"


@pipe.step(each="chapter", writes={"facts": "facts/{chapter}.json", "page": "facts/{chapter}.md"})
def facts(chapter: str, draft: str) -> dict:
    return {"facts": {"words": len(draft.split())}, "page": "A page.\\n", "value": "x" * 3000}


@pipe.step(each="chapter", appends="terms.md")
def terms(chapter: str, draft: str) -> str:
    return f"Terms of {chapter}"


@pipe.step(writes="large.bin")
def large(ctx: Context, outline: str) -> Path:
    ctx.out.write_bytes(b"large" * 300_000)
    return ctx.out


@pipe.step(version=1)
def chapters_of(chapters: list) -> list:
    return chapters


@pipe.step(writes="book.md", retries=0)
def book(draft: dict, facts: dict, terms: dict) -> str:
    if (OUTSIDE / "fail").exists():
        raise RuntimeError("not yet")
    return "\\n".join(draft.values()) + "\\n"
"""


MIGRATIONS = """

@pipe.migration("outline", 1)
def shout(value: str) -> str:
    return value.replace("all", "ALL")


@pipe.migration("facts", 1)
def add_sources(value: dict) -> dict:
    return {**value, "page": value["page"] + "Sources.\\n", "sources": ["s" * 3000]}


@pipe.migration("chapters_of", 1)
def wrap(value: list) -> dict:
    return {"chapters": value, "notes": ["n" * 3000]}


@pipe.migration("large", 1)
def same(value: Path) -> Path:
    return value
"""


def raised(book: str) -> str:
    """The pipeline with a newer version of some steps, and what brings their outputs along."""
    for end in ('"outline.md"', 'facts/{chapter}.md"}', '"large.bin"', '"l.md"'):
        book = book.replace(f"{end})", f"{end}, version=2)")
    return book.replace("version=1", "version=2") + MIGRATIONS


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> list[Project]:
    """A finished project, and one that failed three times."""
    made = [Project(tmp_path_factory.mktemp(name)).begin() for name in ("finished", "failed")]
    (made[1].outside / "fail").touch()
    for project, codes in zip(made, ([0], [1, 1, 1]), strict=True):
        (project.root / "book.py").write_text(BOOK)
        assert [project.run("--run-id", RUN_ID).code for _ in codes] == codes
    return made


def entries(project: Project) -> dict[str, tuple[int, ...]]:
    """Everything but our own folders and what comes and goes with every command."""
    found = {}
    for path in sorted(project.root.rglob("*")):
        name = str(path.relative_to(project.root))
        passing = name.startswith((".holdfast/tmp", "__pycache__")) or name.endswith((".lock", "/logs"))
        if not passing and (path.is_symlink() or not path.is_dir() or is_stray(path)):
            status = path.lstat()
            found[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def is_stray(folder: Path) -> bool:
    """Whether it is an empty folder that stands where a file was."""
    return bool(folder.suffix) and not os.listdir(folder)


def timeless(name: str) -> str:
    return re.sub(r"\.\d{8}T\d{6}Z(\.\d+)?", ".TIME", name)


def changed(before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> set[str]:
    """The files of tasks that are others by now; a seal beside a file counts as the file."""
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return {timeless(name).removesuffix(".seal") for name in names if is_of_a_task(name)}


def is_of_a_task(name: str) -> bool:
    """Whether it is no view, and nothing of our own."""
    return not name.startswith((".holdfast", "checkpoint.md", "RESUME.md"))


def listed(actions: list[dict[str, Any]]) -> set[str]:
    """The files that are named; where an action leads to is one, too."""
    names = {name for one in actions for name in (one["path"], one["to"]) if name}
    return {name.removesuffix(".seal") for name in names if is_of_a_task(name)}


def touched(actions: list[dict[str, Any]]) -> set[str]:
    return listed([one for one in actions if one["do"] != ADOPTED])


def damage(project: Project, dice: Random) -> list[str]:
    """Some of its files, or all of its state; gives what was done, for whoever reads a failure."""
    done = []
    if dice.random() < 0.25:
        delete(project.state, dice)
        done.append("delete .holdfast")
    names = [name for name in entries(project) if name != "book.py"]
    for name in dice.sample(names, dice.randrange(1, 5)):
        how = dice.choice((*FILE_DAMAGES, edit, marked))
        how(project.root / name, dice)
        done.append(f"{how.__name__} {name}")
    if (project.state / "todos.db").is_file() and dice.random() < 0.3:
        done.append(edit_row(project.state / "todos.db"))
    if dice.random() < 0.3:
        choice = dice.choice(["keep", "restore"])
        (project.root / "holdfast.toml").write_text(f'[run]\non_changed = "{choice}"\n')
        done.append(f"{choice} edits")
    if dice.random() < 0.2:
        other = BOOK.replace('"drafts/', '"texts/').replace("terms.md", "glossary.md").replace("large.bin", "l.md")
        (project.root / "book.py").write_text(other)
        done.append("other paths")
    if dice.random() < 0.2:
        (project.root / "book.py").write_text(raised((project.root / "book.py").read_text()))
        done.append("newer versions")
    return done


def edit_row(path: Path) -> str:
    """A task turned back by SQL, if it is still a database."""
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE todos SET status = 'pending' WHERE id = 'outline'")
    except sqlite3.DatabaseError:
        return "no row edited"
    return "edited a row"


def marked(path: Path, dice: Random) -> None:
    """The plain marker of an agent in place of the seal."""
    data = path.read_bytes().rstrip()
    path.write_bytes(data[: data.rfind(b"\n") + 1] + b"DRAFT_DONE\n")


def edit(path: Path, dice: Random) -> None:
    """A few words of a person's, above the last line."""
    lines = path.read_bytes().splitlines(keepends=True) or [b""]
    lines.insert(len(lines) - 1, b"A person's words.\n")
    path.write_bytes(b"".join(lines).replace("✅".encode(), "—".encode(), 1))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_dry_run_lists_what_is_then_done(seed: int, bases: list[Project], tmp_path: Path) -> None:
    """Each file of a task that is made, changed or moved is listed, and no other; decisions are the same too."""
    dice = Random(seed)
    project = dice.choice(bases).copy(tmp_path)
    told = damage(project, dice)
    before = entries(project)
    foreseen = project("recover", "book.py", "--dry-run", "--json")
    assert "Traceback" not in foreseen.text, (told, foreseen.text)
    assert entries(project) == before, told
    done = project("recover", "book.py", "--json")
    assert (foreseen.code, "Traceback" in done.text) == (done.code, False), (told, foreseen.text, done.text)
    if done.code not in (0, 3):
        assert foreseen.text == done.text, told
        return
    planned, carried_out = json.loads(foreseen.out), json.loads(done.out)
    assert planned["tasks"] == carried_out["tasks"], told
    now = changed(before, entries(project))
    assert touched(planned["actions"]) <= now <= listed(planned["actions"]), (told, planned["actions"])


def test_a_dry_run_lists_what_stands_where_files_are_moved_to(bases: list[Project], tmp_path: Path) -> None:
    """A person's file, a folder and a link at new paths, and a file in place of a seal, are to be set aside."""
    project = bases[0].copy(tmp_path)
    (project.root / "book.py").write_text(BOOK.replace('"drafts/', '"texts/').replace("large.bin", "l.bin"))
    (project.root / "texts/ch02.md").mkdir(parents=True)
    (project.root / "texts/ch01.md").write_text("A person's words.\n")
    (project.root / "l.bin").symlink_to("nowhere")
    (project.root / "l.bin.seal").write_text("A person's words.\n")
    before = entries(project)
    actions = json.loads(project("recover", "book.py", "--dry-run", "--json").out)["actions"]
    aside = {one["path"] for one in actions if one["do"] == "set aside"}
    assert aside == {"texts/ch01.md", "texts/ch02.md", "l.bin", "l.bin.seal"}
    project("recover", "book.py")
    assert touched(actions) == changed(before, entries(project))


def test_a_dry_run_lists_files_that_take_each_others_paths(bases: list[Project], tmp_path: Path) -> None:
    """Two trade their paths, one of them edited, and a third file takes the old path of a fourth."""
    project = bases[0].copy(tmp_path)
    paths = {"outline.md": "book.md", "book.md": "outline.md", "facts/{chapter}.md": "drafts/{chapter}.md"}
    paths["drafts/{chapter}.md"] = "texts/{chapter}.md"
    other = re.sub(r'"[\w/{}]+\.md"', lambda found: f'"{paths.get(found[0][1:-1], found[0][1:-1])}"', BOOK)
    (project.root / "book.py").write_text(other)
    edit(project.root / "book.md", Random(0))
    before = entries(project)
    actions = json.loads(project("recover", "book.py", "--dry-run", "--json").out)["actions"]
    assert entries(project) == before
    project("recover", "book.py")
    assert touched(actions) == changed(before, entries(project))


@pytest.mark.parametrize("edits", [False, True])
def test_a_dry_run_lists_what_migrations_write(bases: list[Project], tmp_path: Path, edits: bool) -> None:
    """Files and seals; also of an edit that is kept, and of a file that is put back first."""
    project = bases[0].copy(tmp_path)
    (project.root / "book.py").write_text(raised(BOOK))
    if edits:
        edit(project.root / "facts/ch02.md", Random(0))
        (project.root / "facts/ch01.json").unlink()
        (project.root / "holdfast.toml").write_text('[run]\non_changed = "keep"\n')
    before = entries(project)
    foreseen = json.loads(project("recover", "book.py", "--dry-run", "--json").out)
    assert entries(project) == before
    done = json.loads(project("recover", "book.py", "--json").out)
    assert foreseen["tasks"] == done["tasks"]
    now = {name for name in changed(before, entries(project)) if ".bak." not in name}
    assert touched(foreseen["actions"]) == now  # what a migration moves out of its way is seen when it is called
    assert {"facts/ch01.md", "facts/ch02.md", "outline.md", "large.bin"} <= listed(foreseen["actions"])
