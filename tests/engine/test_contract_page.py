"""The page on the contract says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pulse
from engine import environment
from pulse.deliveries import _GITHUB

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "contract.md").read_text()


def test_every_variable_has_its_row() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([A-Za-z]+_?[A-Z_a-z]*|[A-Z]+)`", row.split("|")[1])}
    known = set(environment.FIXED) | environment.RESOLVED | environment.RUN_SUPPLIED | environment.WITH_HOSTS
    assert known - named == set()


def test_run_supplied_names_are_said_to_be() -> None:
    rows = [line for line in PAGE.splitlines() if "run-supplied" in line]
    assert [name for name in environment.RUN_SUPPLIED if not any(f"`{name}`" in row for row in rows)] == []


def test_the_library_is_listed_whole() -> None:
    assert [name for name in pulse.__all__ if name != "Trigger" and f"`{name}" not in PAGE] == []
    assert [name for name in _GITHUB if f"`{name}`" not in PAGE] == []
