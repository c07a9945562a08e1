"""Apps take settings from Django, never from the environment; tests/contract/test_docs.py holds their page to them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_app_reads_the_environment():
    readers = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "apps").rglob("*.py")
        if re.search(r"os\.(environ\[|environ\.get|getenv)", path.read_text())
    ]
    assert readers == []
