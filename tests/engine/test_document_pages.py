"""The reference pages say what the engine does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine import document, outcomes
from engine.document import release
from engine.states import RUN_MOVES, STEP_MOVES

PAGES = Path(__file__).parents[2] / "docs" / "reference"
ENGINE = Path(__file__).parents[2] / "platform" / "engine"
WORD = re.compile(r"`([a-z_]+)`")


def rows(page: str, heading: str) -> dict[str, list[str]]:
    """The cells of a table below a heading, by the first word of its first cell."""
    section = (PAGES / page).read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {WORD.findall(cells[0])[0]: cells[1:] for cells in lines}


@pytest.mark.parametrize(("heading", "moves"), [("A run", RUN_MOVES), ("A step of a run", STEP_MOVES)])
def test_the_tables_of_moves_are_the_ones_in_force(heading: str, moves: dict[str, frozenset[str]]):
    said = {state: set(WORD.findall(" ".join(cells))) for state, cells in rows("states.md", heading).items()}

    assert said == {str(state): set(map(str, targets)) for state, targets in moves.items()}


def test_the_table_of_outcomes_is_the_one_in_force():
    assert rows("states.md", "Outcomes of an attempt") == {
        str(outcome): [
            str(outcomes.REPAIRABLE[outcome]),
            "yes" if outcome in outcomes.COUNTED else "no",
            "yes" if outcome in outcomes.RETRIED else "no",
        ]
        for outcome in outcomes.Outcome
    }


@pytest.mark.parametrize(("heading", "model"), [("The document", ""), ("A step", "ScriptedStep")])
def test_every_key_has_its_row(heading: str, model: str):
    schema = document.json_schema()
    keys = set((schema["$defs"][model] if model else schema)["properties"])
    section = (PAGES / "workflow-document.md").read_text().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    said = {
        word for line in section.splitlines() if line.startswith("| `") for word in WORD.findall(line.split(" | ")[0])
    }

    assert said == keys


def test_the_page_names_the_tools_of_this_release():
    (tools,) = (cells for key, cells in rows("workflow-document.md", "A step").items() if key == "tools")

    assert set(WORD.findall(tools[0])) == release.TOOLS


def test_every_code_of_a_refusal_is_on_the_page():
    sources = [*ENGINE.glob("document/*.py"), *ENGINE.glob("validation/*.py"), ENGINE / "graph.py"]
    text = "\n".join(path.read_text() for path in [*sources, ENGINE / "parameters.py"])
    used = set(re.findall(r'Problem\([^"]*?(?:f"[^"]*",\s*)?"([a-z_]+)",', text))
    page = (PAGES / "workflow-document.md").read_text()

    assert len(used) > 20
    only_of_values = {"unknown_parameter", "missing_parameter", "too_large", "secret_value"}
    assert {code for code in used - only_of_values if f"`{code}`" not in page} == set()
