"""Settings: file, environment, options; the later wins."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.errors import StorageError, UsageError
from holdfast.settings import Settings, load_settings


def test_defaults_without_any_file(tmp_path: Path) -> None:
    """No file, no variables: the documented defaults."""
    assert load_settings(tmp_path, {}, {}) == Settings()


def test_the_later_wins(tmp_path: Path) -> None:
    """Options beat variables, variables beat the file."""
    (tmp_path / "holdfast.toml").write_text('[run]\nconcurrency = 2\nbudget_usd = 1\non_changed = "keep"\n')
    found = load_settings(tmp_path, {"concurrency": 4, "budget_usd": None}, {"HOLDFAST_CONCURRENCY": "3"})
    assert (found.concurrency, found.budget_usd, found.on_changed) == (4, 1.0, "keep")
    assert load_settings(tmp_path, {}, {"HOLDFAST_CONCURRENCY": "3"}).concurrency == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run = 3\n", "'run' stands in no section"),
        ("[run]\nconcurrency = 0\n", "concurrency"),
        ("[run]\nconcurrency = true\n", "concurrency"),
        ("[run]\non_partial = 'maybe'\n", "redo, continue, ask"),
        ("[run]\ntypo = 1\n", "typo"),
        ("[other]\n", "other"),
        ("not toml", "TOML"),
        ("a = " + "[" * 100_000, "TOML: it is nested too deeply"),
        (f"[run]\nconcurrency = {'9' * 5000}\n", "TOML"),
        ("[keep]\nsnapshots = 1\n", "snapshots"),
    ],
)
def test_mistakes_name_the_file_and_the_setting(tmp_path: Path, text: str, words: str) -> None:
    """A wrong setting is one line that names where it stands."""
    (tmp_path / "holdfast.toml").write_text(text)
    with pytest.raises(UsageError, match=words) as told:
        load_settings(tmp_path, {}, {})
    assert "holdfast.toml" in str(told.value) and "\n" not in str(told.value)


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    """An environment variable that is no number is named."""
    with pytest.raises(UsageError, match="HOLDFAST_BUDGET_USD"):
        load_settings(tmp_path, {}, {"HOLDFAST_BUDGET_USD": "much"})


def test_a_link_that_leads_nowhere_is_not_no_settings(tmp_path: Path) -> None:
    """The disk with the shared settings is not mounted: a budget in them must not be forgotten."""
    (tmp_path / "holdfast.toml").symlink_to(tmp_path / "shared.toml")
    with pytest.raises(UsageError, match="toml is a link"):
        load_settings(tmp_path, {}, {})
    (tmp_path / "shared.toml").write_text("[run]\nbudget_usd = 3\n")
    assert load_settings(tmp_path, {}, {}).budget_usd == 3.0


def test_a_misspelt_variable_is_no_setting_that_does_not_hold(tmp_path: Path) -> None:
    """As in the file. The option is --budget, so somebody will set HOLDFAST_BUDGET; others are not ours."""
    wrong = {"HOLDFAST_BUDGET": "5", "HOLDFAST_CONCURENCY": "2"}
    with pytest.raises(UsageError) as told:
        load_settings(tmp_path, {}, wrong)
    assert str(told.value).splitlines() == [
        "HOLDFAST_BUDGET: there is no such setting. Did you mean HOLDFAST_BUDGET_USD?",
        "HOLDFAST_CONCURENCY: there is no such setting. Did you mean HOLDFAST_CONCURRENCY?",
    ]
    others = {"HOLDFAST_DEBUG": "1", "HOLDFAST_HOME": "x", "HOLDFAST_": "", "BUDGET": "5"}
    assert load_settings(tmp_path, {}, others) == Settings()


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """One line for each: of the file, of a variable, of an option."""
    (tmp_path / "holdfast.toml").write_text("[run]\nconcurrency = 0\ntypo = 1\n[other]\n[keep]\nsnapshots = 1\n")
    with pytest.raises(UsageError) as told:
        load_settings(tmp_path, {"on_changed": "maybe"}, {"HOLDFAST_BUDGET_USD": "much"})
    named = ["[run] concurrency", "typo", "[other]", "[keep] snapshots", "HOLDFAST_BUDGET_USD", "--on-changed"]
    lines = str(told.value).splitlines()
    assert len(lines) == len(named) and all(name in line for name, line in zip(named, lines, strict=True))


def test_a_pipe_is_not_waited_for_and_a_link_is_followed(tmp_path: Path) -> None:
    """What is no regular file is an error that names it; settings may be shared by a link."""
    (tmp_path / "one").mkdir()
    os.mkfifo(tmp_path / "one" / "holdfast.toml")
    with pytest.raises(StorageError, match=r"holdfast\.toml: Not a regular file"):
        load_settings(tmp_path / "one", {}, {})
    (tmp_path / "shared.toml").write_text("[run]\nconcurrency = 3\n")
    (tmp_path / "holdfast.toml").symlink_to("shared.toml")
    assert load_settings(tmp_path, {}, {}).concurrency == 3
