"""What every test may use. The cast: `owner`, `editor`, `operator`, `viewer` of `team`, and an `outsider`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.left_out import pytest_collection_modifyitems, pytest_sessionfinish, pytest_terminal_summary

__all__ = ["data_root", "pytest_collection_modifyitems", "pytest_sessionfinish", "pytest_terminal_summary"]


@pytest.fixture
def data_root() -> Iterator[Path]:
    """A data folder below which the dropped runner uid can be let in (pytest's own folders are 0700)."""
    root = Path(tempfile.mkdtemp(prefix="pulse-data-"))
    os.chmod(root, 0o711)
    yield root
    shutil.rmtree(root, ignore_errors=True)
