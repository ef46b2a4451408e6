"""Numbers with their nouns."""

from __future__ import annotations

from holdfast.wording import counted


def test_a_number_agrees_with_its_noun() -> None:
    """One is one; nothing and many take the plural, in which more than the noun may bend."""
    assert [counted(n, "line") for n in (0, 1, 2, 1500)] == ["0 lines", "1 line", "2 lines", "1,500 lines"]
    assert [counted(n, "copy was", "copies were") for n in (1, 2)] == ["1 copy was", "2 copies were"]
