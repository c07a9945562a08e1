"""`{{NAME}}` in texts for people is filled in with resolved values; what is not known stays as it was written."""

from __future__ import annotations

import pytest

from engine import filling

VALUES = {"MARKET": "DE", "LIMIT": 5, "ON": True, "TAGS": ["a", "b"], "NESTED": "{{MARKET}}", "EMPTY": "", "BAD": "\0"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Checks {{MARKET}}.", "Checks DE."),
        ("{{ MARKET }}{{MARKET}}", "DEDE"),
        ("at most {{LIMIT}}, {{ON}}, {{TAGS}}", 'at most 5, true, ["a","b"]'),
        ("{{NESTED}}", "{{MARKET}}"),
        ("[{{EMPTY}}]", "[]"),
        ("{{UNKNOWN}} and {{MARKET}}", "{{UNKNOWN}} and DE"),
        ("{{BAD}}", "{{BAD}}"),
        (
            "{{market}} {{MAR KET}} {{}} {{{MARKET}}} {MARKET} ${MARKET}",
            "{{market}} {{MAR KET}} {{}} {DE} {MARKET} ${MARKET}",
        ),
        ("", ""),
    ],
)
def test_only_whole_known_names_are_filled_in(text: str, shown: str):
    assert filling.fill(text, VALUES) == shown
