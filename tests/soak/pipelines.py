"""A random pipeline: a sketch drawn from a seed, which can be changed, and the Python file that it stands for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

FILE = "soak.py"
KINDS = (
    "text",
    "text",
    "text",
    "bare",
    "bytes",
    "value",
    "large_value",
    "json",
    "several",
    "path",
    "huge",
    "folder",
    "stream",
)
FILES = {
    "text": {"": "{stem}.md"},
    "bare": {"": "{stem}.md"},
    "stream": {"": "{stem}.md"},
    "bytes": {"": "{stem}.bin"},
    "json": {"": "{stem}.json"},
    "several": {"page": "{stem}-page.md", "data": "{stem}-data.json"},
    "path": {"": "{stem}.txt"},
    "huge": {"": "{stem}.dat"},
    "folder": {"one": "{stem}/one.bin", "two": "{stem}/two.txt"},
}
GIVES = {
    "bytes": "bytes",
    "path": "Path",
    "huge": "Path",
    "stream": "str | None",
    "text": "str",
    "bare": "str",
    "section": "str",
}
ITEMS = {"": [], "x": ["x"], "y": ["x", "y"]}
DEFINED_BY = {"thread": "def", "async": "async def", "process": "def"}
WORKS_BY = {"thread": "work", "async": "await work_async", "process": "work_elsewhere"}
INBOX = "inbox/*.txt"
PHASES = ("One", "Two")
QUIRKS = ("crlf", "mark", "blank", "marker", "quoted", "wide")


@dataclass
class Step:
    """One step, by the name it had first; `now` is the one it has."""

    name: str
    kind: str
    now: str = ""
    each: str = ""
    takes: list[str] = field(default_factory=list)
    params: list[str] = field(default_factory=list)
    phase: str = ""
    version: int = 1
    folder: str = ""
    migrated: int = 0  # how many of its versions only brought a new form, which is the old one here
    traits: dict[str, object] = field(default_factory=dict)
    manner: str = "thread"  # or async, process
    copy: bool = True
    was_uncopied: bool = False  # so that some of its files may have no copy
    reads: bool = False
    on_partial: str = "redo"
    sources: list[str] = field(default_factory=list)
    head: str = ""
    objects_to: str = ""  # until that one is revised
    keeps: list[str] = field(default_factory=list)
    suffix: str = ".md"  # of a text
    was_inline: bool = False  # before it had another suffix
    stem: str = ""  # of its files, if it has another step's
    on_failure: str = ""
    after: list[str] = field(default_factory=list)  # without taking anything

    def paths(self) -> dict[str, str]:
        """Key -> template of each of its files; a section's file is shared, and not here."""
        name = self.stem or self.name
        stem = {"": name, "x": f"{name}/{{x}}", "y": f"{name}/{{x}}-{{y}}"}[self.each]
        files = FILES.get(self.kind, {})
        return {
            key: self.folder + path.replace("{stem}", stem).replace(".md", self.suffix)
            for key, path in files.items()
        }

    def names(self) -> set[str]:
        """The steps that it depends on, or speaks of."""
        return {*self.takes, *self.sources, self.head, *self.keeps, *self.after} - {""}

    def form(self) -> int:
        """The form of its texts: a large file, and bytes, are not migrated."""
        return 0 if self.kind in ("bytes", "path", "huge", "folder") else self.migrated

    def migrations(self) -> range:
        """The versions whose outputs are brought along: the last ones."""
        return range(self.version - self.migrated, self.version)


@dataclass(frozen=True)
class Gate:
    """A gate after a step, after each batch of items, or after a phase."""

    name: str
    after: str
    blocking: bool = True
    each: bool = False
    phase: str = ""


@dataclass
class Sketch:
    """A pipeline that can be changed and written again."""

    steps: list[Step]
    items: dict[str, list[str]]  # of each fan-out; those of a function are counted by the parameter `n`
    made_by: dict[str, str]  # fan-out -> the step whose text says how many
    chained: bool = False
    batches: bool = False
    gates: list[Gate] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)  # of items
    overwrite: bool = False
    dropped: list[Step] = field(default_factory=list)  # that were in it, and may come back
    memory: str = "memory.md"

    def step(self, name: str) -> Step:
        return next(step for step in (*self.steps, *self.dropped) if step.name == name)

    def unneeded(self) -> list[Step]:
        """Those that nothing else in the pipeline names."""
        named = {name for step in self.steps for name in step.names()}
        named |= {gate.after for gate in self.gates} | set(self.made_by.values())
        return [step for step in self.steps if step.name not in named and not step.objects_to]


def draw(dice: Random) -> Sketch:
    """Three to eight steps, each from some of those before it."""
    sketch = Sketch([Step("plan", "text", params=["topic"], traits={"pays": 1})], {}, {})
    if dice.random() < 0.85:
        sketch.items["x"] = ["a1", "b2", "c3"][: dice.randrange(1, 4)]
        if dice.random() < 0.5:
            sketch.made_by["x"] = "plan"
        sketch.chained, sketch.batches = dice.choice([(False, False), (True, False), (False, True)])
        if dice.random() < 0.3:
            sketch.items["y"] = ["p", "q"]
    for number in range(dice.randrange(2, 8)):
        sketch.steps.append(drawn_step(f"s{number}", sketch, dice))
    _add_memory(sketch, dice)
    _add_objections(sketch, dice)
    _add_phases(sketch, dice)
    has_phases = any(step.phase for step in sketch.steps)
    if dice.random() < 0.4:
        is_loop = has_phases and (sketch.chained or sketch.batches)
        sketch.gates.append(Gate("ok", dice.choice(sketch.steps).name, dice.random() < 0.7 and not is_loop))
    if has_phases and dice.random() < 0.3:
        sketch.gates.append(Gate("phase_ok", "", dice.random() < 0.7, phase=PHASES[0]))
    sketch.overwrite = dice.random() < 0.3
    if "x" in sketch.items and not has_phases and not gathers_between(sketch) and dice.random() < 0.25:
        after = dice.choice([step.name for step in sketch.steps if step.each == "x"] or [""])
        if after and "y" in sketch.items:  # what waits for all batches must not hold what a batch's gate waits for
            sketch.gates = [replace(gate, blocking=False) for gate in sketch.gates]
        sketch.gates += [Gate("batch_ok", after, each=True)] if after else []
    for step in sketch.steps:
        step.now = step.now or step.name
    return sketch


def drawn_step(name: str, sketch: Sketch, dice: Random) -> Step:
    each = dice.choice([*sketch.items, *sketch.items, ""])
    step = Step(name, dice.choice(KINDS), each=each)
    step.takes = dice.sample([one.name for one in sketch.steps], min(len(sketch.steps), dice.randrange(0, 4)))
    step.params = ["topic"] if dice.random() < 0.25 else []
    step.manner = dice.choice(["thread", "thread", "async", "process"])
    if step.manner == "process" and step.kind in ("path", "huge", "folder", "stream"):
        step.manner = "thread"
    step.copy = dice.random() < 0.8 or step.kind in ("value", "large_value")
    step.was_uncopied = not step.copy
    step.on_partial = dice.choice(["redo", "continue", "ask"]) if step.kind == "stream" else "redo"
    step.on_failure = "skip" if dice.random() < 0.15 else ""
    step.suffix = dice.choice([".md", ".md", ".html", ".txt"])
    step.folder = "{topic}/" if dice.random() < 0.1 else ""
    if dice.random() < 0.1:
        step.after = [dice.choice(sketch.steps).name]
    step.traits = {"hangs_first": dice.random() < 0.06, "quirk": dice.choice(["", "", *QUIRKS])}
    if step.manner != "process":
        step.reads = dice.random() < 0.15
        step.traits |= {
            "spends": dice.random() < 0.2,
            "pays": dice.choice([0, 1, 1, 2]),
            "large_calls": dice.random() < 0.3,
            "fails_first": dice.random() < 0.15,
            "refused_first": step.kind == "text" and dice.random() < 0.15,
        }
    return step


def _add_memory(sketch: Sketch, dice: Random) -> None:
    """A memory file, and somebody who takes it."""
    texts = [step.name for step in sketch.steps if step.each == "x" and step.kind == "text"]
    if not texts or dice.random() < 0.4:
        return
    sources = dice.sample(texts, min(len(texts), dice.randrange(1, 3)))
    memory = Step("memory", "section", each="x", sources=sources, traits={"pays": 1})
    memory.head = "plan" if dice.random() < 0.5 else ""
    sketch.steps.append(memory)
    sketch.steps.append(Step("index", "text", takes=["memory"], each=dice.choice(["", "x"]), traits={"pays": 1}))


def _add_objections(sketch: Sketch, dice: Random) -> None:
    """A reviewer who is content only with what was revised, and perhaps one whose word is kept."""
    texts = [
        step for step in sketch.steps if step.kind == "text" and step.manner != "process" and step.name != "plan"
    ]
    if not texts or dice.random() < 0.4:
        return
    target = dice.choice(texts)
    target.traits["revisable"] = True
    takes = [target.name]
    if dice.random() < 0.5:
        blind = Step("witness", "text", each=target.each, takes=takes, traits={"pays": 1, "blind": True})
        sketch.steps.append(blind)
    review = Step("review", dice.choice(["text", "value"]), each=target.each, takes=takes, traits={"pays": 1})
    review.objects_to = target.name
    review.traits["rounds"] = dice.choice([99, 99, 1])
    if target.each == "x" and dice.random() < 0.3:
        review.each = ""  # objects to all items at once
    review.keeps = [step.name for step in sketch.steps if step.name == "witness"]
    sketch.steps.append(review)


def _add_phases(sketch: Sketch, dice: Random) -> None:
    """The first steps in one phase, the last in another; or none."""
    if dice.random() < 0.5 or ((sketch.chained or sketch.batches) and gathers_between(sketch)):
        return
    border = dice.randrange(1, len(sketch.steps) + 1)
    for number, step in enumerate(sketch.steps):
        step.phase = PHASES[number >= border]


def gathers_between(sketch: Sketch) -> bool:
    """Whether a step of an item takes something of all items by way of another: within a phase, a loop."""
    gathering: set[str] = set()
    for step in sketch.steps:
        takes = step.names()
        if step.each and gathering & takes:
            return True
        if not step.each and (gathering & takes or any(sketch.step(name).each for name in takes)):
            gathering.add(step.name)
    return False


def written(sketch: Sketch) -> str:
    """The pipeline's file."""
    lines = [_HEAD]
    if "x" in sketch.items:
        lines.append(_items(sketch))
    if any(step.phase for step in sketch.steps):
        lines += ['pipe.phase("One")', 'pipe.phase("Two", checklist=[in_order])']
    lines += [_rendered(step, sketch) for step in sketch.steps]
    lines += [
        f"\n\n@pipe.migration({step.now!r}, {version})\n"
        f"def {step.name}_from_{version}(value):\n    return reformed(value, {form if step.form() else 0})\n"
        for step in sketch.steps
        for form, version in enumerate(step.migrations(), 1)
    ]
    lines += [
        f"pipe.gate({gate.name!r}, {_place(gate, sketch)}, blocking={gate.blocking}"
        + (', each="x")' if gate.each else ")")
        for gate in sketch.gates
    ]
    return "\n".join(lines).replace("OVERWRITE", str(sketch.overwrite)) + "\n"


def _place(gate: Gate, sketch: Sketch) -> str:
    return f"phase={gate.phase!r}" if gate.phase else f"after=[{sketch.step(gate.after).now!r}]"


_HEAD = '''"""Made from a seed."""

from pathlib import Path

from holdfast import Context, Pipeline

from bodies import Body, in_order, inner, numbered, polished, reformed, work, work_async, work_elsewhere

pipe = Pipeline("soak", params={"topic": (str, "kelp"), "n": (int, 2)}, overwrite=OVERWRITE)


def order(ids: list, *, chained: bool, batches: bool, titles: dict) -> list:
    items = [{"id": one} | ({"title": titles[one]} if one in titles else {}) for one in ids]
    for number, item in enumerate(items):
        if chained and number:
            item["after"] = [ids[number - 1]]
        if batches:
            item["batch"] = 1 + number // 2
    return items

'''


def _items(sketch: Sketch) -> str:
    manner = f"chained={sketch.chained}, batches={sketch.batches}, titles={sketch.titles}"
    nested = (
        f'@pipe.items("y", each="x")\ndef ys(x: str, n: int) -> list:\n    return inner(n, {sketch.items["y"]})\n'
        if "y" in sketch.items
        else ""
    )
    if "x" not in sketch.made_by:
        return f'pipe.items("x", order({sketch.items["x"]}, {manner}))\n{nested}'
    plan = sketch.step(sketch.made_by["x"]).now
    return (
        f'{nested}@pipe.items("x")\n'
        f"def xs({plan}: str, n: int) -> list:\n"
        f"    return order(numbered(n), {manner})\n"
    )


def _rendered(step: Step, sketch: Sketch) -> str:
    """One step as Python."""
    taken = {name: sketch.step(name).now for name in step.takes} | {name: name for name in step.params}
    taken |= {"source": "source"} if step.sources else {}
    items = ITEMS[step.each]
    has_ctx = step.manner != "process"
    parameters = [*(["ctx: Context"] if has_ctx else []), *items, *taken.values()]
    first = "ctx" if has_ctx else f"[{', '.join(items)}]"
    given = [_body(step, sketch), first, *(f"{old}={now}" for old, now in taken.items())]
    options = ", ".join(f"{key}={value}" for key, value in _options(step, sketch).items())
    return (
        f"\n@pipe.step({options})\n"
        f"{DEFINED_BY[step.manner]} {step.now}({', '.join(parameters)}) -> {GIVES.get(step.kind, 'dict')}:\n"
        f"    return {WORKS_BY[step.manner]}({', '.join(given)})\n"
    )


def _options(step: Step, sketch: Sketch) -> dict[str, str]:
    """The options of a step, as they are written."""
    paths = step.paths()
    is_section = step.kind == "section"
    options: dict[str, object] = {
        "each": step.each,
        "phase": step.phase,
        "writes": paths.get("", paths),
        "appends": sketch.memory if is_section else "",
        "sources": [sketch.step(name).now for name in step.sources],
        "head": sketch.step(step.head).now if step.head else "",
        "version": step.version,
        "was": step.name if step.now != step.name else "",
        "executor": "process" if step.manner == "process" else "",
        "reads": INBOX if step.reads else "",
        "on_partial": step.on_partial if step.kind == "stream" else "",
        "on_failure": step.on_failure,
        "after": [sketch.step(name).now for name in step.after],
    }
    chosen = {key: repr(value) for key, value in options.items() if value}
    chosen |= {} if step.copy else {"copy": "False"}
    if step.traits.get("refused_first"):
        chosen["check"] = "polished"
    if step.traits.get("fails_first") or step.traits.get("refused_first"):
        chosen |= {"retries": "3", "backoff": "0.001"}
    if step.traits.get("hangs_first"):
        chosen |= {"timeout": "0.3", "retries": "9", "backoff": "0.001"}
    return chosen


def _body(step: Step, sketch: Sketch) -> str:
    """What the step does, as it is written."""
    traits = {key: value for key, value in step.traits.items() if value}
    if step.objects_to:
        traits |= {"objects_to": step.objects_to, "sends_to": sketch.step(step.objects_to).now}
        traits["keeps"] = tuple(sketch.step(name).now for name in step.keeps)
    traits |= {"version": step.version - step.migrated, "form": step.form(), "reads": INBOX if step.reads else ""}
    words = [repr(step.name), repr(step.kind), *(f"{key}={value!r}" for key, value in traits.items())]
    return f"Body({', '.join(words)})"


def renamed(sketch: Sketch, name: str, to: str) -> None:
    """Give a step another name; `was` says the first one."""
    sketch.steps = [replace(step, now=to) if step.name == name else step for step in sketch.steps]
