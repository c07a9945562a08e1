"""One workflow on disk, shared by the tests of a module: launches are cheap, laying out need not be repeated."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.bench import Bench, lay_out


@pytest.fixture(scope="module")
def shared_bench() -> Iterator[Bench]:
    root = Path(tempfile.mkdtemp(prefix="pulse-sandbox-"))
    os.chmod(root, 0o711)
    yield lay_out(root)
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def bench(data_root: Path) -> Bench:
    """A layout of the test's own, for tests that change it."""
    return lay_out(data_root)
