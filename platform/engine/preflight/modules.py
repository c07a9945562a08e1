"""Which file of a code tree an import means: the step's own folder first, then the root of the tree."""

from __future__ import annotations

from collections.abc import Sequence

from engine.digests import Tree

_ENDINGS = (".py", ".pyc", ".so")


class Modules:
    """The modules of a tree as one step sees them. Names of files only: nothing is opened."""

    def __init__(self, tree: Tree, step_id: str) -> None:
        self._files = tree.files
        self._folders = {folder for name in tree.files for folder in _folders(name)}
        self._roots = (f"{step_id}/", "")
        self._stems: dict[str, str] = {}
        for name in tree.files:
            if name.endswith(_ENDINGS):
                folder, _, file = name.rpartition("/")
                stem = f"{folder}/{file.partition('.')[0]}" if folder else file.partition(".")[0]
                if stem not in self._stems or name.endswith(".py"):
                    self._stems[stem] = name

    def has(self, top: str) -> bool:
        """Whether the tree has this top-level module, package or folder."""
        return self._root_of(top) is not None

    def absolute(self, file: str, module: str, level: int) -> str:
        """The full name of what `file` imports relatively."""
        if not level:
            return module
        root = self._roots[0] if file.startswith(self._roots[0]) else ""
        package = file.removeprefix(root).split("/")[:-1]
        package = package[: len(package) - (level - 1)]
        return ".".join((*package, module) if module else package)

    def find(self, module: str, names: Sequence[str]) -> tuple[list[str], str]:
        """The files that importing `module` and `names` from it runs, and the first part that is not there."""
        root = self._root_of(module.partition(".")[0])
        if root is None:
            return [], module
        found: list[str] = []
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            path = root + "/".join(parts[:end])
            if path in self._folders:
                found += [init] if (init := f"{path}/__init__.py") in self._files else []
            elif path in self._stems:
                if end < len(parts):
                    return found, ".".join(parts[: end + 1])
                return [*found, *self._source(self._stems[path])], ""
            else:
                return found, ".".join(parts[:end])
        return self._from_package(root + "/".join(parts), module, names, found)

    def hint(self, module: str) -> str:
        """Where a module of that name does lie in the tree, as it would be imported; "" when nowhere."""
        last = module.rpartition(".")[2]
        for stem in sorted(self._stems):
            folder, _, name = stem.rpartition("/")
            if name == last and folder and all(part.isidentifier() for part in stem.split("/")):
                return stem.replace("/", ".")
        return ""

    def _from_package(self, path: str, module: str, names: Sequence[str], found: list[str]) -> tuple[list[str], str]:
        plain = f"{path}/__init__.py" not in self._files
        for name in names:
            inner = f"{path}/{name}"
            if inner in self._stems:
                found += self._source(self._stems[inner])
            elif inner in self._folders:
                found += [init] if (init := f"{inner}/__init__.py") in self._files else []
            elif plain and name != "*":
                return found, f"{module}.{name}"
        return found, ""

    def _root_of(self, top: str) -> str | None:
        return next((root for root in self._roots if root + top in self._stems or root + top in self._folders), None)

    def _source(self, name: str) -> list[str]:
        return [name] if name.endswith(".py") else []


def _folders(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
