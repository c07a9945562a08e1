"""The parts of a workflow document that other apps own: each such app has a `portable.py`, found at the first use.

It holds `SECTION` (the document's key, or the folder) and three functions. `prepare(workflow, sent)` does what takes
time or is another store's business with the files in the folder `sent`, before the platform's transaction and outside
of it: it holds when its block ends, and is taken back when the block raises. `load(workflow, document, by, prepared)`
writes its rows inside that transaction, of a document that was checked whole, with what the block gave;
`dump(workflow)` gives its part of an export, or None when it has none. No secret leaves by it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from django.apps import apps
from django.utils.module_loading import module_has_submodule
from pydantic import JsonValue

from apps.workflows.models import Workflow

if TYPE_CHECKING:
    from apps.accounts.models import User
    from engine.document import WorkflowDocument


class Section(Protocol):
    SECTION: str

    def prepare(self, workflow: Workflow, sent: Path, /) -> AbstractContextManager[object]: ...

    def load(self, workflow: Workflow, document: WorkflowDocument, by: User, prepared: object, /) -> None: ...

    def dump(self, workflow: Workflow, /) -> JsonValue: ...


@functools.cache
def sections() -> tuple[Section, ...]:
    """Every app's section, lowest app first."""
    return tuple(_found())


@contextmanager
def prepared(workflow: Workflow, sent: Path) -> Iterator[Mapping[str, object]]:
    """What every section prepares, by its name, in one block."""
    with ExitStack() as stack:
        yield {section.SECTION: stack.enter_context(section.prepare(workflow, sent)) for section in sections()}


def _found() -> Iterator[Section]:
    for config in apps.get_app_configs():
        above = config.name.startswith("apps.") and config.name != "apps.workflows"
        if above and config.module and module_has_submodule(config.module, "portable"):
            yield cast(Section, importlib.import_module(f"{config.name}.portable"))
