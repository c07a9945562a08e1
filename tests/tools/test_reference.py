"""docs/reference/tools.md has every tool, argument and code, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from apps.tools import catalogue
from apps.tools.errors import Code
from apps.tools.workflow_db.guard import READ_PRAGMAS

PAGE = (Path(settings.BASE_DIR) / "docs" / "reference" / "tools.md").read_text()


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_tool_has_its_section_and_every_argument_its_mention():
    for name in catalogue.names():
        tool = catalogue.find(name)
        assert tool is not None
        section = sections()[name]
        assert [argument for argument in tool.schema["properties"] if argument not in section] == []


def test_no_section_names_a_tool_that_there_is_not():
    assert [title for title in sections() if "_" in title and not catalogue.known(title)] == []


def test_every_code_is_explained():
    assert [code.value for code in Code if f"`{code.value}`" not in sections()["Codes"]] == []


def test_every_pragma_that_is_offered_is_listed():
    assert [name for name in READ_PRAGMAS if f"`{name}`" not in sections()["query_workflow_db"]] == []


def test_no_tool_takes_a_path():
    """A workflow has one database, and its tools have no way to name another."""
    named = {argument for name in catalogue.names() for argument in catalogue.find(name).schema["properties"]}
    assert not {argument for argument in named if "path" in argument or "file" in argument}
