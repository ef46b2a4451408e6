"""One line of a journal: what is written is read back, and nothing else is believed."""

import hashlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import events as ev
from holdfast.errors import FormatTooNewError
from holdfast.journal.lines import (
    CARRYING_RAW,
    LINE_MAX,
    NO_SUM,
    Envelope,
    Line,
    LineDamaged,
    Unknown,
    check_line,
    close_line,
    decode_event,
    encode_event,
    encode_line,
)

TS = "2026-01-09T14:30:22.123Z"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def signed(covered: bytes) -> bytes:
    """`covered`, everything before the sum, as a line with a fitting sum."""
    return covered + b',"sum":"' + hashlib.sha256(covered).hexdigest()[:16].encode() + b'"}\n'


def framed(body: bytes, v: bytes = b"1") -> bytes:
    return signed(b'{"seq":1,"ts":"%s","v":%s,%s,"prev":"%s"' % (TS.encode(), v, body, NO_SUM.encode()))


def test_a_line_is_the_documented_bytes():
    """A reader in any language can check it with a JSON parser and SHA-256."""
    line, digest = encode_line(12, TS, b'{"event":"node_exit","n":1}', "ab" * 8)
    covered = (
        b'{"seq":12,"ts":"2026-01-09T14:30:22.123Z","v":1,"event":"node_exit","n":1,"prev":"abababababababab"'
    )
    assert line == signed(covered)
    assert json.loads(line)["sum"] == digest


@given(st.integers(1, 10**12), st.dictionaries(st.text().map("x".__add__), json_values, max_size=5))
def test_every_event_survives_the_round_trip(seq, event):
    """The envelope is read back as written, and the event's own fields are all there."""
    line, digest = encode_line(seq, TS, msgspec.json.encode(event), NO_SUM)
    assert check_line(line) == Envelope(seq, TS, 1, NO_SUM, digest)
    decoded = json.loads(line)
    assert {name: decoded[name] for name in event} == event


@given(st.data())
def test_any_change_of_bytes_is_noticed(data):
    """A line with one byte changed, lost or added is damaged."""
    line, _ = encode_line(3, TS, '{"event":"note","text":"größer"}'.encode(), NO_SUM)
    position = data.draw(st.integers(0, len(line) - 1))
    flipped = bytearray(line)
    flipped[position] ^= data.draw(st.integers(1, 255))
    shorter, longer = line[:position] + line[position + 1 :], line[:position] + b"1" + line[position:]
    for damaged in (bytes(flipped), shorter, longer):
        with pytest.raises(LineDamaged):
            check_line(damaged)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (framed(b'"event":"a","seq":2'), "twice"),
        (framed(b'"event":"a","prev":"%s"' % (b"1" * 16)) + b"", None),
        (framed(b'"event":NaN'), "not JSON"),
        (framed(b'"event":Infinity'), "not JSON"),
        (framed(b'"event":"\xff\xfe"'), "UTF-8"),
        (framed(b'"event":' + b"[" * 200_000 + b"]" * 200_000), "nested"),
        (framed(b'"event":"' + b"x" * LINE_MAX + b'"'), "longer"),
        (framed(b'"event":"a"').replace(b"\n", b"\r\n"), "not a line"),
        (b"\xef\xbb\xbf" + framed(b'"event":"a"'), "not a line"),
        (framed(b'"event":"a"')[:-1], "not a line"),
        (b"\0" * 200 + b"\n", "not a line"),
        (b"\n", "not a line"),
        (b"", "not a line"),
    ],
)
def test_what_is_not_strict_is_damage_even_with_a_fitting_sum(line, reason):
    """Duplicate envelope members, NaN, bad UTF-8, deep nesting, giants, CRLF and BOM are all refused."""
    if reason is None:
        assert check_line(line).prev == NO_SUM  # the frame's own member is the one that counts
        return
    with pytest.raises(LineDamaged, match=reason):
        check_line(line)


def test_a_newer_format_is_refused_not_called_damaged():
    """A whole line of a higher version is FormatTooNewError; one whose sum does not fit is damage."""
    newer = framed(b'"event":"a"', v=b"2")
    with pytest.raises(FormatTooNewError, match="format 2"):
        check_line(newer)
    with pytest.raises(LineDamaged):
        check_line(newer.replace(b'"v":2', b'"v":3'))


def test_a_body_that_is_not_one_line_is_refused():
    """A newline inside would make two lines of one event."""
    with pytest.raises(ValueError):
        encode_line(1, TS, b'{"a":\n1}', NO_SUM)
    with pytest.raises(ValueError):
        encode_line(1, TS, b"[]", NO_SUM)


def test_the_hash_of_an_event_is_the_same_in_any_chain():
    """A position survives that everything is chained anew; another event at the same place is another line."""
    body = b'{"event":"note"}'
    first, second = encode_line(7, TS, body, NO_SUM)[0], encode_line(7, TS, body, "ab" * 8)[0]
    assert first != second
    head = second[: second.rindex(b',"prev":')]
    again, _ = close_line(head, NO_SUM)
    assert again == first
    assert Line(7, TS, first).hash == Line(7, TS, second).hash == hashlib.sha256(head).hexdigest()[:16]
    other = encode_line(7, TS, b'{"event":"other"}', NO_SUM)[0]
    assert Line(7, TS, other).hash != Line(7, TS, first).hash


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
    line, _ = encode_line(1, "2026-01-01T00:00:00.000Z", encode_event(event), NO_SUM)
    check_line(line)
    again = decode_event(line)
    assert type(again) is kind
    assert encode_event(again) == encode_event(event)


@pytest.mark.parametrize("body", [b"{}", b'{"event":5}', b'{"event":["note"]}', b'{"event":"from a newer one"}'])
def test_a_line_without_an_event_of_ours_changes_nothing(body: bytes) -> None:
    """Anyone may append to a journal; what is not known there is passed over, and stops nobody."""
    line, _ = encode_line(1, "2026-01-01T00:00:00.000Z", body, NO_SUM)
    check_line(line)
    assert type(decode_event(line)) is Unknown


def test_a_value_that_is_no_json_is_never_written() -> None:
    """A raw value is copied as it is, so a broken one is stopped before it reaches the journal."""
    with pytest.raises(msgspec.DecodeError):
        encode_event(ev.NodeExited(step_id="a", node="a", status="completed", value=msgspec.Raw()))


def test_no_value_is_left_out() -> None:
    """The absent value of a step that only writes files leaves no trace in its line."""
    line = encode_event(ev.NodeExited(step_id="a", node="a", status="completed", value=ev.NO_VALUE))
    assert b"value" not in line


def test_every_event_that_carries_a_raw_value_is_read_before_it_is_written() -> None:
    """A value is copied into its line as it is, so those events, and no others, are proved to be JSON."""
    carrying = {
        kind for kind in ev.KINDS if any(field.type is msgspec.Raw for field in msgspec.structs.fields(kind))
    }
    assert carrying == CARRYING_RAW
