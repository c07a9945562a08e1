"""Digests: of values, of the code tree. They are evidence of what was there, not a copy of it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import json_values
from engine.sandbox.errors import FileRefused, TooLarge
from engine.sandbox.files import Beneath, Entry
from engine.sandbox.takeover import Kept
from engine.sandbox.tree import Kind

LARGEST_READ = 64 * 1024 * 1024
"""Of all files of a code tree together. The smallest are read first; the others stand in the digest unread."""
_MOST_KEPT = 50_000
_PIECE = 1024 * 1024
_CACHED = "__pycache__"


@dataclass(frozen=True)
class Tree:
    """A code tree as it was read: each file with its digest. `odd` are links and whatever else is no plain file.

    `caches` are the compiled files that lie in it. No step reads them, so they are no part of the digest. `unread` are
    too large: in place of their content stand their size, times and inode. `entries` is the listing it was taken from.
    """

    digest: str
    files: Mapping[str, str]
    odd: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = field(default=(), repr=False, compare=False)

    def linked(self, folders: Collection[str]) -> str | None:
        """A file in one of these top-level folders that has another name as well; None when there is none."""
        if not folders:
            return None
        files = (entry for entry in self.entries if entry.kind is Kind.FILE and entry.links > 1)
        return next((file.relative for file in files if file.relative.partition("/")[0] in folders), None)


class Stopped(Exception):
    """There is no time left to read a tree to its end."""


def of_json(value: Any) -> str:
    """SHA-256 of the canonical JSON."""
    return hashlib.sha256(json_values.dump(value)).hexdigest()


def keyed(key: bytes, purpose: str, value: Any) -> str:
    """HMAC-SHA256 of the canonical JSON: tells nothing to who has not the key, and differs by purpose."""
    return hmac.new(key, purpose.encode() + b"\0" + json_values.dump(value), hashlib.sha256).hexdigest()


def never() -> bool:
    return False


def of_file(folder: Beneath | Kept, name: str, limit: int, stopped: Callable[[], bool] = never) -> str:
    """SHA-256 of a plain file below `folder`. TooLarge when it has, or gets while it is read, more than `limit`."""
    digest, left = hashlib.sha256(), limit
    with folder.open(name, limit) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            left -= len(piece)
            if left < 0:
                raise TooLarge(name, f"it grew beyond {limit} bytes while it was read.")
            if stopped():
                raise Stopped
    return digest.hexdigest()


def code_tree(code: Path, stopped: Callable[[], bool] = never) -> Tree:
    """The code tree as it is now. Files that did not change since they were last read are not read again.

    A tree in which nothing changed is told by the times and inodes of its files and folders, and not listed again. What
    was changed within the clock's own grain before it was listed is always listed again: its times could stay the same.
    Raises Stopped once `stopped` says so, which is asked after each file that is read.
    """
    with Beneath(code) as folder:
        known = _trees.get(code)
        if known is not None and known.settled and folder.unchanged(known.entries):
            return known.tree
        now = time.time_ns()
        own = folder.own()
        entries = folder.listing()
        newest = max(entry.changed_ns for entry in (own, *entries))
        tree = _read(folder, entries, stopped)
    _trees[code] = _Known((own, *entries), tree, now - newest > _GRAIN_NS)
    _trim(_trees, 256)
    return tree


@dataclass(frozen=True)
class _Known:
    """A tree as it was listed. `settled`: its last change lay well before that."""

    entries: tuple[Entry, ...]
    tree: Tree
    settled: bool


_GRAIN_NS = 2_000_000_000
_trees: OrderedDict[Path, _Known] = OrderedDict()
_files: OrderedDict[tuple[int, int, int, int], str] = OrderedDict()


def _read(folder: Beneath, entries: list[Entry], stopped: Callable[[], bool]) -> Tree:
    files: dict[str, str] = {}
    odd: list[str] = []
    caches: list[str] = []
    digest = hashlib.sha256()
    unread = _beyond(entries)
    for entry in entries:
        if _CACHED in entry.relative.split("/"):
            if entry.kind is not Kind.FOLDER:
                caches.append(entry.relative)
            continue
        if entry.kind is Kind.FOLDER:
            continue
        found = _unread(entry) if entry.relative in unread else _of_entry(folder, entry, stopped)
        if found is None:
            odd.append(entry.relative)
        else:
            files[entry.relative] = found
        digest.update(f"{entry.relative}\0{found or entry.kind}\0{entry.mode & 0o111:o}\0".encode("utf-8", "replace"))
    return Tree(digest.hexdigest(), files, tuple(odd), tuple(caches), tuple(sorted(unread)), tuple(entries))


def _beyond(entries: list[Entry]) -> frozenset[str]:
    """The files that there is no room for. By their sizes alone, so that it is the same whatever was read before."""
    files = [one for one in entries if one.kind is Kind.FILE and _CACHED not in one.relative.split("/")]
    if sum(one.size for one in files) <= LARGEST_READ:
        return frozenset()
    room = LARGEST_READ
    beyond: set[str] = set()
    for one in sorted(files, key=lambda one: (one.size, one.relative)):
        room -= one.size
        if room < 0:
            beyond.add(one.relative)
    return frozenset(beyond)


def _unread(entry: Entry) -> str:
    return f"not-read-{entry.size}-{entry.modified_ns}-{entry.changed_ns}-{entry.inode}"


def _of_entry(folder: Beneath, entry: Entry, stopped: Callable[[], bool]) -> str | None:
    if entry.kind is not Kind.FILE:
        return None
    key = (entry.inode, entry.size, entry.modified_ns, entry.changed_ns)
    if key not in _files:
        with contextlib.suppress(FileRefused, OSError):
            _files[key] = of_file(folder, entry.relative, entry.size, stopped)
        _trim(_files, _MOST_KEPT)
    return _files.get(key)


def _trim(cache: OrderedDict[Any, Any], most: int) -> None:
    while len(cache) > most:
        cache.popitem(last=False)
