"""Each case of the fault lists is a test, or names the issue that takes it (docs/reference/cases.md)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "cases.md"
ROW = re.compile(r"^\| (attacks|platform|users) (D?\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


# Every case there is. The lists skip numbers; those that exist are counted here.
LISTS = {
    "attacks": 103,
    "platform": 77,
    "users": 88,
}


def rows() -> list[tuple[str, str, str, str]]:
    return ROW.findall(PAGE.read_text())


def test_every_case_has_its_row() -> None:
    for name, count in LISTS.items():
        assert len({number for kind, number, _, _ in rows() if kind == name}) == count, name


def test_every_named_test_exists() -> None:
    missing = []
    for kind, number, _, where in rows():
        for name in re.findall(r"tests/[\w/]+\.py::\w+", where):
            path, function = name.split("::")
            file = ROOT / path
            names = (
                {
                    node.name
                    for node in ast.walk(ast.parse(file.read_text()))
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                }
                if file.exists()
                else set()
            )
            if function not in names:
                missing.append(f"{kind} {number}: {name}")
    assert missing == []


def test_a_case_without_a_test_says_why() -> None:
    silent = [
        f"{kind} {number}" for kind, number, _, where in rows() if "::" not in where and not where.startswith("later:")
    ]
    assert silent == []
