"""How a step's Python starts: reads its frame, sets the import path, runs main.py, claims how it ended.

The interpreter is started with -I -S, so that not even `os` is loaded: what this module imports, every step pays for.
What `site` would have done is done here: the prefix, the builtins, and .pth files when the environment has any.
"""

from __future__ import annotations

import builtins
import posix
import sys
from _frozen_importlib_external import PathFinder, SourceFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any

_PIECE = 65536
_LONGEST = 4000
_TOO_LARGE = 27  # EFBIG: Python ignores SIGXFSZ, so that a file beyond its limit is an error


class Library:
    """Finds `pulse` before anything else does, and with its own compiled files, whatever the step did to its path."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "pulse" and not name.startswith("pulse."):
            return None
        spec = PathFinder.find_spec(name, [self._folder] if name == "pulse" else path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.__class__ = _Compiled
        return spec


class _Compiled(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        prefix, sys.pycache_prefix = sys.pycache_prefix, None
        try:
            code: CodeType | None = super().get_code(fullname)
        finally:
            sys.pycache_prefix = prefix
        return code


def run(frame_fd: int, claims_fd: int, folder: str) -> None:
    """Runs the step. Returns when its main.py came to its end; ends the process by SystemExit otherwise."""
    frame = _read(frame_fd)
    if not frame:
        raise SystemExit(0)  # the platform called it off before it began
    given: dict[str, list[str]] = {}
    for field in frame.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = field.partition("=")
        given.setdefault(key, []).append(value)
    main = given["main"][0]
    posix.set_inheritable(claims_fd, False)
    if posix.environ.pop(b"PWD", None) is not None:  # bubblewrap adds it to the names that were given
        posix.unsetenv(b"PWD")
    _prepare(given, folder)
    sys.argv = [main, *given.get("argv", [])]
    _claim(claims_fd, "running")
    try:
        _execute(main)
    except SystemExit as error:
        code = error.code
        if code == 2 and _is_usage_error(error.__traceback__):
            _claim(claims_fd, "usage")
        elif isinstance(code, int) and code & 255 > 128:  # else it could not be told from an end by a signal
            _claim(claims_fd, "exit", str(code & 255))
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the script's and is shown as such
        _claim_exception(claims_fd, error)
        error.__traceback__ = _without_boot(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        raise SystemExit(1) from None


def _read(descriptor: int) -> bytes:
    pieces = []
    while piece := posix.read(descriptor, _PIECE):
        pieces.append(piece)
    posix.close(descriptor)
    return b"".join(pieces)


def _prepare(given: dict[str, list[str]], folder: str) -> None:
    import _sitebuiltins

    builtins.exit = _sitebuiltins.Quitter("exit", "Ctrl-D (i.e. EOF)")
    builtins.quit = _sitebuiltins.Quitter("quit", "Ctrl-D (i.e. EOF)")
    builtins.help = _sitebuiltins._Helper()  # noqa: SLF001 - as `site` does it
    sys.prefix = sys.exec_prefix = given["prefix"][0]
    standard = [entry for entry in sys.path if entry != folder]
    sys.meta_path.insert(0, Library(folder))
    if "preload" in given:  # a file of the step or a dependency has the name of a standard module
        sys.path[:] = standard
        import pathlib  # noqa: F401

        from pulse import client, deliveries  # noqa: F401
    sys.path[:] = [*given["path"], *standard]
    if "pth" in given:
        import site

        site.addsitedir(given["pth"][0])
    sys.pycache_prefix = given["pycache"][0]  # a __pycache__ in the code tree is never read


def _execute(main: str) -> None:
    module = type(sys)("__main__")
    module.__file__ = main
    module.__builtins__ = builtins  # type: ignore[attr-defined]
    module.__loader__ = None
    sys.modules["__main__"] = module
    with open(main, "rb") as file:
        source = file.read()
    exec(compile(source, main, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - this is what a step is


def _is_usage_error(trace: TracebackType | None) -> bool:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals.get("__name__") == "argparse"


def _without_boot(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
        trace = trace.tb_next
    return trace


def _claim_exception(descriptor: int, error: BaseException) -> None:
    kind = type(error)
    bases = {f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__}
    traits = [
        trait
        for trait, base in (
            ("assertion", "builtins.AssertionError"),
            ("boundary", "pulse.errors.ToolBoundaryError"),
            ("memory", "builtins.MemoryError"),
        )
        if base in bases
    ]
    if isinstance(error, OSError) and vars(OSError)["errno"].__get__(error) == _TOO_LARGE:
        traits.append("disk")
    trace, file, line = error.__traceback__, "", 0
    while trace is not None:
        file, line, trace = trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_next
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        message = "(its text cannot be read)"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    _claim(descriptor, "exception", name, ",".join(traits), file, str(line), message[:_LONGEST])


def _claim(descriptor: int, *fields: str) -> None:
    data = "\0".join([field.replace("\0", "\u2400") for field in fields]).encode("utf-8", "replace")
    try:  # noqa: SIM105 - contextlib would have to be imported
        posix.write(descriptor, b"%d:%s," % (len(data), data))
    except OSError:
        pass  # whoever listened is gone, and the exit code says the rest
