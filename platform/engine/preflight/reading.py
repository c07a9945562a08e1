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


class Reader:
    """Reads for one interpreter. `standard` are the names that every release of it could have as its own modules."""

    def __init__(self, host: HostTools) -> None:
        self._host = host
        self._known: OrderedDict[str, Summary] = OrderedDict()
        self._resolvable: set[str] = set()
        self.standard: frozenset[str] = frozenset()

    def knows(self, sha256: str) -> bool:
        return sha256 in self._known

    def summary(self, sha256: str) -> Summary:
        return self._known[sha256]

    def has(self, module: str) -> bool:
        """Whether the interpreter has this top-level module itself; only asked of names that were read somewhere."""
        return module in self._resolvable

    def read(self, sources: Mapping[str, bytes]) -> None:
        """Reads texts by their digest. One that the child cannot get through is an error of its own, of no other."""
        wanted = {digest: source for digest, source in sources.items() if digest not in self._known}
        answer = self._ask(wanted) if wanted or not self.standard else None
        if answer is not None:
            self._keep(answer)
        elif len(wanted) == 1:
            self._known[next(iter(wanted))] = Summary(error=(0, "it could not be read within the limits"))
        elif wanted:  # halves, until what the child cannot get through stands alone
            digests = sorted(wanted)
            middle = len(digests) // 2
            for half in (digests[:middle], digests[middle:]):
                self.read({digest: wanted[digest] for digest in half})

    def _keep(self, answer: Mapping[str, Any]) -> None:
        self.standard = frozenset(answer["all_standard"])
        self._resolvable |= set(answer["standard"])
        for digest, found in answer["files"].items():
            error = found["error"]
            self._known[digest] = Summary(
                error=None if error is None else (int(error[0]), str(error[1])),
                imports=tuple(
                    Import(line, module, level, tuple(names)) for line, module, level, names in found["imports"]
                ),
                reads=tuple((line, name) for line, name in found["reads"]),
                advice=tuple(Advice(line, kind, name) for line, kind, name in found["advice"]),
                docstring=bool(found["docstring"]),
            )
        while len(self._known) > _MOST_KEPT:
            self._known.popitem(last=False)

    def _ask(self, sources: Mapping[str, bytes]) -> dict[str, Any] | None:
        runner = self._host.runner
        drop = {"user": runner.uid, "group": runner.gid, "extra_groups": []} if runner.dropped else {}
        sent = b"".join(b"%d %s\n%s" % (len(source), digest.encode(), source) for digest, source in sources.items())
        try:
            done = subprocess.run(
                [str(self._host.interpreter.path), "-I", "-S", "-B", "-c", _CHILD.read_text()],
                input=sent,
                capture_output=True,
                timeout=TIMEOUT_S,
                cwd="/",
                env={},
                check=True,
                **drop,  # type: ignore[call-overload]
            )
            answer: dict[str, Any] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, ValueError):
            return None
        return answer
