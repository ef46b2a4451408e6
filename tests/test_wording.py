"""Numbers with their nouns, and times."""

from __future__ import annotations

from holdfast.wording import counted, of_all, span


def test_a_number_agrees_with_its_noun() -> None:
    """One is one; nothing and many take the plural, in which more than the noun may bend."""
    assert [counted(n, "line") for n in (0, 1, 2, 1500)] == ["0 lines", "1 line", "2 lines", "1,500 lines"]
    assert [counted(n, "copy was", "copies were") for n in (1, 2)] == ["1 copy was", "2 copies were"]


def test_a_verb_agrees_with_the_files_that_it_tells_of() -> None:
    """One file is there, two are."""
    assert of_all(["a.md"], "is there", "are there") == "a.md is there"
    assert of_all(("a.md", "b.md"), "is there", "are there") == "a.md, b.md are there"


def test_a_time_is_told_as_people_would() -> None:
    """Neither the shortest nor the longest is told in powers of ten."""
    spans = [span(seconds) for seconds in (-1, 0.000079, 0.44, 42.4, 185, 12_345)]
    assert spans == ["0.0s", "0.0s", "0.4s", "42s", "3m 05s", "3h 25m"]
