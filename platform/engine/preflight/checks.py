"""The checks on one step of a code tree. Nothing is executed; what was read once is known by its digest."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.dependencies import Environment
from engine.digests import Tree
from engine.logs.masking import SHORTEST
from engine.preflight import layout
from engine.preflight.finding import Finding
from engine.preflight.modules import Modules
from engine.preflight.reading import LARGEST, Advice, Import, Reader
from engine.sandbox.errors import FileRefused
from engine.sandbox.files import Beneath
from engine.sandbox.host import HostTools
from engine.sandbox.limits import Limits

if TYPE_CHECKING:
    from engine.document import Step

_MOST_AT_ONCE = 8 * 1024 * 1024
_CLOSURE_S = 60.0
_MOST_VERDICTS = 2000
_ADVICE = {
    "retry_loop": "a loop tries {name} again after an error. The library repeats what may be repeated: let it end the"
    " step.",
    "tool_error_swallowed": "an error of {name} is caught and does not end the step: a failed call looks like success."
    " Let it through, or handle the one code that is meant.",
    "variable_unexpanded": "{name} stands in an argument, and nothing expands it. Read os.environ instead.",
    "bash_under_sh": "`{name}` is bash, and this text is run by sh. Write it for sh, or call bash.",
}


@dataclass(frozen=True)
class Verdict:
    """What was found in a step's code. `needs` are the variables its entry point reads in any case, with the line."""

    findings: tuple[Finding, ...] = ()
    needs: tuple[tuple[int, str], ...] = ()
    shadows_standard: bool = False


def check(tree: Tree, code: Path, step_id: str, environment: Environment, host: HostTools) -> Verdict:
    """The verdict on one step, from memory when tree, interpreter and dependencies are the same."""
    key = (tree.digest, tree.odd, tree.caches, host.interpreter.sha256, environment.digest, step_id)
    found = _verdicts.get(key)
    if found is None:
        reader = _readers.setdefault(host.interpreter.sha256, Reader(host))
        found = _Check(tree, code, step_id, environment, reader).verdict()
        _verdicts[key] = found
        while len(_verdicts) > _MOST_VERDICTS:
            _verdicts.popitem(last=False)
    return found


def lowered(step: Step, limits: Limits) -> tuple[Finding, ...]:
    """What the step asks for above what the operator allows: it is told, and the operator's holds."""
    asked = ((name, getattr(step.limits, name)) for name in sorted(step.limits.model_fields_set))
    return tuple(
        Finding(
            "plan", 0, "limit_lowered", f"limits.{name}", f"limits.{name} is {value}; {most} holds here.", advice=True
        )
        for name, value in asked
        if isinstance(value, int) and value > (most := getattr(limits, name))
    )


def configuration(step: Step, verdict: Verdict, env: Mapping[str, str]) -> tuple[Finding, ...]:
    """What the step needs to be configured and is not: what it names, and what its entry point reads in any case."""
    where = f"code/{step.id}/main.py"
    optional = {f"SECRET_{used.name}" for used in step.secrets if used.optional}
    wanted = {f"SECRET_{used.name}": 0 for used in step.secrets if not used.optional}
    wanted |= dict.fromkeys(step.requires, 0)
    for line, name in verdict.needs:
        wanted.setdefault(name, line)
    missing = [
        Finding(where, line, "configuration_missing", name, _advise(name, name in env))
        for name, line in wanted.items()
        if not env.get(name) and name not in optional
    ]
    empty = [
        Finding(where, 0, "secret_empty", name, f"the optional secret {name} has no value.", advice=True)
        for name in sorted(optional)
        if not env.get(name)
    ]
    short = [
        Finding(where, 0, "secret_too_short", name, f"{name} has fewer than {SHORTEST} characters: logs show it.", True)
        for name in (f"SECRET_{used.name}" for used in step.secrets)
        if 0 < len(env.get(name, "").encode()) < SHORTEST
    ]
    return (*missing, *empty, *short)


_Key = tuple[str, tuple[str, ...], tuple[str, ...], str, str, str]
_verdicts: OrderedDict[_Key, Verdict] = OrderedDict()
_readers: dict[str, Reader] = {}


class _Check:
    def __init__(self, tree: Tree, code: Path, step_id: str, environment: Environment, reader: Reader) -> None:
        self._tree = tree
        self._code = code
        self._step_id = step_id
        self._environment = environment
        self._reader = reader
        self._modules = Modules(tree, step_id)
        self._findings: list[Finding] = []
        self._missing_at: list[tuple[str, Finding]] = []
        self._spent = False
        self._deadline = time.monotonic() + _CLOSURE_S

    def verdict(self) -> Verdict:
        entry = f"{self._step_id}/main.py"
        if entry not in self._tree.files:
            message = "there is no entry point. Write main.py, or let the builder author it."
            return Verdict((self._finding(entry, 0, "entry_point_missing", self._step_id, message),))
        self._read([entry], extra=self._others())
        needs: tuple[tuple[int, str], ...] = ()
        seen = {entry}
        level = [entry]
        while level:
            self._read(level)  # in one go, not one child for each
            found = [inner for name in level for inner in self._file(name, entry=name == entry)]
            level = [name for name in dict.fromkeys(found) if name not in seen]
            seen.update(level)
        self._findings += self._doubted(seen)
        if self._read([entry]):
            needs = self._reader.summary(self._tree.files[entry]).reads
        shadows = layout.shadows(self._tree, self._step_id, self._environment.names, self._reader.standard)
        self._findings += layout.findings(self._tree, self._step_id, self._reader.standard)
        return Verdict(tuple(self._findings), needs, shadows)

    def _others(self) -> list[str]:
        """All of the tree, so that its other steps are known too when their turn comes: as far as there is time."""
        names = [name for name in self._tree.files if name.endswith(".py")]
        return sorted(names, key=lambda name: (not name.startswith(f"{self._step_id}/"), name))

    def _read(self, names: Iterable[str], *, extra: Iterable[str] = ()) -> list[str]:
        """Makes files known, as far as there are room and time for them. Those of `names` that are known then."""
        wanted = {name: self._tree.files[name] for name in names}
        needed = self._sources(wanted)
        if not self._spent and (needed or not self._reader.standard):
            others = self._sources({name: self._tree.files[name] for name in extra})
            # Whoever has a text that cannot be read does not start; nor does one that takes all the time there is.
            self._spent = not self._reader.read(needed, others) or time.monotonic() > self._deadline
        return [name for name, digest in wanted.items() if self._reader.knows(digest)]

    def _sources(self, wanted: Mapping[str, str]) -> dict[str, bytes]:
        sources: dict[str, bytes] = {}
        room = _MOST_AT_ONCE
        with Beneath(self._code) as folder:
            for name, digest in wanted.items():
                if self._reader.knows(digest) or digest in sources or room <= 0:
                    continue
                try:
                    sources[digest] = folder.read(name, LARGEST)
                except FileRefused:
                    continue
                room -= len(sources[digest])
        return sources

    def _file(self, name: str, *, entry: bool) -> list[str]:
        """The findings in one file, and the files of the tree that it imports in any case."""
        if not self._read([name]):
            message = f"it is larger than {LARGEST} bytes or cannot be read, and was not checked."
            self._findings.append(self._finding(name, 0, "not_checked", name, message, advice=True))
            return []
        summary = self._reader.summary(self._tree.files[name])
        if summary.error is not None:
            line, text = summary.error
            self._findings.append(self._finding(name, line, "syntax", name, f"{text}. Mend it."))
            return []
        self._findings += [self._advice(name, advice) for advice in summary.advice]
        if entry and not summary.docstring:
            message = "it has no docstring. Say its purpose, configuration, inputs, outputs and side effects."
            self._findings.append(self._finding(name, 1, "docstring_missing", name, message, advice=True))
        found: list[str] = []
        for wanted in summary.imports:
            found += self._import(name, wanted, entry=entry)
        return found

    def _import(self, name: str, wanted: Import, *, entry: bool) -> list[str]:
        if wanted.level and entry:
            message = "an entry point is no part of a package, so a relative import fails. Import by the full name."
            self._findings.append(self._finding(name, wanted.line, "module_missing", "." * wanted.level, message))
            return []
        module = self._modules.absolute(name, wanted.module, wanted.level)
        top = module.partition(".")[0]
        if not wanted.level and top == "pulse":
            return []
        files, missing = self._modules.find(module, wanted.names)
        if missing and not self._known_elsewhere(top):
            self._missing_at.append((name, self._missing(name, wanted.line, missing)))
        return files

    def _doubted(self, seen: Iterable[str]) -> Iterator[Finding]:
        """What was not found: only advice where the code itself may have said before where modules are found."""
        known = {
            name: self._reader.summary(d).paths for name in seen if self._reader.knows(d := self._tree.files[name])
        }
        for name, finding in self._missing_at:
            own = known.get(name, 0)
            elsewhere = any(line for other, line in known.items() if other != name)
            yield replace(finding, advice=True) if elsewhere or 0 < own < finding.line else finding

    def _known_elsewhere(self, top: str) -> bool:
        return top in self._environment.names or self._environment.links or self._reader.has(top)

    def _missing(self, name: str, line: int, module: str) -> Finding:
        hint = self._modules.hint(module)
        cure = f"Did you mean {hint}?" if hint else "Add its package to requirements.txt, or mend the name."
        message = f"there is no module {module} for Python {self._environment.version}. {cure}"
        return self._finding(name, line, "module_missing", module, message)

    def _advice(self, name: str, advice: Advice) -> Finding:
        message = _ADVICE[advice.kind].format(name=advice.name)
        return self._finding(name, advice.line, advice.kind, advice.name, message, advice=True)

    def _finding(self, name: str, line: int, reason: str, what: str, message: str, *, advice: bool = False) -> Finding:
        return Finding(f"code/{name}", line, reason, what, message, advice)


def _advise(name: str, there: bool) -> str:
    what = "is empty" if there else "is missing"
    if name.startswith("SECRET_"):
        secret = name.removeprefix("SECRET_")
        return f"{name} is needed and {what}. Name {secret} in the step's `secrets` and give it a value."
    return f"{name} is needed and {what}. Give the variable {name.removeprefix('VAR_')} a value in this group."
