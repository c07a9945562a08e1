"""A workflow that arrives as a folder or a zip: read with suspicion into a staging folder (BEHAVIOUR 15).

Sizes are counted while bytes are read, never taken from a header. Links, devices, hard links, set-uid files, absolute
names, `..` and duplicate names are refused. What a workflow has no use for is dropped and named in the report.
"""

from __future__ import annotations

import io
import os
import stat
import unicodedata
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from apps.workflows.errors import ImportRefused

MAX_FILES = 5000
MAX_ENTRIES = 20_000
MAX_BYTES = 256 * 1024 * 1024
MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 32
MAX_NAME = 200
MAX_RATIO = 200  # of bytes out to bytes in, once there are more than a few
RATIO_FROM = 4 * 1024 * 1024
CHUNK = 256 * 1024

DOCUMENT = "workflow.json"
FOLDERS = ("code", "learnings", "knowledgebase", "assets")
DROPPED_FOLDERS = frozenset({".git", "__pycache__", "__MACOSX", ".venv", ".hg", ".svn"})
DROPPED_FILES = frozenset({"sitecustomize.py", "usercustomize.py", ".DS_Store"})
DROPPED_SUFFIXES = (".pth", ".pyc", ".pyo")


@dataclass
class Report:
    """What an import did, for the person who asked for it."""

    files: int = 0
    bytes: int = 0
    dropped: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    created: bool = False
    revision: int = 0
    plan_changed: bool = False
    code_before: str = ""
    code_after: str = ""
    requirements_changed: bool = False

    def tell_files(self, before: tuple[str, str], after: tuple[str, str]) -> None:
        """Each side: the digest of the code tree, and that of requirements.txt."""
        (self.code_before, old), (self.code_after, new) = before, after
        self.requirements_changed = not self.created and old != new

    @property
    def code_changed(self) -> bool:
        """Whether the code tree is another one now; what a new workflow brings is no change."""
        return not self.created and self.code_before != self.code_after

    @property
    def news(self) -> str:
        """What an update changed, in words."""
        said = {"code": self.code_changed, "plan": self.plan_changed}
        if self.requirements_changed:
            said["requirements"] = True
        return ", ".join(f"{name} {'changed' if changed else 'unchanged'}" for name, changed in said.items())


class _Entry(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def executable(self) -> bool: ...

    def open(self) -> IO[bytes]: ...


def stage(source: Path | bytes, staging: Path, report: Report) -> None:
    """Copy what belongs to a workflow from a folder, a zip file or a zip's bytes into the empty folder `staging`.

    Raises ImportRefused; the caller removes `staging` whatever happens.
    """
    opened = _folder(source, report) if isinstance(source, Path) and source.is_dir() else _zip(source, report)
    with opened as (entries, bytes_in):
        _copy(entries, staging, report, bytes_in)
    if not (staging / DOCUMENT).is_file():
        raise ImportRefused(f"There is no {DOCUMENT} in what was sent. Nothing was imported.", code="document_missing")


def _copy(entries: Iterator[_Entry], staging: Path, report: Report, bytes_in: int) -> None:
    seen: set[str] = set()
    for entry in entries:
        key = unicodedata.normalize("NFC", entry.name)
        if key in seen:
            raise ImportRefused(f"{entry.name!r} is there twice. Nothing was imported.", code="duplicate_name")
        seen.add(key)
        if not belongs(entry.name):
            report.dropped.append(entry.name)
            continue
        report.files += 1
        if report.files > MAX_FILES:
            raise ImportRefused(f"There are more than {MAX_FILES} files. Nothing was imported.", code="too_many_files")
        _copy_one(entry, staging / entry.name, report, bytes_in)


def _copy_one(entry: _Entry, target: Path, report: Report, bytes_in: int) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise ImportRefused(
            f"{entry.name!r} is both a file and a folder. Nothing was imported.", code="duplicate_name"
        ) from None
    size = 0
    with os.fdopen(descriptor, "wb") as out, entry.open() as incoming:
        while chunk := _read(incoming, entry.name):
            size += len(chunk)
            report.bytes += len(chunk)
            _refuse_too_much(entry.name, size, report.bytes, bytes_in)
            out.write(chunk)
        if entry.executable:
            os.fchmod(descriptor, 0o700)


def _read(incoming: IO[bytes], name: str) -> bytes:
    try:
        return incoming.read(CHUNK)
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, NotImplementedError) as wrong:
        raise ImportRefused(f"{name!r} cannot be read: {wrong}. Nothing was imported.", code="bad_archive") from None


def _refuse_too_much(name: str, size: int, total: int, bytes_in: int) -> None:
    if size > MAX_FILE_BYTES:
        raise ImportRefused(f"{name!r} is larger than {MAX_FILE_BYTES} bytes. Nothing was imported.", code="too_large")
    if total > MAX_BYTES:
        raise ImportRefused(f"All files together pass {MAX_BYTES} bytes. Nothing was imported.", code="too_large")
    if bytes_in and total > RATIO_FROM and total > bytes_in * MAX_RATIO:
        raise ImportRefused(
            f"The archive unpacks to more than {MAX_RATIO} times its size. Nothing was imported.", code="bomb"
        )


def belongs(name: str) -> bool:
    """Whether a workflow has a use for a file of this name; everything else is dropped with a report."""
    parts = PurePosixPath(name).parts
    if DROPPED_FOLDERS.intersection(parts) or parts[-1] in DROPPED_FILES or name.lower().endswith(DROPPED_SUFFIXES):
        return False
    if len(parts) == 1:
        return name in {DOCUMENT, "requirements.txt"}
    if parts[:2] == ("db", "migrations"):
        return len(parts) == 3 and name.endswith(".sql")
    return parts[0] in FOLDERS


def check_name(name: str) -> None:
    """Raise ImportRefused for a name that could lead anywhere but below the folder it is unpacked in."""
    if not name or name.startswith("/") or "\\" in name or (len(name) > 1 and name[1] == ":"):
        raise ImportRefused(f"The name {name!r} is absolute or empty. Nothing was imported.", code="absolute_path")
    parts = name.split("/")
    if ".." in parts:
        raise ImportRefused(f"The name {name!r} leaves its folder. Nothing was imported.", code="path_escapes")
    too_long = len(parts) > MAX_DEPTH or any(len(part.encode(errors="replace")) > MAX_NAME for part in parts)
    unclean = any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in name)
    if too_long or unclean or "" in parts or "." in parts:
        raise ImportRefused(
            f"The name {name!r} has control characters, empty parts, or is too long or deep. Nothing was imported.",
            code="bad_name",
        )


def _check_mode(name: str, mode: int) -> None:
    if mode & (stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX) and not stat.S_ISDIR(mode):
        raise ImportRefused(f"{name!r} has a set-uid, set-gid or sticky bit. Nothing was imported.", code="bad_mode")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ImportRefused(
            f"{name!r} is a link, a device or a pipe; only files and folders are taken. Nothing was imported.",
            code="not_regular",
        )


# --- A zip ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _ZipEntry:
    archive: zipfile.ZipFile
    info: zipfile.ZipInfo
    name: str
    executable: bool

    def open(self) -> IO[bytes]:
        try:
            return self.archive.open(self.info)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as wrong:
            raise ImportRefused(
                f"{self.name!r} cannot be read: {wrong}. Nothing was imported.", code="bad_archive"
            ) from None


@contextmanager
def _zip(source: Path | bytes, report: Report) -> Iterator[tuple[Iterator[_Entry], int]]:
    try:
        bytes_in = len(source) if isinstance(source, bytes) else source.stat().st_size
        archive = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
    except (zipfile.BadZipFile, OSError, ValueError) as wrong:
        raise ImportRefused(f"This is no zip archive: {wrong}. Nothing was imported.", code="bad_archive") from None
    with archive:
        yield _zip_entries(archive, report), bytes_in


def _zip_entries(archive: zipfile.ZipFile, report: Report) -> Iterator[_Entry]:
    infos = archive.infolist()
    if len(infos) > MAX_ENTRIES:
        raise ImportRefused(f"The archive has {len(infos)} entries. Nothing was imported.", code="too_many_files")
    _refuse_overlaps(infos)
    for info in infos:
        check_name(info.orig_filename.rstrip("/") if info.is_dir() else info.orig_filename)
        mode = info.external_attr >> 16
        if stat.S_IFMT(mode):
            _check_mode(info.filename, mode)
        if info.flag_bits & 0x1:
            raise ImportRefused(f"{info.filename!r} is encrypted. Nothing was imported.", code="bad_archive")
    wrapper = _wrapper([info.orig_filename for info in infos])
    for info in infos:
        if not info.is_dir():
            yield _ZipEntry(
                archive, info, info.orig_filename.removeprefix(wrapper), bool(info.external_attr >> 16 & 0o100)
            )


def _refuse_overlaps(infos: list[zipfile.ZipInfo]) -> None:
    """Entries that share their bytes unpack to far more than they weigh."""
    end = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise ImportRefused(f"{info.filename!r} overlaps another entry. Nothing was imported.", code="bomb")
        end = info.header_offset + 30 + info.compress_size


def _wrapper(names: list[str]) -> str:
    """The one folder that everything lies in, as archives of a repository have it; else nothing."""
    tops = {name.split("/")[0] for name in names} - DROPPED_FOLDERS
    if DOCUMENT in tops or len(tops) != 1:
        return ""
    first = f"{tops.pop()}/"
    return first if first + DOCUMENT in names else ""


# --- A folder -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class _FolderEntry:
    path: Path
    name: str
    executable: bool

    def open(self) -> IO[bytes]:
        try:
            return os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
        except OSError as wrong:
            raise ImportRefused(f"{self.name!r} cannot be read: {wrong.strerror}. Nothing was imported.") from None


@contextmanager
def _folder(source: Path | bytes, report: Report) -> Iterator[tuple[Iterator[_Entry], int]]:
    assert isinstance(source, Path)  # noqa: S101 - told from the bytes by the caller
    yield _folder_entries(source, report), 0


def _folder_entries(root: Path, report: Report) -> Iterator[_Entry]:
    seen = 0
    for folder, subfolders, files in os.walk(root, followlinks=False):
        here = Path(folder).relative_to(root)
        kept = []
        for name in sorted(subfolders):
            relative = (here / name).as_posix()
            if name in DROPPED_FOLDERS or (here == Path() and name not in {*FOLDERS, "db"}):
                report.dropped.append(relative + "/")
            else:
                check_name(relative)
                _check_mode(relative, (Path(folder) / name).lstat().st_mode)
                kept.append(name)
        subfolders[:] = kept
        for name in sorted(files):
            seen += 1
            if seen > MAX_ENTRIES:
                raise ImportRefused(
                    f"There are more than {MAX_ENTRIES} files. Nothing was imported.", code="too_many_files"
                )
            yield _folder_file(Path(folder) / name, (here / name).as_posix())


def _folder_file(path: Path, name: str) -> _FolderEntry:
    check_name(name)
    found = path.lstat()
    _check_mode(name, found.st_mode)
    if found.st_nlink > 1:
        raise ImportRefused(f"{name!r} is a hard link. Nothing was imported.", code="not_regular")
    return _FolderEntry(path, name, bool(found.st_mode & 0o100))
