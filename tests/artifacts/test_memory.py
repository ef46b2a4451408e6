"""Memory files: sections survive whatever happens to the bytes around them."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast import seals
from holdfast.artifacts import memory
from holdfast.artifacts.memory import Book, Section
from holdfast.seals import Seal
from holdfast.values import digest


def section(task: str, text: str, **facts: object) -> Section:
    body, added = seals.with_newline(text.encode())
    seal = Seal(
        task=task,
        run="r1",
        round=0,
        input_digest="ab",
        sha256=digest(body),
        marker="GLOSSARY_COMPLETE",
        newline_added=added,
    )
    return Section((task,), seals.vary(seal, **facts), body)


A = section("glossary[a]", "alpha\n")
B = section("glossary[b]", "beta")
C = section("glossary[c]", "# gamma\n\nmore\n")
ALL = [A, B, C]


def written(wanted: list[Section], old: bytes = b"") -> bytes:
    return memory.rewrite(memory.take_apart(old), wanted).data


def bodies(data: bytes) -> dict[str, bytes]:
    return {block.task: block.body for block in memory.take_apart(data).blocks if block.kind == memory.INTACT}


def found(data: bytes, task: str) -> memory.Block:
    block = memory.take_apart(data).find((task,))
    assert block is not None
    return block


def raw(data: bytes, task: str) -> bytes:
    block = found(data, task)
    return data[block.start : block.end]


# --- writing and reading back ----------------------------------------------------------------------------


def test_a_section_counts_as_the_task_s_that_both_its_lines_name() -> None:
    """A seal under another one's opening line proves neither."""
    data = written(ALL).replace(b"section=glossary[a]", b"section=glossary[z]")
    assert [*bodies(data)] == ["glossary[b]", "glossary[c]"]


def test_a_section_is_an_opening_line_its_text_and_a_seal() -> None:
    """The bytes are as the format page shows them."""
    lines = memory.write_section(B).decode().splitlines()
    assert lines[0] == "<!-- holdfast section=glossary[b] bytes=5 -->"
    assert lines[1] == "beta"
    assert lines[2].startswith("<!-- GLOSSARY_COMPLETE holdfast=1 task=glossary[b] run=r1 round=0 in=ab sha256=")
    assert " eol=added sum=" in lines[2] and lines[2].endswith(" -->")


def test_what_was_written_reads_back() -> None:
    """Each section is found whole, with its seal, in the order of the file."""
    book = memory.take_apart(written(ALL))
    assert [block.task for block in book.blocks] == ["glossary[a]", "glossary[b]", "glossary[c]"]
    assert [block.kind for block in book.blocks] == [memory.INTACT] * 3
    assert [block.body for block in book.blocks] == [s.body for s in ALL]
    assert [block.seal for block in book.blocks] == [s.seal for s in ALL]


def test_writing_twice_changes_nothing() -> None:
    """A file that has all its sections is left as it is."""
    data = written(ALL)
    again = memory.rewrite(memory.take_apart(data), ALL)
    assert (again.data, again.new, again.replaced) == (data, (), {})


def test_a_late_section_takes_its_place_in_the_order() -> None:
    """It makes no difference to the file which section was finished first."""
    assert written([A, B, C], written([A, C])) == written(ALL)
    assert written([A, B, C], written([C])) == written(ALL)
    assert written([A, B, C], written([A])) == written(ALL)


def test_a_persons_text_stays_between_the_sections_it_stands_between() -> None:
    """New sections go round what a person wrote; not a byte of that, or of a section, changes."""
    data = written([A, C])
    note = b"\nA note by hand, no newline at its end"
    noted = data.replace(raw(data, "glossary[c]"), note + b"\n\n" + raw(data, "glossary[c]")) + note
    new = written([A, B, C, section("glossary[d]", "delta")], noted)
    order = [new.index(piece) for piece in (A.body or b"", note, b"\nbeta\n", C.body or b"", b"delta")]
    assert order == sorted(order)
    assert new.count(note) == 2
    assert raw(new, "glossary[a]") == raw(data, "glossary[a]")
    assert raw(new, "glossary[c]") == raw(data, "glossary[c]")
    assert new.rindex(note) < new.index(b"delta")


def test_a_file_that_was_there_before_is_continued() -> None:
    """Text without any section is a person's: sections are added below it."""
    assert written([A], b"My glossary") == b"My glossary\n\n" + memory.write_section(A)


def test_only_what_is_named_is_replaced() -> None:
    """A section that was made again takes the place of its older text; the others stay."""
    data = written(ALL)
    newer = section("glossary[b]", "better", round=1)
    assert memory.rewrite(memory.take_apart(data), [A, newer, C]).data == data
    change = memory.rewrite(memory.take_apart(data), [A, newer, C], frozenset({"glossary[b]"}))
    assert change.data == written([A, newer, C])
    assert list(change.replaced) == ["glossary[b]"]


def test_a_section_whose_text_is_lost_is_left_out() -> None:
    """Nothing is written for a section that nobody has; what there is stays."""
    lost = Section(B.names, B.seal, None)
    assert written([A, lost, C]) == written([A, C])
    assert written([A, lost, C], written(ALL)) == written(ALL)


def test_a_section_is_known_by_its_earlier_name() -> None:
    """A renamed step finds the sections that it wrote under its old name."""
    renamed = Section(("terms[b]", "glossary[b]"), B.seal, B.body)
    assert memory.rewrite(memory.take_apart(written(ALL)), [renamed]).data == written(ALL)


# --- what it looks like when it is not whole -------------------------------------------------------------


def test_an_edited_section_is_told_from_a_broken_one() -> None:
    """Readable text above its own seal is an edit; NULs, or a seal that is gone, are damage."""
    data = written(ALL)
    assert found(data.replace(b"beta\n", b"better\n"), "glossary[b]").kind == memory.EDITED
    assert found(data.replace(b"beta\n", b"be\0ta\n"), "glossary[b]").kind == memory.BROKEN
    cut = data[: data.index(b"beta") + 2]
    assert found(cut, "glossary[b]").kind == memory.BROKEN
    assert memory.take_apart(cut).find(("glossary[c]",)) is None


def test_an_edit_is_kept_until_someone_decides() -> None:
    """Filling in a missing section leaves an edited one alone."""
    data = written([A, B]).replace(b"beta\n", b"better\n")
    assert b"\nbetter\n" in written(ALL, data)
    assert memory.rewrite(memory.take_apart(data), [A, B], frozenset({"glossary[b]"})).data == written([A, B])


def test_a_broken_section_is_put_back_in_its_place() -> None:
    """Damage inside one section is mended without moving anything around it."""
    noted = written([A, B]) + b"\nby hand\n"
    data = written(ALL, noted)
    for damage in (b"be\0\0", b"\xff\xfe\xfd\xfc"):
        change = memory.rewrite(memory.take_apart(data.replace(b"beta", damage)), ALL)
        assert change.data == data
        assert list(change.replaced) == ["glossary[b]"]


@pytest.mark.parametrize("last", [False, True])
def test_what_a_person_wrote_below_a_section_without_a_seal_stays(last: bool) -> None:
    """Where such a section ended, its length says."""
    long = section("glossary[b]", "beta\ntwo\nthree")
    data = written([A, long], b"") + b"\nby hand\n\nand more" + b"\n" * (not last)
    data = data if last else written([A, long, C], data)
    damaged = re.sub(rb"(?<=beta\ntwo\nthree\n)<!-- G[^\n]*\n", b"", data)
    assert damaged != data
    assert written([A, long] if last else [A, long, C], damaged) == data


def test_a_section_that_a_cut_joined_to_the_one_above_is_whole() -> None:
    """Its opening line begins no line any more; it stays, and so does what a person wrote below it."""
    data = written([A, section("glossary[b]", "beta\ntwo"), C]) + b"\nby hand\n"
    start, end = data.index(b"two"), data.index(b"<!-- holdfast section=glossary[c]")
    joined = data[: start + 1] + data[end:]
    mended = written([A, section("glossary[b]", "beta\ntwo"), C], joined)
    assert raw(mended, "glossary[c]") == raw(data, "glossary[c]")
    assert mended.endswith(b"\nby hand\n")
    assert bodies(mended) == bodies(data)


def test_an_opening_line_that_a_cut_went_through_is_not_left_in_the_file() -> None:
    """What is left of it stands where its section comes back; a person's own words there stay."""
    data = written(ALL)
    for task in (A.task, B.task, C.task):
        start = data.index(raw(data, task))
        line = data.index(b"\n", start)
        for end in range(start + len("<!--"), line):
            assert written(ALL, data[:end]) == data
    remark = data[: data.index(raw(data, C.task))] + b"<!-- glossary"
    assert written(ALL, remark).startswith(remark + b"\n\n<!-- holdfast section=glossary[c]")


def test_a_section_whose_beginning_is_zeroes_is_put_back_in_its_place() -> None:
    """Opening line and text overwritten, the seal left: what is no text goes, what stands above it stays."""
    data = written(ALL).replace(
        b"<!-- holdfast section=glossary[b]", b"by hand\n<!-- holdfast section=glossary[b]"
    )
    at = data.index(b"section=glossary[b]")
    assert written(ALL, data[:at] + b"\0" * 34 + data[at + 34 :]) == data


def test_a_section_pasted_twice_counts_once() -> None:
    """The first whole one is the section; the other is text that somebody put there."""
    data = written(ALL)
    doubled = data + raw(data, "glossary[a]")
    assert written(ALL, doubled) == doubled
    assert len(memory.take_apart(doubled).blocks) == 3


def test_a_seal_of_another_task_proves_nothing() -> None:
    """A body whose opening line and seal disagree is neither task's."""
    data = written(ALL).replace(b"task=glossary[b]", b"task=glossary[c]")
    assert b"beta\n" not in bodies(data).values()
    assert written(ALL, data) == written(ALL)


def test_a_damaged_opening_line_costs_nothing() -> None:
    """The seal alone proves the text above it; the line is written anew with the next section."""
    data = written(ALL)
    for old, new in ((b"bytes=5", b"bytes=9"), (b"<!-- holdfast section=glossary[b]", b"<!- holdfast section=?")):
        assert bodies(data.replace(old, new, 1))["glossary[b]"] == B.body
        assert written(ALL, data.replace(old, new, 1)) == data


def test_a_remark_above_a_section_without_opening_line_stays() -> None:
    """A comment is a person's, also where the opening line below it was taken away; only that is written anew."""
    data = written(ALL).replace(
        b"<!-- holdfast section=glossary[b]", b"<!-- mine -->\n<!-- holdfast section=glossary[b]"
    )
    opening = b"<!-- holdfast section=glossary[b] bytes=5 -->\n"
    assert written(ALL, data.replace(opening, b"")) == data


LOOKALIKES = st.sampled_from(
    [
        memory.write_section(A).decode(),
        memory.write_section(B).decode(),
        "<!-- holdfast section=glossary[a] bytes=3 -->\n",
        "<!-- holdfast section=glossary[c] bytes=99999 -->\n",
        seals.write_seal(A.seal).decode(),
        seals.write_seal(C.seal).decode(),
        "<!-- GLOSSARY_COMPLETE -->",
        "\r\n",
        "\0",
        "-->",
    ]
)
TEXTS = st.lists(LOOKALIKES | st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=5).map(
    "".join
)


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_text_that_looks_like_sections_is_text(texts: list[str]) -> None:
    """Whatever a section holds, quoted sections and seals of itself and of others, it reads back exactly."""
    wanted = [section(f"glossary[{n}]", text) for n, text in enumerate(texts)]
    data = written(wanted)
    assert bodies(data) == {s.task: s.body for s in wanted}
    assert written(wanted, written(wanted[::2])) == data


PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="<>\0"), max_size=30)


def damaged_parts(book: Book, at: int, end: int) -> set[str]:
    return {block.task for block in book.blocks if block.start < end and at < block.end}


@given(st.lists(PLAIN, min_size=1, max_size=4), st.data())
def test_one_changed_byte_harms_one_section(texts: list[str], draw: st.DataObject) -> None:
    """Any byte may become any other: all other sections stay whole, and all come back as they were."""
    wanted = [section(f"glossary[{n}]", text) for n, text in enumerate(texts)]
    data = written(wanted)
    at = draw.draw(st.integers(0, len(data) - 1))
    byte = draw.draw(st.integers(0, 255))
    assume(byte != data[at])
    harmed = data[:at] + bytes([byte]) + data[at + 1 :]
    touched = damaged_parts(memory.take_apart(data), at, at + 1)
    _others_are_untouched(data, harmed, wanted, touched)


@given(st.lists(PLAIN, min_size=1, max_size=4), st.data())
def test_a_cut_file_keeps_what_stands_above_the_cut(texts: list[str], draw: st.DataObject) -> None:
    """Cut at any byte: what stands above stays whole, and the rest comes back as it was."""
    wanted = [section(f"glossary[{n}]", text) for n, text in enumerate(texts)]
    data = written(wanted)
    at = draw.draw(st.integers(0, len(data)))
    touched = damaged_parts(memory.take_apart(data), at, len(data))
    _others_are_untouched(data, data[:at], wanted, touched)
    assert written(wanted, data[:at]).count(b"GLOSSARY_COMPLETE") == len(wanted)


def _others_are_untouched(data: bytes, harmed: bytes, wanted: list[Section], touched: set[str]) -> None:
    rest = [s for s in wanted if s.task not in touched]
    assert all(bodies(harmed).get(s.task) == s.body for s in rest)
    mended = memory.rewrite(memory.take_apart(harmed), wanted, frozenset(touched)).data
    assert bodies(mended) == {s.task: s.body for s in wanted}
    assert all(raw(mended, s.task) == raw(data, s.task) for s in rest)
    assert memory.rewrite(memory.take_apart(mended), wanted).data == mended


@given(st.binary(max_size=300))
def test_any_bytes_can_be_taken_apart(data: bytes) -> None:
    """No content makes the reader fail, and a section can be added to whatever there is."""
    assert bodies(written([A], data))["glossary[a]"] == A.body


@pytest.mark.parametrize("lines", [2_000])
def test_many_lookalikes_cost_little(lines: int) -> None:
    """A file full of lines that look like ours is read in one go, not once for each of them."""
    data = b"<!-- holdfast section=glossary[a] bytes=7 -->\n" * lines + seals.write_seal(A.seal) * lines
    assert written([B], data).endswith(memory.write_section(B))


def test_whatever_a_text_looks_like_it_is_taken_apart_in_one_pass() -> None:
    """Megabytes of nearly a seal, and very many openings whose seals name others: each is looked at once."""
    nearly = b"<!-- " + b"holdfast=1 " * 300_000 + b"\n"
    book = memory.take_apart(b"<!-- holdfast section=g[a] bytes=5 -->\n" + nearly)
    assert [block.kind for block in book.blocks] == [memory.BROKEN]
    seal = b"<!-- G_COMPLETE holdfast=1 task=h[%d] run=r round=0 in=x sha256=y cost=0 tokens=0 -->\n"
    strangers = b"".join(b"<!-- holdfast section=g[%d] bytes=5 -->\nx\n" % n + seal % n for n in range(20_000))
    assert len(memory.take_apart(strangers).blocks) == 20_000
