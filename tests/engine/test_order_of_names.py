"""In which order names are written says nothing. Earlier versions counted it, and what they did stands."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import Harness
from holdfast import Context, Pipeline
from holdfast.artifacts import inputs as artifacts_inputs
from holdfast.artifacts.inputs import Inputs
from holdfast.pipeline.nodes import Node
from holdfast.values import digest, encode_json


def ordered(ran: list[str], signature: str, item: dict[str, Any]) -> Pipeline:
    """A step of one item that takes two outputs and two parameters, in the order of `signature`."""
    pipe = Pipeline("p", params={"zest": (int, 1), "aim": (json.loads, {"b": 1, "a": [2]})})
    pipe.items("n", [item])
    pipe.step(name="zoo")(lambda: "z")
    pipe.step(name="ant", writes="ant.md")(lambda: "a")
    namespace: dict[str, Any] = {"ran": ran}
    exec(f"def write({signature}): ran.append(n); return n + zoo + ant", namespace)
    pipe.step(each="n", writes="out/{n}.md")(namespace["write"])
    return pipe


@pytest.mark.parametrize("lost", (False, True))
def test_names_in_another_order_redo_nothing(tmp_path: Path, lost: bool) -> None:
    """Parameters of a function, fields of an item, and of a run parameter, are taken by name, not by place."""
    ran: list[str] = []
    ordered(ran, "n, zoo, ant, zest, aim", {"id": "a", "x": 1, "y": {"p": 1, "q": 2}}).run(dir=tmp_path)
    if lost:
        shutil.rmtree(tmp_path / ".holdfast")
    pipe = ordered(ran, "aim, ant, n, zest, zoo", {"y": {"q": 2, "p": 1}, "x": 1, "id": "a"})
    result = pipe.run({"aim": '{"a": [2], "b": 1}'}, dir=tmp_path)
    assert (result.status, ran) == ("completed", ["a"])


@contextmanager
def an_earlier_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """It put the digest of all inputs together in the order in which somebody had written their names."""

    def digest_as_written(inputs: Inputs, node: Node, parts: Mapping[str, str]) -> str:
        text = "".join([node.spec.identity, *[f"\n{key}={part}" for key, part in parts.items()]])
        return hashlib.sha256(text.encode()).hexdigest()

    def item_as_written(inputs: Inputs, node: Node) -> str:
        fields = {key: value for key, value in (node.item or {}).items() if key != "batch"}
        return digest(encode_json([list(node.path), fields]))

    with monkeypatch.context() as earlier:
        earlier.setattr(Inputs, "digest", digest_as_written)
        earlier.setattr(Inputs, "_item_digest", item_as_written)
        earlier.setattr(artifacts_inputs, "digest_of_fields", lambda value: digest(encode_json(value)))
        yield


@pytest.mark.parametrize("fields", ({"y": 2, "x": 1}, {"batch": 1}))
@pytest.mark.parametrize("lost", (False, True))
def test_what_an_earlier_version_finished_is_not_redone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool, fields: dict[str, Any]
) -> None:
    """An upgrade alone redoes nothing."""
    ran: list[str] = []
    pipe = ordered(ran, "n, zoo, ant, zest, aim", {"id": "a", **fields})
    with an_earlier_version(monkeypatch):
        pipe.run(dir=tmp_path)
    if lost:
        shutil.rmtree(tmp_path / ".holdfast")
    result = pipe.run(dir=tmp_path)
    assert (result.status, ran) == ("completed", ["a"])
    assert pipe.run(dir=tmp_path).status == "completed" and Harness(tmp_path).verify(result.run_id).ok
    assert ran == ["a"]


def test_what_a_step_paid_before_an_upgrade_is_not_paid_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a call of a task that an earlier version did not finish, if its inputs are the same."""
    paid: list[str] = []
    pipe = Pipeline("p", params={"zest": (int, 1), "aim": (int, 2)})

    @pipe.step(writes="out.md")
    def write(ctx: Context, zest: int, aim: int) -> str:
        text = ctx.once("first", lambda: paid.append("first") or "one")
        if len(paid) == 1:
            paid.append("it fails")
            raise OSError("gone")
        return text + ctx.once("second", lambda: paid.append("second") or "two")

    with an_earlier_version(monkeypatch):
        assert pipe.run(dir=tmp_path).status == "failed"
    result = pipe.run(dir=tmp_path)
    assert (result.status, result.outputs["write"]) == ("completed", "onetwo")
    assert paid == ["first", "it fails", "second"]
