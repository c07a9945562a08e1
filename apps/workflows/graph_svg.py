"""The plan as a picture: ranks from top to bottom, laid out here, drawn by templates/workflows/_graph.html."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from apps.accounts.errors import Refused
from apps.workflows import definition
from apps.workflows.models import PlanRevision
from engine import document

NODE_WIDTH = 196
NODE_HEIGHT = 46
GAP_X = 28
GAP_Y = 44
MARGIN = 10
PASSING_WIDTH = 24  # the room a line takes that passes a rank without stopping there
SWEEPS = 4
LETTERS = 26


@dataclass(frozen=True)
class Node:
    """One step, by its upper left corner."""

    step_id: str
    title: str
    kind: str
    x: int
    y: int
    width: int = NODE_WIDTH
    height: int = NODE_HEIGHT

    @property
    def edge_x(self) -> int:
        return self.x + 9

    @property
    def edge_y(self) -> int:
        return self.y + 10

    @property
    def text_x(self) -> int:
        return self.x + 20

    @property
    def title_y(self) -> int:
        return self.y + 20

    @property
    def kind_y(self) -> int:
        return self.y + 35


@dataclass(frozen=True)
class Edge:
    """One way on: an SVG path, and the route's name where there is a choice."""

    source: str
    target: str
    label: str
    path: str
    label_x: int
    label_y: int

    @property
    def pair(self) -> tuple[str, str]:
        return self.source, self.target


@dataclass(frozen=True)
class Picture:
    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


@dataclass
class _Grid:
    """Ranks while they are being sorted. A name is a step's id, or a (edge, rank) pair where a line only passes."""

    ranks: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    parents: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    children: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    chains: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    passing: set[str] = field(default_factory=set)


def of_revision(workflow_id: UUID, revision: int) -> Picture:
    """The picture of a plan as it was saved; empty for an old one that this release cannot read."""
    try:
        return draw(definition.plan_at(workflow_id, revision))
    except (Refused, PlanRevision.DoesNotExist):
        return Picture(0, 0, (), ())


def draw(plan: document.Plan) -> Picture:
    names = [step.id for step in plan.steps]
    ways = _ways(plan)
    rank = _ranks(names, ways)
    grid = _grid(names, ways, rank)
    _untangle(grid)
    centres, width = _place(grid)
    nodes = tuple(
        Node(step.id, _cut(step.shown_title), step.kind, centres[step.id] - NODE_WIDTH // 2, _top(rank[step.id]))
        for step in plan.steps
    )
    edges = tuple(_edge(source, target, label, grid, centres, rank) for (source, target), label in ways.items())
    return Picture(width, _top(max(rank.values()) + 1) - GAP_Y + MARGIN, nodes, edges)


def _ways(plan: document.Plan) -> dict[tuple[str, str], str]:
    """(source, target) -> label, for the next step and for each route; `end` has no line."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in document.graph_of(plan).nodes:
        for edge in node.edges:
            if edge.target not in (node.id, document.END):
                found.setdefault((node.id, edge.target), []).append(edge.label)
    return {way: " / ".join(filter(None, labels)) for way, labels in found.items()}


def _ranks(names: list[str], ways: Mapping[tuple[str, str], str]) -> dict[str, int]:
    """Each step one rank below the lowest of its sources. A line backwards (no valid plan has one) lowers nothing."""
    order = {name: place for place, name in enumerate(names)}
    rank = dict.fromkeys(names, 0)
    for _ in names:
        moved = False
        for source, target in ways:
            if order[target] > order[source] and rank[target] <= rank[source]:
                rank[target] = rank[source] + 1
                moved = True
        if not moved:
            break
    return rank


def _grid(names: list[str], ways: Mapping[tuple[str, str], str], rank: Mapping[str, int]) -> _Grid:
    grid = _Grid()
    for name in names:
        grid.ranks[rank[name]].append(name)
    for source, target in ways:
        chain = [source]
        for between in range(rank[source] + 1, rank[target]):
            passing = f"{source}\n{target}\n{between}"
            grid.passing.add(passing)
            grid.ranks[between].append(passing)
            chain.append(passing)
        chain.append(target)
        grid.chains[source, target] = chain
        for upper, lower in pairwise(chain):
            grid.children[upper].append(lower)
            grid.parents[lower].append(upper)
    return grid


def _untangle(grid: _Grid) -> None:
    """Sort each rank by the middle of its neighbours, downwards and upwards in turn: fewer lines cross."""
    for sweep in range(SWEEPS):
        neighbours = grid.parents if sweep % 2 == 0 else grid.children
        for level in sorted(grid.ranks, reverse=bool(sweep % 2)):
            places = {name: place for names in grid.ranks.values() for place, name in enumerate(names)}
            row = grid.ranks[level]
            grid.ranks[level] = sorted(row, key=lambda name: _middle(neighbours[name], places, places[name]))


def _middle(neighbours: list[str], places: Mapping[str, int], otherwise: int) -> float:
    return sum(places[name] for name in neighbours) / len(neighbours) if neighbours else otherwise


def _place(grid: _Grid) -> tuple[dict[str, int], int]:
    """The middle of every name on its rank, each rank centred, and the width of the whole."""
    widths = {
        level: sum(PASSING_WIDTH if name in grid.passing else NODE_WIDTH for name in row) + GAP_X * (len(row) - 1)
        for level, row in grid.ranks.items()
    }
    widest = max(widths.values(), default=0)
    centres: dict[str, int] = {}
    for level, row in grid.ranks.items():
        x = MARGIN + (widest - widths[level]) // 2
        for name in row:
            room = PASSING_WIDTH if name in grid.passing else NODE_WIDTH
            centres[name] = x + room // 2
            x += room + GAP_X
    return centres, widest + 2 * MARGIN


def _edge(
    source: str, target: str, label: str, grid: _Grid, centres: Mapping[str, int], rank: Mapping[str, int]
) -> Edge:
    chain = grid.chains[source, target]
    x, y = centres[source], _top(rank[source]) + NODE_HEIGHT
    parts = [f"M{x} {y}"]
    label_x, label_y = x, y
    for step, name in enumerate(chain[1:], start=1):
        below = _top(rank[source] + step) if len(chain) > 2 else _top(rank[target])
        to_x, bend = centres[name], (below - y) // 2
        parts.append(f"C{x} {y + bend} {to_x} {below - bend} {to_x} {below}")
        if step == 1:
            label_x, label_y = (x + to_x) // 2, y + bend
        x, y = to_x, below
        if name in grid.passing:
            y += NODE_HEIGHT
            parts.append(f"L{x} {y}")
    return Edge(source, target, _cut(label), " ".join(parts), label_x, label_y)


def _top(rank: int) -> int:
    return MARGIN + rank * (NODE_HEIGHT + GAP_Y)


def _cut(text: str) -> str:
    return text if len(text) <= LETTERS else text[: LETTERS - 1] + "…"
