"""The order of a plan's steps: who follows whom, who comes before whom, and everything that is wrong with it.

Pure: it knows nodes and edges, not documents. `engine.document.flow` makes the nodes of a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from engine.problems import Problem

END = "end"
RESERVED_IDS = frozenset({"shared", "pulse", END})


@dataclass(frozen=True)
class Edge:
    """A way on. `path` is the field that says so; of an edge that follows from the list's order, the step itself.

    `label` is what the way is called where there is a choice.
    """

    target: str
    path: str
    label: str = ""


@dataclass(frozen=True)
class Need:
    """A file of an earlier step."""

    producer: str
    path: str
    optional: bool = False


@dataclass(frozen=True)
class Node:
    """A step. `writes` says whether it can leave files at all."""

    id: str
    path: str
    edges: tuple[Edge, ...]
    needs: tuple[Need, ...] = ()
    writes: bool = True


class Graph:
    """The first node starts. Of two nodes of one id the first counts; edges to nowhere lead nowhere.

    `ids_are_plain`: no id stands twice, none is `end`. Otherwise circles mean nothing and are not told.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        self.by_id: dict[str, Node] = {}
        for node in nodes:
            if node.id != END:
                self.by_id.setdefault(node.id, node)
        self.ids_are_plain = len(self.by_id) == len(self.nodes)
        self._predecessors: dict[str, set[str]] = {step_id: set() for step_id in self.by_id}
        for step_id in self.by_id:
            for target in self.successors(step_id):
                self._predecessors[target].add(step_id)
        self.start = nodes[0].id if nodes else END
        self.reachable = self.reachable_from(self.start)
        self.closing_edges = tuple(self._closing_edges())
        self._always_before = {} if self.closing_edges else self._dominators()

    def successors(self, step_id: str) -> tuple[str, ...]:
        """Steps that may come next; `end` is none."""
        node = self.by_id.get(step_id)
        targets = [edge.target for edge in node.edges if edge.target in self.by_id] if node else []
        return tuple(dict.fromkeys(targets))

    def reachable_from(self, step_id: str) -> frozenset[str]:
        """This step and all that may come after it. Empty for `end` and for what is no step."""
        return self._spread([step_id] if step_id in self.by_id else [], self.successors)

    def before(self, step_id: str) -> frozenset[str]:
        """All steps that may have run when this one starts."""
        return self._spread(self._predecessors.get(step_id, ()), self._predecessors.__getitem__)

    def always_before(self, step_id: str) -> frozenset[str]:
        """All steps that lie on every path to this one. Empty when the graph has a circle or never gets here."""
        return self._always_before.get(step_id, frozenset()) - {step_id}

    def problems(self, code_packages: Iterable[str] = ()) -> list[Problem]:
        """Everything wrong, in the order of the steps. `code_packages`: `top_level_packages` of the code tree."""
        packages = frozenset(code_packages)
        found: list[Problem] = []
        for node in self.nodes:
            found.extend(self._id_problems(node, packages))
            found.extend(self._edge_problems(node))
            found.extend(self._need_problems(node))
        return found

    @staticmethod
    def _spread(beginning: Iterable[str], onwards: Callable[[str], Iterable[str]]) -> frozenset[str]:
        found: set[str] = set()
        waiting = list(beginning)
        while waiting:
            here = waiting.pop()
            if here not in found:
                found.add(here)
                waiting.extend(onwards(here))
        return frozenset(found)

    def _id_problems(self, node: Node, packages: frozenset[str]) -> Iterator[Problem]:
        path = f"{node.path}.id"
        if node.id in RESERVED_IDS:
            yield Problem(path, "reserved_id", f"{node.id!r} means something else to Pulse. Choose another id.")
        elif self.by_id[node.id] is not node:
            yield Problem(path, "duplicate_id", f"Another step is called {node.id!r}. Give each step its own id.")
        elif node.id in packages:
            message = f"The code tree has a package {node.id!r} of its own. Rename the step or the package."
            yield Problem(path, "package_collision", message)
        elif node.id not in self.reachable:
            message = f"No way leads to {node.id!r}. Let a step or a route go on to it, or remove it."
            yield Problem(node.path, "unreachable", message)

    def _edge_problems(self, node: Node) -> Iterator[Problem]:
        for edge in node.edges:
            if edge.target != END and edge.target not in self.by_id:
                yield Problem(edge.path, "dangling_target", f"There is no step {edge.target!r} to go on to.")
            elif self.ids_are_plain and (node.id, edge) in self.closing_edges:
                message = f"Going on to {edge.target!r} makes a circle; a step runs once in a run."
                yield Problem(edge.path, "circle", message)

    def _need_problems(self, node: Node) -> Iterator[Problem]:
        earlier = self.before(node.id)
        for need in node.needs:
            problem = self._need_problem(node, need, earlier)
            if problem is not None:
                yield problem

    def _need_problem(self, node: Node, need: Need, earlier: frozenset[str]) -> Problem | None:
        producer = self.by_id.get(need.producer)
        if producer is None:
            return Problem(need.path, "dangling_dependency", f"There is no step {need.producer!r} to make this file.")
        if not producer.writes:
            message = f"{need.producer!r} decides and writes no files; its decision is kept in the run."
            return Problem(need.path, "producer_writes_nothing", message)
        if self.closing_edges or node.id not in self.reachable:
            return None  # before and after mean nothing yet
        if need.producer not in earlier:
            message = f"{need.producer!r} does not run before {node.id!r}. Dependencies point backwards only."
            return Problem(need.path, "not_earlier", message)
        if not need.optional and need.producer not in self.always_before(node.id):
            message = (
                f"{need.producer!r} is not on every path to {node.id!r}. "
                'Write it as {"path": "...", "optional": true}; its missing file is then an empty argument.'
            )
            return Problem(need.path, "not_on_every_path", message)
        return None

    def _closing_edges(self) -> Iterator[tuple[str, Edge]]:
        """Edges that lead back to a step on the way to them: without them there is no circle."""
        done: set[str] = set()
        for root in self.by_id:
            on_the_way: list[str] = []
            waiting: list[tuple[str, Iterator[Edge]]] = []
            self._enter(root, done, on_the_way, waiting)
            while waiting:
                here, edges = waiting[-1]
                edge = next(edges, None)
                if edge is None:
                    waiting.pop()
                    on_the_way.pop()
                elif edge.target in on_the_way:
                    yield here, edge
                else:
                    self._enter(edge.target, done, on_the_way, waiting)

    def _enter(
        self, step_id: str, done: set[str], on_the_way: list[str], waiting: list[tuple[str, Iterator[Edge]]]
    ) -> None:
        if step_id in self.by_id and step_id not in done:
            done.add(step_id)
            on_the_way.append(step_id)
            waiting.append((step_id, iter(self.by_id[step_id].edges)))

    def _dominators(self) -> dict[str, frozenset[str]]:
        comes_from = {step_id: self._predecessors[step_id] & self.reachable for step_id in self.reachable}
        found: dict[str, frozenset[str]] = {}
        for step_id in self._in_order(comes_from):
            ways = [found[source] for source in comes_from[step_id]]
            found[step_id] = frozenset({step_id}) | (frozenset.intersection(*ways) if ways else frozenset())
        return found

    def _in_order(self, comes_from: dict[str, set[str]]) -> Iterator[str]:
        """Each step after all that may come before it."""
        open_ways = {step_id: len(sources) for step_id, sources in comes_from.items()}
        ready = [step_id for step_id, count in open_ways.items() if count == 0]
        while ready:
            here = ready.pop()
            yield here
            for target in self.successors(here):
                open_ways[target] -= 1
                if open_ways[target] == 0:
                    ready.append(target)


def top_level_packages(files: Iterable[str]) -> frozenset[str]:
    """Names that the code tree's own top level imports under: `name.py`, or `name/__init__.py` without an entry point.

    files: paths relative to `code/`. A folder with a `main.py` is the folder of a step.
    """
    paths = {tuple(path.split("/")) for path in files}
    modules = {parts[0].removesuffix(".py") for parts in paths if len(parts) == 1 and parts[0].endswith(".py")}
    packages = {parts[0] for parts in paths if parts[1:] == ("__init__.py",) and (parts[0], "main.py") not in paths}
    return frozenset(modules | packages)
