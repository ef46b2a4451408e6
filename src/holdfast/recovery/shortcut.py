"""The commonest decision about a lost run, for many tasks at once: a whole sealed file is adopted.

Of thousands of files nearly all are whole. For those, gathering all evidence, deciding and acting comes down to
few comparisons, which are made here. `look` gives the very events that the long way (gathering.py, reconcile.py,
adopting.py) gives, and leaves out each task of which anything is not as usual: that way is theirs. A test goes
both.

Crash story: that of adopting.py. Copies come before the events; nothing else is written.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from holdfast import events as ev
from holdfast import seals
from holdfast.artifacts.inputs import Inputs
from holdfast.artifacts.parts import UNKNOWN, differing, digests_of_named, shorten
from holdfast.pipeline.nodes import Node
from holdfast.pipeline.spec import StepSpec
from holdfast.recovery.adopting import compared_later
from holdfast.seals import Seal
from holdfast.stores.ahead import Fetched

PartsOf = Callable[[Node], dict[str, str]]
"""Each input of a task by name, as a digest; what is not known yet, or only inferred, is unknown."""


class Proved(msgspec.Struct, frozen=True):
    """A task that is done, the event that adopts it, and its file as it was read."""

    node: Node
    event: ev.TaskAdopted
    file: Fetched


class _Usual(msgspec.Struct, frozen=True):
    """What the tasks of one step have in common."""

    identity: str
    marker: str
    may_stream: bool
    has_copies: bool


class Shortcut:
    """Adopts what is beyond doubt. `unusual`: steps whose outputs somebody has a say in."""

    def __init__(self, inputs: Inputs, unusual: Container[str], has_stream: Callable[[str], bool]) -> None:
        self._state = inputs.state
        self._inputs = inputs
        self._unusual = unusual
        self._has_stream = has_stream
        self._steps: dict[str, _Usual | None] = {}

    def look(self, nodes: Iterable[Node], parts_of: PartsOf) -> dict[str, Proved]:
        """Those of these tasks, none of which is on record, that are proved by their files. Read-only.

        `parts_of` gives what a task would be made of. What was read for the others is then gone, and will be read
        again.
        """
        by_step: defaultdict[str, list[Node]] = defaultdict(list)
        for spec, some in itertools.groupby(nodes, key=attrgetter("spec")):  # mostly many in a row
            by_step[spec.name] += some
        return {one.node.id: one for some in by_step.values() for one in self._look_at_step(some, parts_of)}

    def keep(self, proved: Sequence[Proved]) -> None:
        """Put copies of what is adopted into objects/, where its steps want them."""
        self._inputs.artifacts.tree.keep_reading()
        copied = [one.file for one in proved if one.event.files[0].stored]
        self._inputs.artifacts.objects.put_fetched(copied)

    def _look_at_step(self, nodes: Sequence[Node], parts_of: PartsOf) -> Iterator[Proved]:
        # One kind of work after the other: for very many files that takes half the time.
        step = self._usual(nodes[0])
        if step is None:
            return
        paths = self._inputs.only_paths(nodes)
        files = self._inputs.artifacts.tree.fetch_all(paths)
        if not any(files):
            return
        parts = [parts_of(node) for node in nodes]
        digests = digests_of_named(step.identity, parts)
        run = self._state.run_id
        begin = seals.usual_beginning(step.marker, run)
        for node, path, file, part, digest in zip(nodes, paths, files, parts, digests, strict=True):
            if file is None or not self._is_usual(step, path, file):
                continue
            ending = seals.usual_ending(file.seal, begin % (node.id, digest, file.sha256))
            if ending is not None:
                seal: Seal | None = Seal(node.id, run, 0, digest, file.sha256, step.marker, *ending)
            else:
                seal = self._sealed(step, node, file)
            if seal is None:
                continue
            if seal.input_digest == digest and UNKNOWN not in part.values():
                inputs = shorten(part)
            elif _fits_as_far_as_known(seal, part, node):
                inputs = compared_later(part, seal, is_same=False)
            else:
                continue
            yield Proved(node, _adoption(node, path, file, seal, inputs), file)

    def _is_usual(self, step: _Usual, path: str, file: Fetched) -> bool:
        """Whether it came with its bytes, if copies are wanted, and nothing is left of a stream beside it."""
        return (file.header > 0 or not step.has_copies) and not (step.may_stream and self._has_stream(path))

    def _sealed(self, step: _Usual, node: Node, file: Fetched) -> Seal | None:
        """The seal of a whole file, if just this task of this run has sealed it in the usual way."""
        seal = seals.read_seal(file.seal)
        if seal is None or (seal.value_digest or seal.set_digest or seal.known_as):
            return None
        said = (seal.sha256, seal.task, seal.run, seal.marker)
        return seal if said == (file.sha256, node.id, self._state.run_id, step.marker) else None

    def _usual(self, node: Node) -> _Usual | None:
        """What is the same for all tasks of this one's step; None if each of them takes a longer look."""
        name = node.spec.name
        if name not in self._steps:
            self._steps[name] = _usual(node.spec) if name not in self._unusual else None
        return self._steps[name]


def _usual(spec: StepSpec) -> _Usual | None:
    """What is taken for granted of one file with its seal inside; of anything else nothing is."""
    is_one_file = isinstance(spec.writes, str) and spec.writes.endswith(seals.INLINE)
    if not is_one_file or spec.appends is not None:
        return None
    return _Usual(spec.identity, spec.marker or "", "ctx" in spec.sources, spec.copy)


def _fits_as_far_as_known(seal: Seal, parts: Mapping[str, str], node: Node) -> bool:
    """Whether inputs are unknown, and the seal names all that are known as they are."""
    if UNKNOWN not in parts.values() or not seal.inputs or seal.input_digest == UNKNOWN:
        return False
    return seal.step_version == node.spec.version and not differing(seal.made_from, parts)


def _adoption(node: Node, path: str, file: Fetched, seal: Seal, inputs: dict[str, str]) -> ev.TaskAdopted:
    added = seal.newline_added
    record = ev.FileRecord("", path, file.size, seal.sha256, seal.kind, added, bool(node.spec.copy))
    return ev.TaskAdopted(
        step_id=node.id,
        node=node.spec.name,
        evidence="sealed",
        round=seal.round,
        version=seal.step_version,
        input_digest=seal.input_digest,
        inputs=inputs,
        output_digest=f"{seal.sha256}-" if added else seal.sha256,
        files=(record,),
        cost_usd=seal.cost_usd,
        tokens=seal.tokens,
    )
