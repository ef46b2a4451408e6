"""Events: what is written can be read back."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import events as ev
from holdfast.journal import bodies
from holdfast.journal.codec import NO_SUM, check_line, encode_line


def sample(kind: type[ev.Event]) -> ev.Event:
    """An event of this kind with every required field given, and no other."""
    values = {str: "x", int: 1, float: 1.0, msgspec.Raw: msgspec.Raw(b"{}")}
    facts = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            facts[field.name] = values.get(field.type, () if "tuple" in str(field.type) else {})
    return kind(**facts)


@pytest.mark.parametrize("kind", ev.KINDS, ids=lambda kind: kind.__name__)
def test_every_event_is_a_good_line_and_comes_back(kind: type[ev.Event]) -> None:
    """Defaults left out, each event makes a line that verifies and decodes to the same event."""
    event = sample(kind)
    line, _ = encode_line(1, "2026-01-01T00:00:00.000Z", bodies.encode(event), NO_SUM)
    check_line(line)
    again = bodies.decode(line)
    assert type(again) is kind
    assert bodies.encode(again) == bodies.encode(event)


@pytest.mark.parametrize("body", [b"{}", b'{"event":5}', b'{"event":["note"]}', b'{"event":"from a newer one"}'])
def test_a_line_without_an_event_of_ours_changes_nothing(body: bytes) -> None:
    """Anyone may append to a journal; what is not known there is passed over, and stops nobody."""
    line, _ = encode_line(1, "2026-01-01T00:00:00.000Z", body, NO_SUM)
    check_line(line)
    assert type(bodies.decode(line)) is bodies.Unknown


def test_a_value_that_is_no_json_is_never_written() -> None:
    """A raw value is copied as it is, so a broken one is stopped before it reaches the journal."""
    with pytest.raises(msgspec.DecodeError):
        bodies.encode(ev.NodeExited(step_id="a", node="a", status="completed", value=msgspec.Raw()))


def test_no_value_is_left_out() -> None:
    """The absent value of a step that only writes files leaves no trace in its line."""
    line = bodies.encode(ev.NodeExited(step_id="a", node="a", status="completed", value=ev.NO_VALUE))
    assert b"value" not in line


def test_every_event_that_carries_a_raw_value_is_read_before_it_is_written() -> None:
    """A value is copied into its line as it is, so those events, and no others, are proved to be JSON."""
    carrying = {
        kind for kind in ev.KINDS if any(field.type is msgspec.Raw for field in msgspec.structs.fields(kind))
    }
    assert carrying == bodies.CARRYING_RAW
