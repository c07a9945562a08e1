"""What a step left becomes the platform's own: new files in a new folder, which no descriptor of a step reaches.

A step can hand descriptors of its outputs, and of their folder, to another sandbox, by a socket in the code that both
may write, and that one may outlive it. So nothing of what was mounted is kept: its plain files are copied, the folder
with the copies takes the old one's place, and only what lies there is listed, validated, sent and given to later steps.
An attempt whose worker ends before it is done is `worker_lost`, and has no outputs that anybody reads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Self

from engine.places import AttemptPlaces
from engine.sandbox import tree
from engine.sandbox.errors import Absent, Escapes, FileRefused, NotRegular
from engine.sandbox.files import DEEPEST, MOST_ENTRIES, Beneath, Entry
from engine.sandbox.limits import MEGABYTE, Limits

FOLDER, FILE = 0o750, 0o640
_NEW, _OLD = "out.new", "out.old"
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_IN = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SUCH_COPY = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV}
_NO_BOUND = 1 << 62
_PIECE = 1024 * 1024


@dataclass(frozen=True)
class Odd:
    """A name that was not taken over, and why."""

    size: int
    refusal: FileRefused


class Kept:
    """What was taken over, by the names it had. `over`: there was more than the limits allow, and that is gone.

    `folder` is None when there was nothing: then no folder is kept either.
    """

    def __init__(self, folder: Beneath | None, odd: Mapping[str, Odd], *, over: bool) -> None:
        self._folder = folder
        self.odd = odd
        self.over = over

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.close()

    def listing(self) -> list[Entry]:
        return [] if self._folder is None else self._folder.listing()

    def open(self, name: str, limit: int) -> BinaryIO:
        return self._holder(name).open(name, limit)

    def read(self, name: str, limit: int) -> bytes:
        return self._holder(name).read(name, limit)

    def _holder(self, name: str) -> Beneath:
        for odd in self.odd:
            if name == odd or name.startswith(f"{odd}/"):  # or lies behind one: it was there all the same
                raise self.odd[odd].refusal
        if self._folder is None:
            raise Absent(name, "there is nothing of that name.")
        return self._folder


def take_over(attempt: AttemptPlaces, group: int | None, limits: Limits) -> Kept:
    """Puts copies in the place of the attempt's outputs. `group`: of those who may read them (None: stays as it is).

    OSError, of a full disk for one: nothing was taken over.
    """
    root = os.open(attempt.root, _IN)
    try:
        if _went(root, attempt.out.name):
            return Kept(None, {}, over=False)
        copying = _Copying(group, limits.output_mb * MEGABYTE, limits.output_files)
        _exchange(root, attempt.out.name, copying)
    finally:
        os.close(root)
    return Kept(Beneath(attempt.out), copying.odd, over=copying.over)


def bring(source: AttemptPlaces, target: AttemptPlaces, group: int | None) -> Kept:
    """Copies what was kept of one attempt into the folder of another. Safe to repeat. OSError: it could not be."""
    copying = _Copying(group, _NO_BOUND, _NO_BOUND)
    with _held(os.open(target.root, _IN)) as root:
        for left in (_NEW, target.out.name):
            _discard(root, left)
        with _held(copying.folder(root, _NEW)) as new:
            if source.out.exists():
                with _held(os.open(source.out, _FOLDER)) as old:
                    copying.below(old, new, "", DEEPEST)
        os.rename(_NEW, target.out.name, src_dir_fd=root, dst_dir_fd=root)
    return Kept(Beneath(target.out), copying.odd, over=False)


def _went(root: int, name: str) -> bool:
    """Removes the folder when it is empty: nothing can be made in it then by who holds a descriptor of it."""
    try:
        os.rmdir(name, dir_fd=root)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True


def _exchange(root: int, name: str, copying: _Copying) -> None:
    try:
        with _held(copying.folder(root, _NEW)) as new, _held(tree.opened(root, name)) as old:
            copying.below(old, new, "", DEEPEST)
        os.rename(name, _OLD, src_dir_fd=root, dst_dir_fd=root)
    except BaseException:
        _discard(root, _NEW)
        raise
    os.rename(_NEW, name, src_dir_fd=root, dst_dir_fd=root)
    _discard(root, _OLD)


def _discard(root: int, name: str) -> None:
    """Removes it, as far as nobody who holds a descriptor of it hinders that: the rest goes with the attempt."""
    with contextlib.suppress(OSError):
        tree.empty(tree.opened(root, name), MOST_ENTRIES)
        os.rmdir(name, dir_fd=root)


class _Copying:
    def __init__(self, group: int | None, most_bytes: int, most_entries: int) -> None:
        self._group = group
        self._bytes = most_bytes
        self._entries = most_entries
        self.odd: dict[str, Odd] = {}
        self.over = False

    def folder(self, parent: int, name: str) -> int:
        """A new folder, opened."""
        os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _FOLDER, dir_fd=parent)
        try:
            self._give(made, FOLDER)
        except BaseException:
            os.close(made)
            raise
        return made

    def below(self, old: int, new: int, prefix: str, levels: int) -> None:
        """Everything below the descriptor `old`, as far as the limits allow."""
        with os.scandir(old) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, self._entries + 1)]
        for name, is_folder in found:
            self._entries -= 1
            self.over = self.over or self._entries < 0
            if self.over:
                return
            where = f"{prefix}{name}"
            try:
                source = tree.opened(old, name) if is_folder else tree.opened(old, name, _READ)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._leave(where, "it is a link" if error.errno == errno.ELOOP else f"it is odd ({error.strerror})")
                continue
            with _held(source):
                if is_folder:
                    self._inner(source, new, where, levels)
                else:
                    self._file(source, new, where)

    def _inner(self, old: int, new: int, where: str, levels: int) -> None:
        if levels == 0:
            self.odd[where] = Odd(0, Escapes(where, f"it is more than {DEEPEST} folders deep; it was not kept."))
            return
        with _held(self.folder(new, os.path.basename(where))) as made:
            self.below(old, made, f"{where}/", levels - 1)

    def _file(self, old: int, new: int, where: str) -> None:
        status, name = os.fstat(old), os.path.basename(where)
        if not stat.S_ISREG(status.st_mode):
            self._leave(where, "it is not a plain file")
        elif status.st_nlink != 1:
            self._leave(where, "it has a second name (a hard link)", status.st_size)
        else:
            with _held(os.open(name, _WRITE, 0o600, dir_fd=new)) as made:
                self._data(old, made, status.st_size)
                self._give(made, FILE)
            if self.over:
                os.unlink(name, dir_fd=new)

    def _data(self, old: int, new: int, size: int) -> None:
        """What lies in the file, without its holes. Whoever still writes to it changes what is copied, or nothing."""
        at = 0
        while (piece := _data_from(old, at)) is not None and piece[0] < size:
            at, end = piece[0], min(piece[1], size)
            while at < end and (copied := _copy(old, new, at, min(end - at, self._bytes + 1))):
                at += copied
                self._bytes -= copied
                if self._bytes < 0:
                    self.over = True
                    return
            at = end
        os.ftruncate(new, size)

    def _leave(self, where: str, why: str, size: int = 0) -> None:
        self.odd[where] = Odd(size, NotRegular(where, f"{why}; it was not kept."))

    def _give(self, made: int, mode: int) -> None:
        if self._group is not None:
            os.fchown(made, -1, self._group)
        os.fchmod(made, mode)


def _data_from(file: int, at: int) -> tuple[int, int] | None:
    """Where the next data of the file begin and end; None when nothing but a hole is left."""
    try:
        start = os.lseek(file, at, os.SEEK_DATA)
        return start, os.lseek(file, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _copy(old: int, new: int, at: int, most: int) -> int:
    """Copies up to `most` bytes that lie at `at`; the disk may let both files share them. 0 at the file's end."""
    try:
        return os.copy_file_range(old, new, most, at, at)
    except OSError as error:
        if error.errno not in _NO_SUCH_COPY:
            raise
    return os.pwrite(new, os.pread(old, min(most, _PIECE), at), at)


@contextlib.contextmanager
def _held(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
