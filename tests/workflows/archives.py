"""Zips as a careful and as a hostile sender makes them."""

from __future__ import annotations

import io
import json
import stat
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

from tests.factories import document

Entry = tuple[str, bytes, int]


def zipped(
    files: Mapping[str, str | bytes] | None = None,
    *,
    raw: Mapping[str, Any] | None = None,
    odd: Sequence[Entry] = (),
    compression: int = zipfile.ZIP_DEFLATED,
) -> bytes:
    """A zip with workflow.json and `files`; `odd` are entries with a Unix mode of their own."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        archive.writestr("workflow.json", json.dumps(raw if raw is not None else document()))
        for name, data in (files if files is not None else {"code/hello/main.py": "print(1)\n"}).items():
            archive.writestr(name, data)
        for name, data, mode in odd:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data)
    return out.getvalue()


def overlapping() -> bytes:
    """Two entries of which the second lies, header and all, inside the data of the first: each unpacks on its own."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("code/hello/inner.py", "x" * 1000)
        info = archive.infolist()[0]
        inside = inner.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("workflow.json", json.dumps(document()))
        archive.writestr("code/hello/main.py", inside)
        outer = archive.getinfo("code/hello/main.py")
        info.header_offset = outer.header_offset + 30 + len(outer.filename)
        archive.filelist.append(info)
    return out.getvalue()


LINK = stat.S_IFLNK | 0o777
DEVICE = stat.S_IFCHR | 0o600
PIPE = stat.S_IFIFO | 0o600
SET_UID = stat.S_IFREG | 0o4755
