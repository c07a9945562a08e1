"""The page of settings names every variable that is read, and none that is not."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_has_its_heading_and_every_heading_its_setting():
    read = set(re.findall(r'env\.\w+\(\s*"([A-Z_]+)"', (ROOT / "platform/config/settings.py").read_text()))
    told = set(re.findall(r"^### `([A-Z_]+)`$", (ROOT / "docs/reference/settings.md").read_text(), re.MULTILINE))
    assert read == told


def test_no_app_reads_the_environment():
    readers = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "apps").rglob("*.py")
        if re.search(r"os\.(environ\[|environ\.get|getenv)", path.read_text())
    ]
    assert readers == []
