"""Has source text read by a child process with limits, each text once."""

from __future__ import annotations

import json
import subprocess
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.sandbox.host import HostTools

TIMEOUT_S = 60
LARGEST = 1024 * 1024
_MOST_KEPT = 20_000
_CHILD = Path(__file__).with_name("child.py")


@dataclass(frozen=True)
class Import:
    line: int
    module: str
    level: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Advice:
    line: int
    kind: str
    name: str


@dataclass(frozen=True)
class Summary:
    """What is in one source file, as far as it runs in any case. `error` is (line, text) when it is no Python."""

    error: tuple[int, str] | None = None
    imports: tuple[Import, ...] = ()
    reads: tuple[tuple[int, str], ...] = ()
    advice: tuple[Advice, ...] = ()
    docstring: bool = True
    paths: int = 0  # the line where it first names sys.path or sys.modules; 0 when it does not


class Reader:
    """Reads for one interpreter. `standard` are the names that every release of it could have as its own modules."""

    def __init__(self, host: HostTools) -> None:
        self._host = host
        self._known: OrderedDict[str, Summary] = OrderedDict()
        self._left_out: OrderedDict[str, None] = OrderedDict()
        self._resolvable: set[str] = set()
        self.standard: frozenset[str] = frozenset()

    def knows(self, sha256: str) -> bool:
        return sha256 in self._known

    def summary(self, sha256: str) -> Summary:
        return self._known[sha256]

    def has(self, module: str) -> bool:
        """Whether the interpreter has this top-level module itself; only asked of names that were read somewhere."""
        return module in self._resolvable

    def read(self, needed: Mapping[str, bytes], extra: Mapping[str, bytes] | None = None) -> bool:
        """Reads texts by their digest; False when the child could not get through one of those that are `needed`.

        That one is an error of its own, and those after it are not known then. What is `extra` is read when there is
        time for it, with one small budget for all of it, and is never an error.
        """
        wanted = {digest: source for digest, source in needed.items() if digest not in self._known}
        more = {
            digest: source
            for digest, source in (extra or {}).items()
            if digest not in self._known and digest not in self._left_out and digest not in wanted
        }
        if wanted or more or not self.standard:
            for answer in self._ask(wanted, more):
                self._keep(answer)
        self._left_out.update((digest, None) for digest in more if digest not in self._known)
        _trim(self._left_out)
        _trim(self._known)
        failed = next((digest for digest in wanted if digest not in self._known), None)
        if failed is not None:
            self._known[failed] = Summary(error=(0, "it could not be read within the limits"))
        return failed is None

    def _keep(self, answer: Mapping[str, Any]) -> None:
        if "all_standard" in answer:
            self.standard = frozenset(answer["all_standard"])
            return
        self._resolvable |= set(answer["standard"])
        error = answer["error"]
        self._known[answer["name"]] = Summary(
            error=None if error is None else (int(error[0]), str(error[1])),
            imports=tuple(
                Import(line, module, level, tuple(names)) for line, module, level, names in answer["imports"]
            ),
            reads=tuple((line, name) for line, name in answer["reads"]),
            advice=tuple(Advice(line, kind, name) for line, kind, name in answer["advice"]),
            docstring=bool(answer["docstring"]),
            paths=int(answer["paths"]),
        )

    def _ask(self, needed: Mapping[str, bytes], extra: Mapping[str, bytes]) -> list[dict[str, Any]]:
        """What the child said until it ended, by itself or at a limit."""
        texts = (*needed.items(), *extra.items())
        sent = b"".join(b"%d %s\n%s" % (len(source), digest.encode(), source) for digest, source in texts)
        try:
            said = subprocess.run(
                [str(self._host.interpreter.path), "-I", "-S", "-B", "-c", _CHILD.read_text()],
                input=b"%d\n%s" % (len(needed), sent),
                capture_output=True,
                timeout=TIMEOUT_S,
                cwd="/",
                env={},
                check=False,
                **self._host.runner.process,
            ).stdout
        except subprocess.TimeoutExpired as late:
            said = late.stdout or b""
        except OSError:
            said = b""
        return [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]


def _trim(cache: OrderedDict[str, Any]) -> None:
    while len(cache) > _MOST_KEPT:
        cache.popitem(last=False)
