"""What every test may use. The cast: `owner`, `editor`, `operator`, `viewer` of `team`, and an `outsider`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.left_out import pytest_collection_modifyitems, pytest_sessionfinish, pytest_terminal_summary

__all__ = [
    "data_root",
    "pytest_collection_modifyitems",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "quick_emptying",
]

KEPT = {"django_content_type", "auth_permission"}


@pytest.fixture
def data_root() -> Iterator[Path]:
    """A data folder below which the dropped runner uid can be let in (pytest's own folders are 0700)."""
    root = Path(tempfile.mkdtemp(prefix="pulse-data-"))
    os.chmod(root, 0o711)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def quick_emptying() -> Iterator[None]:
    """What a test has committed is deleted after it. Django would truncate every table, which takes PostgreSQL many
    times as long, and would make permissions and types of content anew, which stay here."""
    from django.core.management.commands import flush
    from django.db import connection

    def deletions(ops: Any, _style: Any, tables: list[str], **_: bool) -> list[str]:
        return [f"DELETE FROM {ops.quote_name(table)}" for table in tables if table not in KEPT]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(connection.ops), "sql_flush", deletions)
        patch.setattr(flush, "emit_post_migrate_signal", lambda *_: None)
        yield
