"""Names in a code tree that mislead: Python would run or prefer them, the platform does not."""

from __future__ import annotations

from collections.abc import Iterator

from engine.digests import Tree
from engine.preflight.finding import Finding

_MOST_NAMED = 20
STARTED_BY_SITE = {"sitecustomize.py", "usercustomize.py"}


def findings(tree: Tree, step_id: str, standard: frozenset[str]) -> Iterator[Finding]:
    """Advice on the tree's root and on the step's own folder."""
    for name in sorted(tree.files):
        folder, _, file = name.rpartition("/")
        if folder in {"", step_id} and (file in STARTED_BY_SITE or file.endswith(".pth")):
            yield _advice(
                name, "never_run", file, "Python runs such a file at its start; here nothing does. Remove it."
            )
    yield from _shadowing(tree, step_id, standard)
    if tree.caches:
        message = f"{len(tree.caches)} compiled files were saved with the code; they are never read. Remove them."
        yield _advice(tree.caches[0], "compiled_files", "__pycache__", message)
    for name in tree.odd:
        yield _advice(
            name, "not_plain", name, "it is a link or no plain file, and is not read. Put the file itself here."
        )
    for name in tree.unread[:_MOST_NAMED]:
        yield _advice(
            name, "not_read", name, "code is too large to be read: the digest has its size and times, not its content."
        )
    yield from _folders(tree)


def shadows(tree: Tree, step_id: str, packages: frozenset[str], standard: frozenset[str]) -> bool:
    """Whether the step's code or a dependency has a module that would be taken for a standard one."""
    return bool((packages | {what for _, what in _modules(tree, step_id)}) & standard)


def _shadowing(tree: Tree, step_id: str, standard: frozenset[str]) -> Iterator[Finding]:
    for name, what in sorted(_modules(tree, step_id)):
        if what == "pulse":
            yield _advice(name, "shadows_pulse", what, "`import pulse` always gives the platform's. Rename it.")
        elif what in standard:
            yield _advice(name, "shadows_standard", what, f"it has the name of the standard module {what}. Rename it.")


def _modules(tree: Tree, step_id: str) -> set[tuple[str, str]]:
    """The modules and packages that can be imported by one name, with the file each of them begins with."""
    found: set[tuple[str, str]] = set()
    for name in tree.files:
        inner = name.removeprefix(f"{step_id}/")
        parts = inner.split("/")
        if len(parts) == 1 and parts[0].endswith(".py"):
            found.add((name, parts[0].removesuffix(".py")))
        elif len(parts) == 2 and parts[1] == "__init__.py":
            found.add((name, parts[0]))
    return found


def _folders(tree: Tree) -> Iterator[Finding]:
    """A folder without an entry point is there to be imported from."""
    tops = {name.partition("/")[0] for name in tree.files if "/" in name}
    for top in sorted(tops):
        if not top.isidentifier() and f"{top}/main.py" not in tree.files:
            message = "nothing can be imported from a folder whose name is no Python name. Rename it."
            yield _advice(top, "folder_not_importable", top, message)


def _advice(name: str, reason: str, what: str, message: str) -> Finding:
    return Finding(f"code/{name}", 0, reason, what, message, advice=True)
