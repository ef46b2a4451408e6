import hashlib
import json

from holdfast.views.stamp import read_json_stamp, read_stamp, stamp, stamp_json


def test_a_stamp_is_the_last_line_and_fits():
    """The last line names run, sequence number and the hash of all bytes above it."""
    text = stamp("# Title\n\ntext ✅\n", "run-1", 42)
    above, line = text[: text.rindex("<!--")], text.splitlines()[-1]
    digest = hashlib.sha256(above.encode()).hexdigest()
    assert line == f"<!-- holdfast view run=run-1 seq=42 sha256={digest} -->"
    found = read_stamp(text)
    assert (found.run, found.seq, found.fits) == ("run-1", 42, True)


def test_an_edit_above_or_below_no_longer_fits():
    """A changed view still says which moment it shows, but no longer that nobody edited it."""
    text = stamp("a | ⏳\n", "run-1", 7)
    for edited in (text.replace("⏳", "✅"), text + "a note\n"):
        found = read_stamp(edited)
        assert (found.run, found.seq, found.fits) == ("run-1", 7, False)


def test_a_last_newline_more_or_less_is_no_edit():
    """Editors add or drop the last newline; that alone is nobody's wish."""
    text = stamp("a\n", "run-1", 7)
    assert read_stamp(text.rstrip("\n")).fits
    assert read_stamp(text + "\n").fits


def test_text_without_a_stamp_has_none():
    """A view that someone wrote by hand carries no stamp, and neither does a mangled one."""
    assert read_stamp("# Title\n") is None
    assert read_stamp(stamp("a", "r", 1).replace("sha256=", "sha=")) is None


def test_a_json_stamp_covers_every_byte_before_it():
    """The stamp is the last member, and its hash is that of the bytes before that member."""
    data = stamp_json({"a": {"b": [1, {}]}}, "run-1", 3)
    document = json.loads(data)
    assert list(document) == ["a", "stamp"]
    assert document["stamp"]["sha256"] == hashlib.sha256(data[: data.index(b'"stamp"')]).hexdigest()
    assert read_json_stamp(data).fits
    assert json.loads(stamp_json({}, "run-1", 3))["stamp"]["seq"] == 3


def test_an_edited_json_view_does_not_fit():
    """One changed byte, or another layout of the same document, is told from what was written."""
    data = stamp_json({"status": "failed"}, "run-1", 3)
    assert not read_json_stamp(data.replace(b"failed", b"passed")).fits
    assert not read_json_stamp(json.dumps(json.loads(data)).encode()).fits


def test_json_without_a_stamp_has_none():
    """Garbage, other documents and odd stamps are no stamp, and no error."""
    for data in (b"", b"\xff", b"[]", b"{}", b'{"stamp": 1}', b'{"stamp": {"run": "a"}}', b"[" * 100_000):
        assert read_json_stamp(data) is None


def test_a_json_view_holds_nothing_that_a_terminal_obeys() -> None:
    """What a model wrote is escaped there, and reads back as it was; the stamp fits."""
    document = {"error": "bad \x9b2J\x7f\u202e\u2028\x85\U000e0041 é ✓\n", "k\u202e": [1]}
    data = stamp_json(document, "r", 7)
    assert not set("\x9b\x7f\u202e\u2028\x85\U000e0041") & set(data.decode())
    assert "é ✓" in data.decode()
    read = json.loads(data)
    assert read.pop("stamp")["seq"] == 7
    assert read == document
    stamp = read_json_stamp(data)
    assert stamp is not None and stamp.fits
