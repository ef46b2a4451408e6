"""What the steps of a random pipeline do; copied beside the pipeline's file, and imported by it.

Every output is made of the step's name, its version and its inputs, and of nothing else: whoever makes it, however
often the run was disturbed, gets the same bytes. SOAK_OUTSIDE names a folder outside the project:

    log             a line for each body that runs, each call that is paid for and kept, each objection
    failing         the steps that fail for now
    overrides.json  "TASK KEY" -> what that task gives instead: how an undisturbed run gets a person's words

SOAK_STOP=N:SIGNAL sends the engine that signal at its N-th line of the log; `delete PATH` or `spoil PATH` instead
does that to a file, and `say [WORDS]` (JSON) has a command run beside the engine; `spoken` has how it ended.
"""

import asyncio
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import Context, Rewind

OUTSIDE = Path(os.environ.get("SOAK_OUTSIDE", "."))
_STOP_AT, _, _SIGNAL = os.environ.get("SOAK_STOP", "0:KILL").partition(":")
_ENGINE = int(os.environ.get("FORKED_PROCESS", "0"))
_COUNTING = threading.Lock()
NEVER = threading.Event()
_lines = 0


def tell(*words: str) -> None:
    """One write, so that a kill cannot tear the line."""
    descriptor = os.open(OUTSIDE / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.write(descriptor, (" ".join(words) + "\n").encode())
    os.close(descriptor)
    stop_if_asked()


def stop_if_asked() -> None:
    global _lines
    if os.getpid() != _ENGINE:  # a worker process of it
        return
    with _COUNTING:
        _lines += 1
        if _lines == int(_STOP_AT):
            meddle()


def meddle() -> None:
    """Send a signal, or do to a file what somebody does who does not know that an engine is at work."""
    what, _, path = _SIGNAL.partition(" ")
    if not path:
        os.kill(_ENGINE, getattr(signal, f"SIG{what}"))
    elif what == "say":
        speak(json.loads(path))
    elif Path(path).is_file() and what == "delete":
        Path(path).unlink()
    elif Path(path).is_file():
        Path(path).write_bytes(b"spoiled" + Path(path).read_bytes())


def speak(words: list[str]) -> None:
    """Another process of the command line."""
    env = os.environ | {"SOAK_STOP": "0:KILL"}
    command = [sys.executable, "-m", "holdfast", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
    (OUTSIDE / "spoken").write_text(json.dumps([done.returncode, done.stdout, done.stderr]))


def override(task: str, key: str = "") -> str | None:
    return overrides().get(f"{task} {key}")


def overrides() -> dict[str, str]:
    path = OUTSIDE / "overrides.json"
    return json.loads(path.read_text()) if path.exists() else {}


def digest(value: Any) -> str:
    """The same for the same content, whatever form it is received in, and whatever a migration made of it."""
    if isinstance(value, Path):
        value = value.read_bytes()
    if isinstance(value, bytes):
        return hashlib.sha256(re.sub(rb"form \d+", b"form", value)).hexdigest()[:12]
    if isinstance(value, dict):
        return digest(json.dumps({key: digest(one) for key, one in value.items()}, sort_keys=True))
    return digest((value if isinstance(value, str) else json.dumps(value, sort_keys=True)).encode())


def polished(output: Any) -> str | None:
    """A check: the first round of some steps is refused."""
    if "unpolished" not in str(output):
        return None
    tell("refused", str(output).partition("# ")[2].split()[0])
    return "it is unpolished"


def reformed(value: Any, form: int) -> Any:
    """What a migration makes of an output: all texts in it have another form."""
    if isinstance(value, str):
        return re.sub(r"form \d+", f"form {form}", value)
    if isinstance(value, dict):
        return {key: reformed(one, form) for key, one in value.items()}
    return value


def failing() -> list[str]:
    path = OUTSIDE / "failing"
    return path.read_text().split() if path.exists() else []


def in_order() -> str | None:
    """A checklist: something is not in order for now."""
    return "not yet" if "checklist" in failing() else None


def numbered(n: int) -> list[str]:
    """The items that a function gives: n % 10 of them; from ten on others, some of which are the same."""
    first = 2 if n >= 10 else 0
    return [f"x{number}" for number in range(first, first + n % 10)]


def inner(n: int, items: list[str]) -> list[str]:
    """The items inside of an item: from ten on another instead of the first."""
    return [*items[1:], "r"] if n >= 10 else items


QUIRKS: dict[str, Callable[[str, str], str]] = {
    "": lambda text, name: text,
    "crlf": lambda text, name: text.replace("\n", "\r\n"),
    "mark": lambda text, name: "\ufeff" + text,
    "blank": lambda text, name: text + "\n \n\n",
    "marker": lambda text, name: f"{text}<!-- {name.upper()}_COMPLETE -->\n",
    "quoted": lambda text, name: f"```\n<!-- {name.upper()}_COMPLETE -->\n```\n{text}",
    "wide": lambda text, name: f"\u202e| 海藻 | \x1b[31m\n{text}\u0085\u2028end",
}
"""How a text may be unusual; each is given the step's oldest name."""


@dataclass(frozen=True)
class Body:
    """What one step does."""

    name: str  # the oldest one: a renamed step does the same
    kind: str = "text"
    version: int = 1
    pays: int = 0
    fails_first: bool = False
    refused_first: bool = False
    revisable: bool = False
    objects_to: str = ""
    sends_to: str = ""  # the same, by the name that it has now
    keeps: tuple[str, ...] = ()
    blind: bool = False  # the output says nothing about the inputs
    reads: str = ""
    large_calls: bool = False
    hangs_first: bool = False  # until it is timed out
    spends: bool = False  # outside of any paid call
    quirk: str = ""  # of its text
    rounds: int = 99
    form: int = 0  # in which its texts are given; what a migration brings along has an older one


@dataclass
class Job:
    """One attempt."""

    body: Body
    task: str
    inputs: dict[str, Any]
    ctx: Context | None = None
    paid: list[str] = field(default_factory=list)

    @property
    def made_from(self) -> str:
        """Everything that the output depends on, and whether it was sent back."""
        told = {name: digest(value) for name, value in self.inputs.items()}
        if self.ctx is not None and self.ctx.item.get("title"):
            told["title"] = digest(self.ctx.item["title"])
        if self.body.reads and self.ctx is not None:
            told["reads"] = digest(
                "".join(path.read_text() for path in sorted(Path(self.ctx.dir).glob(self.body.reads)))
            )
        return digest([told, self.body.version])

    @property
    def signature(self) -> str:
        revised = self.ctx is not None and bool(self.ctx.feedback)
        return f"{self.made_from}-{'revised' if revised else 'first'}"

    def begin(self) -> None:
        tell("run", self.task, self.signature)
        if self.body.name in failing():
            raise RuntimeError("out of order")
        if self.body.objects_to:
            self.object_if_unrevised()
        if self.body.spends and self.ctx is not None:
            tell("spend", self.task)
            self.ctx.usage(cost_usd=0.001)

    def object_if_unrevised(self) -> None:
        """To the text that it takes; one that takes those of all items, to each that is not revised."""
        target, options = self.inputs[self.body.objects_to], {"rounds": self.body.rounds, "keep": self.body.keeps}
        texts = target if isinstance(target, dict) else {"": target}
        poor = [item for item, text in texts.items() if "revised" not in text and "PERSON" not in text]
        told = overrides().values()  # these stay as they are, however often they are sent back
        poor = [item for item in poor if texts[item] not in told]
        if not poor:
            return
        if isinstance(target, dict):
            for item in poor:
                tell("rewind", f"{self.body.objects_to}[{item}]")
            raise Rewind({f"{self.body.sends_to}[{item}]": "Please revise it." for item in poor}, **options)
        tell("rewind", self.task.replace(self.body.name, self.body.objects_to, 1))
        raise Rewind(self.body.sends_to, feedback="Please revise it.", **options)

    def hangs(self) -> bool:
        """Whether it is to wait for what never comes: once in the life of a task."""
        mark = OUTSIDE / f"hung-{self.task.replace('/', '-')}"
        if not self.body.hangs_first or mark.exists():
            return False
        mark.touch()
        return True

    def wait_until_refused(self) -> None:
        """A thread cannot be ended: it goes on until its context refuses it."""
        assert self.ctx is not None
        for _ in range(1000):
            NEVER.wait(0.03)
            self.ctx.tag(waited=True)
        tell("zombie", self.task)

    def calls(self) -> list[str]:
        return [f"call{number}" for number in range(self.body.pays)]

    def call(self, key: str) -> str:
        tell("pay", self.task, key, self.signature)
        return f"{key} of {self.task}" + " large" * (600 if self.body.large_calls else 0)

    async def call_async(self, key: str) -> str:
        return self.call(key)

    def keep(self, key: str, result: str) -> None:
        tell("kept", self.task, key, self.signature)
        self.paid.append(digest(result))

    def end(self) -> Any:
        if self.body.fails_first and self.ctx is not None and self.ctx.attempt == 1:
            tell("failed", self.task)
            raise RuntimeError("the first attempt always fails")
        if self.ctx is not None:
            self.ctx.section(f"SECTION {self.task} {self.made_from}", title=self.task)
        output = getattr(self, f"give_{self.body.kind}")()
        tell("made", self.task, digest(output) if self.body.kind == "section" else "-")
        return output

    # --- outputs -------------------------------------------------------------------------------------------

    def text(self) -> str:
        body = self.body
        given = override(self.task)
        if given is not None:
            return given
        made_from = "nothing" if body.blind else self.made_from
        lines = [f"# {self.task} {body.kind}", f"made from {made_from} by {self.paid}", f"form {body.form}"]
        lines += [f"Line {number} of {self.task}: {digest(f'{made_from}{number}')}." for number in range(4)]
        if body.refused_first and self.ctx is not None and self.ctx.round == 0:
            lines.append("unpolished")
        if body.revisable and self.ctx is not None and self.ctx.feedback:
            lines.append("revised")
        return QUIRKS[body.quirk]("\n".join(lines) + "\n", body.name)

    def give_text(self) -> str:
        return self.text()

    give_section = give_text

    def give_bare(self) -> str:
        """Text without a newline at its end; one that a person has edited has one."""
        return override(self.task) or self.text().rstrip("\n")

    def give_bytes(self) -> bytes:
        return b"\x00\xff" + self.text().encode()

    def give_value(self) -> dict[str, Any]:
        return {"head": "x", "text": self.text(), "numbers": [1, 2.5, None]}

    def give_large_value(self) -> dict[str, Any]:
        return {**self.give_value(), "padding": "p" * 3000}

    give_json = give_value

    def give_several(self) -> dict[str, Any]:
        page = override(self.task, "page")
        return {"page": self.text() if page is None else page, "data": self.give_value(), "note": self.made_from}

    def give_path(self) -> Path:
        assert self.ctx is not None
        Path(self.ctx.out).write_text(self.text() * 50)
        return Path(self.ctx.out)

    def give_huge(self) -> Path:
        """Too large for a pack."""
        assert self.ctx is not None
        Path(self.ctx.out).write_text(self.text() * (1 + (1 << 20) // len(self.text())))
        return Path(self.ctx.out)

    def give_folder(self) -> dict[str, Any]:
        """Two files that the step wrote itself, and a value beside them."""
        assert self.ctx is not None
        folder = Path(self.ctx.out)
        folder.mkdir()
        for name in ("one.bin", "two.txt"):
            (folder / name).write_text(name + self.text())
        return {"one": folder / "one.bin", "two": folder / "two.txt", "size": len(self.text())}

    def give_stream(self) -> str | None:
        """Streams its text, going on from a half-finished one that fits."""
        assert self.ctx is not None
        text = self.text()
        begun = self.ctx.partial or ""
        if not text.startswith(begun):
            return text
        rest = text[len(begun) :]
        for start in range(0, len(rest), 60):
            self.ctx.write(rest[start : start + 60])
            tell("streamed", self.task)
        return None if rest or begun else text


def work(body: Body, ctx: Context, **inputs: Any) -> Any:
    job = Job(body, task_of(body, ctx.task_id), inputs, ctx)
    job.begin()
    if job.hangs():
        job.wait_until_refused()
    for key in job.calls():
        job.keep(key, ctx.once(key, job.call, key))
        ctx.usage(cost_usd=0.01, output_tokens=10)
    return job.end()


async def work_async(body: Body, ctx: Context, **inputs: Any) -> Any:
    job = Job(body, task_of(body, ctx.task_id), inputs, ctx)
    job.begin()
    if job.hangs():
        await asyncio.Event().wait()
    for key in job.calls():
        job.keep(key, await ctx.once(key, job.call_async, key))
        ctx.usage(cost_usd=0.01, output_tokens=10)
    return job.end()


def work_elsewhere(body: Body, items: list[str], **inputs: Any) -> Any:
    """In a process of its own, without a context."""
    job = Job(body, f"{body.name}[{'/'.join(items)}]" if items else body.name, inputs)
    job.begin()
    if job.hangs():
        NEVER.wait()
    return job.end()


def task_of(body: Body, task_id: str) -> str:
    """The task by the step's oldest name."""
    return body.name + task_id[task_id.find("[") :] if "[" in task_id else body.name
