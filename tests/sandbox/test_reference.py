"""docs/reference/sandbox.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from engine.sandbox.errors import Reason

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "sandbox.md").read_text()


def test_every_reason_has_its_row_and_no_row_is_of_none() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == sorted(Reason)
