"""The stage on which real steps run in real sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.stage import Stage, set_up


@pytest.fixture
def stage(data_root: Path) -> Stage:
    return set_up(data_root)
