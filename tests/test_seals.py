"""Seals: what proves a file, and what does not."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.seals import (
    Seal,
    author_body,
    ends_in_marker,
    is_inline,
    name_inputs,
    read_seal,
    seal_sum,
    take_apart,
    vary,
    with_newline,
    without_marker,
    write_seal,
)
from holdfast.values import digest


def put_together(body: bytes, seal: Seal) -> tuple[bytes, Seal]:
    """A sealed file as the engine writes it."""
    above, added = with_newline(body)
    full = vary(seal, sha256=digest(above), newline_added=added)
    return above + write_seal(full), full


SEAL = Seal("draft[ch05]", "20260109_143022", 2, "ab" * 32, "", "DRAFT_COMPLETE", 0.0123, 456)


RARE = {
    "newline_added": True,
    "set_digest": "5e7",
    "value_digest": "7a1",
    "step_version": 3,
    "kind": "json",
    "known_as": "f0",
    "marker": "",
    "cost_usd": 0.0,
}


@given(st.text())
def test_any_text_survives_being_sealed(text: str) -> None:
    """The text above a seal is byte for byte what the author wrote, also without a last newline."""
    try:
        body = text.encode()
    except UnicodeEncodeError:
        return
    data, seal = put_together(body, SEAL)
    found = take_apart(data)
    assert found.seal == seal
    assert digest(found.body) == seal.sha256
    assert author_body(found.body, seal.newline_added) == body


@pytest.mark.parametrize("marker", ["", "STATUS=DONE", "holdfast=1", "a=b=c"])
def test_a_marker_may_be_any_word(marker: str) -> None:
    """A word with an equals sign in it is a marker as good as any, and so is none."""
    data, seal = put_together(b"text\n", vary(SEAL, marker=marker))
    assert take_apart(data).seal == seal


def test_the_line_reads_as_the_contract_shows_it() -> None:
    """The seal is the comment of the contract, cost and tokens included, and a sum of the line itself."""
    line = write_seal(Seal("draft[ch05]", "ID", 0, "IN", "SUM", "DRAFT_COMPLETE", 0.0123, 456)).decode()
    above = (
        "<!-- DRAFT_COMPLETE holdfast=1 task=draft[ch05] run=ID round=0 in=IN sha256=SUM cost=0.0123 tokens=456"
    )
    assert line == f"{above} sum={hashlib.sha256(above.encode()).hexdigest()[:12]} -->\n"


def test_a_seal_without_a_sum_is_one_if_it_has_nothing_else_unknown() -> None:
    """Earlier versions, and the contract's own example, have none."""
    line = b"<!-- DRAFT_COMPLETE holdfast=1 task=draft[ch05] run=r round=0 in=AB sha256=CD cost=1 tokens=456 -->"
    seal = read_seal(line)
    assert seal is not None and (seal.task, seal.tokens) == ("draft[ch05]", 456)
    assert read_seal(line.replace(b" -->", b" sun=0123456789ab -->")) is None


def test_every_bit_of_a_seal_line_counts() -> None:
    """Whatever one bit of it becomes, it is no seal any more."""
    seal = vary(
        SEAL, newline_added=True, set_digest="5e7", inputs=name_inputs({"item": "ch05", "param a b": "0123"})
    )
    line = write_seal(seal).rstrip()
    assert read_seal(line) == seal
    assert seal.made_from == {"item": "ch05", "param a b": "0123"}
    for place in range(len(line)):
        for bit in range(8):
            damaged = bytearray(line)
            damaged[place] ^= 1 << bit
            assert read_seal(bytes(damaged)) is None, bytes(damaged)


@pytest.mark.parametrize("inputs", ["item", "a:b:c", "a:b,", "a:b,c"])
def test_inputs_that_do_not_read_make_no_seal(inputs: str) -> None:
    """Nearly a seal is no seal, also where only its inputs are wrong."""
    assert read_seal(write_seal(vary(SEAL, inputs=inputs))) is None


@given(st.sets(st.sampled_from(sorted(RARE))), st.booleans())
def test_a_seal_is_read_back_whichever_of_its_words_it_has(names: set[str], has_inputs: bool) -> None:
    """Each word that not all seals have may be there or not; inputs that do not read make none of them a seal."""
    seal = vary(SEAL, inputs="item:ch05,a:" if has_inputs else "", **{name: RARE[name] for name in names})
    assert read_seal(write_seal(seal)) == seal
    assert read_seal(write_seal(vary(seal, inputs="a:b:c"))) is None


def test_a_seal_is_read_back_whatever_signs_are_in_its_words() -> None:
    """Quotes, backslashes and control characters are words like others; bytes that are no text make no seal."""
    seal = vary(SEAL, task='draft["a\\b"]', marker="A\x01\tB\x7f\u2028", run="\\u0041")
    line = write_seal(seal)
    assert read_seal(line) == seal
    above = line.rpartition(b" sum=")[0].replace(b"\x7f", b"\xff")
    assert read_seal(b"%b sum=%b -->" % (above, seal_sum(above))) is None


def test_a_seal_counts_only_as_the_last_line() -> None:
    """The same words inside the text are text."""
    data, _ = put_together(b"text\n", SEAL)
    assert take_apart(data + b"more\n").seal is None
    assert take_apart(data + b"\n  \n").seal is not None


@pytest.mark.parametrize("cut", [1, 5, 40, 120])
def test_a_cut_seal_is_none(cut: int) -> None:
    """A seal that lost its end proves nothing."""
    data, _ = put_together(b"text\n", SEAL)
    assert take_apart(data[:-cut].rstrip(b"\n") if cut > 1 else data[:-3]).seal is None


def test_a_changed_body_is_noticed() -> None:
    """One other byte above the seal, and it is no longer intact."""
    data, _ = put_together(b"text\n", SEAL)
    found = take_apart(data.replace(b"text", b"tExt"))
    assert found.seal is not None
    assert digest(found.body) != found.seal.sha256


def test_a_newer_seal_version_is_not_believed() -> None:
    """A seal of another version is no seal."""
    line = write_seal(SEAL).replace(b"holdfast=1", b"holdfast=2")
    assert read_seal(line) is None


def test_plain_markers_are_exact_and_last() -> None:
    """REVIEW_COMPLETE inside R1_CODE_REVIEW_COMPLETE does not count; bare and comment forms do."""
    assert ends_in_marker(b"text\nDRAFT_COMPLETE\n\n", "DRAFT_COMPLETE")
    assert ends_in_marker(b"text\n<!-- DRAFT_COMPLETE -->", "DRAFT_COMPLETE")
    assert not ends_in_marker(b"text\nR1_DRAFT_COMPLETE\n", "DRAFT_COMPLETE")
    assert not ends_in_marker(b"DRAFT_COMPLETE\ntext\n", "DRAFT_COMPLETE")
    assert not ends_in_marker(b"it is DRAFT_COMPLETE", "DRAFT_COMPLETE")
    assert not ends_in_marker(b"text\n<!-- DRAFT_COMPLETE --", "DRAFT_COMPLETE")
    assert not ends_in_marker(b"text\n<!- DRAFT_COMPLETE -->", "DRAFT_COMPLETE")


def test_the_seal_takes_the_place_of_a_plain_marker() -> None:
    """Consumers receive the text without the marker the author ended it with."""
    assert without_marker(b"text\nDRAFT_COMPLETE\n", "DRAFT_COMPLETE") == b"text\n"
    assert without_marker(b"text\n", "DRAFT_COMPLETE") == b"text\n"


def test_formats_without_comments_have_their_seal_beside_them() -> None:
    """Only formats with a comment syntax carry the seal inside."""
    assert is_inline("a/b.md") and is_inline("x.HTML") and is_inline("p.svg")
    assert not is_inline("a.json") and not is_inline("a.py") and not is_inline("md")


def test_newlines_are_added_only_where_missing() -> None:
    """An empty text and one that ends in a newline stay as they are."""
    assert with_newline(b"") == (b"", False)
    assert with_newline(b"a\n") == (b"a\n", False)
    assert with_newline(b"a") == (b"a\n", True)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (b"Text.\n<!-- REVIEW_COMPLETE -->\n", True),
        (b"```\ncode\n```\n\n<!-- REVIEW_COMPLETE -->\n", True),
        (b"Write this last:\n\n```\n<!-- REVIEW_COMPLETE -->\n", False),
        (b"~~~ md\n```\n<!-- REVIEW_COMPLETE -->\n", False),
        (b"````\n```\n<!-- REVIEW_COMPLETE -->\n", False),
        (b"```like this``` is code in a line.\n\nREVIEW_COMPLETE\n", True),
        (b"~~~ text `with` code\nREVIEW_COMPLETE\n", False),
    ],
)
def test_a_marker_in_a_code_block_that_was_cut_off_is_a_quotation(text: bytes, counts: bool) -> None:
    """A text that is cut right after it quotes the marker is not complete."""
    assert ends_in_marker(text, "REVIEW_COMPLETE") is counts
