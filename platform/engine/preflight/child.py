"""Reads source text and says what is in it. Runs in a process of its own, as the uid of steps, with limits.

Its text is handed to the interpreter that will run the step (`python -I -S -c`), so it imports nothing of ours. It
never imports or runs anything of what it reads.
"""

from __future__ import annotations

import ast
import json
import re
import signal
import sys
import warnings
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

MEMORY = 1024 * 1024 * 1024
CPU_SECONDS = 20
EXTRA_SECONDS = 1.0
"""Of processor time, and twice that on the clock: for all files together that were not asked for by name."""
MOST_TEXT = 64 * 1024
MOST_ADVICE = 200
UNEXPANDED = re.compile(r"\$\{(?:VAR|SECRET)_[A-Z0-9_]+\}")
REQUIRED = re.compile(r"(?:VAR|SECRET)_[A-Z][A-Z0-9_]*\Z")
BASH = re.compile(
    r"\[\[\s|<\(|<<<|&>|\$\{\w{1,99}(?:\^\^|,,|\[)|\bfunction[ \t]{1,9}\w{1,99}\s{0,9}\{|\bdeclare[ \t]{1,9}-"
    r"|\bpipefail\b|^[ \t]{0,99}source\s",  # every repeat is bounded: the text is somebody's
    re.M,
)
FINDERS = {"sys.path", "sys.modules", "sys.meta_path", "sys.path_hooks"}
FINDER_NAMES = {"path", "modules", "meta_path", "path_hooks", "addsitedir"}
ENDS = {"exit", "_exit", "refuse", "concern", "abort", "fail"}
Found = list[Any]


def main() -> None:
    """Files from the standard input, a line of JSON for each to the output as soon as it was read.

    The input is the number of files that are needed, then `<bytes> <name>` and the bytes of each. Those beyond that
    number are read as far as their own small budget goes; then the kernel ends this process.
    """
    limit()
    warnings.simplefilter("ignore")
    say({"all_standard": sorted(sys.stdlib_module_names)})
    stream = sys.stdin.buffer
    needed = int(stream.readline())
    while header := stream.readline():
        if needed == 0:
            signal.setitimer(signal.ITIMER_PROF, EXTRA_SECONDS)
            signal.setitimer(signal.ITIMER_REAL, 2 * EXTRA_SECONDS)
        needed -= 1
        size, _, name = header.decode("utf-8", "surrogateescape").rstrip("\n").partition(" ")
        summary = summarise(stream.read(int(size)))
        tops = sorted({found[1].split(".")[0] for found in summary["imports"] if not found[2]})
        say({"name": name, **summary, "standard": [top for top in tops if is_standard(top)]})


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def limit() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))


@cache
def is_standard(name: str) -> bool:
    """Whether this interpreter has the module itself; a plain look at its folders, nothing is executed."""
    if name in sys.builtin_module_names:
        return True
    try:
        return PathFinder.find_spec(name, sys.path) is not None
    except (ImportError, ValueError):
        return False


def summarise(source: bytes) -> dict[str, Any]:
    """What is in one file; `error` when it is no Python that this interpreter takes."""
    empty: dict[str, Any] = {"error": None, "imports": [], "reads": [], "advice": [], "docstring": False}
    empty["paths"] = 0
    try:
        tree = ast.parse(source)
        compile(tree, "code", "exec", dont_inherit=True)  # a grammar takes more than a compiler does
        reader = Reader()
        reader.block(tree.body)
        advice = Advice()
        advice.visit(tree)
    except SyntaxError as error:
        return {**empty, "error": [error.lineno or 0, error.msg]}
    except (RecursionError, MemoryError):
        return {**empty, "error": [0, "it is nested too deep to be read"]}
    except ValueError as error:
        return {**empty, "error": [0, str(error)]}
    return {
        "error": None,
        "imports": reader.imports,
        "reads": reader.reads,
        "advice": advice.found[:MOST_ADVICE],
        "paths": advice.paths,
        "docstring": ast.get_docstring(tree) is not None,
    }


class Reader:
    """What a module does in any case when it is run: not in functions, under `if`, in `try`, in loops."""

    def __init__(self) -> None:
        self.imports: Found = []
        self.reads: Found = []
        self.environ = {"os.environ"}

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            self.imports += [[node.lineno, alias.name, 0, []] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            self.imported_from(node)
        elif isinstance(node, ast.If) and is_main_guard(node.test):
            self.guarded(node.body)
        elif not isinstance(node, ast.Try) and not is_suppressed(node):
            self.parts(node)  # of an `if` or a loop the condition, of a function its defaults: no body is among them
            if isinstance(node, ast.With | ast.ClassDef):
                self.block(node.body)

    def imported_from(self, node: ast.ImportFrom) -> None:
        self.imports.append([node.lineno, node.module or "", node.level, [alias.name for alias in node.names]])
        if node.module == "os" and not node.level:
            self.environ |= {alias.asname or alias.name for alias in node.names if alias.name == "environ"}

    def guarded(self, body: list[ast.stmt]) -> None:
        """Under `if __name__ == "__main__"`: run for an entry point, but imports under an `if` count as optional."""
        kept = list(self.imports)
        self.block(body)
        self.imports = kept

    def parts(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self.expression(child)
            elif isinstance(child, ast.withitem | ast.keyword | ast.arguments):
                self.parts(child)

    def expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            return
        if isinstance(node, ast.BoolOp):
            self.expression(node.values[0])
            return
        if isinstance(node, ast.IfExp):
            self.expression(node.test)
            return
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and dotted(node.value) in self.environ:
            key = node.slice
            if isinstance(key, ast.Constant) and isinstance(key.value, str) and REQUIRED.match(key.value):
                self.reads.append([node.lineno, key.value])
        self.parts(node)


class Advice(ast.NodeVisitor):
    """What would work and is still wrong: retries and swallowed errors around tools, text that nothing expands."""

    def __init__(self) -> None:
        self.found: Found = []
        self.loops = 0
        self.tools: set[str] = set()
        self.paths = 0  # the line where it first names what decides where modules are found
        self.finders = set(FINDERS)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name == "sys" and alias.asname:
                self.finders |= {f"{alias.asname}.{name.partition('.')[2]}" for name in FINDERS}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in FINDER_NAMES and (node.attr == "addsitedir" or dotted(node) in self.finders):
            self.paths = min(self.paths or node.lineno, node.lineno)
        self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.module in {"sys", "site"} and any(alias.name in FINDER_NAMES for alias in node.names):
            self.paths = min(self.paths or node.lineno, node.lineno)
        if node.module == "pulse":
            self.tools |= {alias.asname or alias.name for alias in node.names if alias.name in {"call", "tools"}}

    def visit_For(self, node: ast.For) -> None:
        self.loop(node)

    def visit_While(self, node: ast.While) -> None:
        self.loop(node)

    def loop(self, node: ast.For | ast.While) -> None:
        self.loops += 1
        self.generic_visit(node)
        self.loops -= 1

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        loops, self.loops = self.loops, 0
        self.generic_visit(node)
        self.loops = loops

    def visit_Try(self, node: ast.Try) -> None:
        tool = next((name for part in node.body for name in map(self.tool, ast.walk(part)) if name), "")
        if tool:
            for handler in node.handlers:
                if not goes_on_failing(handler):
                    kind = "retry_loop" if self.loops else "tool_error_swallowed"
                    self.found.append([handler.lineno, kind, tool])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
            for child in ast.walk(part):
                if isinstance(child, ast.Constant) and isinstance(child.value, str):
                    match = UNEXPANDED.search(child.value[:MOST_TEXT])
                    if match:
                        self.found.append([child.lineno, "variable_unexpanded", match.group()])
        script = shell_script(node, self.tool(node))
        if script is not None:
            match = BASH.search(script[:MOST_TEXT])
            if match:
                self.found.append([node.lineno, "bash_under_sh", match.group().strip()])
        self.generic_visit(node)

    def tool(self, node: ast.AST) -> str:
        """The name of the tool that is called here, "" when none is."""
        if not isinstance(node, ast.Call):
            return ""
        name = dotted(node.func)
        if name == "pulse.call" or (name == "call" and "call" in self.tools):
            first = node.args[0] if node.args else None
            return str(first.value) if isinstance(first, ast.Constant) else "a tool"
        owner, _, tool = name.rpartition(".")
        return tool if owner == "pulse.tools" or (owner == "tools" and "tools" in self.tools) else ""


def goes_on_failing(handler: ast.ExceptHandler) -> bool:
    """Whether an error that is caught here still ends the step, or is told."""
    for part in handler.body:
        for child in ast.walk(part):
            if isinstance(child, ast.Raise):
                return True
            if isinstance(child, ast.Call) and dotted(child.func).rpartition(".")[2] in ENDS:
                return True
    return False


def shell_script(node: ast.Call, tool: str) -> str | None:
    """The text that a POSIX shell gets from this call."""
    name = dotted(node.func)
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    first = node.args[0] if node.args else None
    if tool == "run_command":
        shell, first = given.get("shell"), given.get("script")
        if isinstance(shell, ast.Constant) and shell.value == "bash":
            return None
    elif name.startswith("subprocess."):
        shell = given.get("shell")
        if not (isinstance(shell, ast.Constant) and shell.value is True) or "executable" in given:
            return None
    elif name not in {"os.system", "os.popen"}:
        return None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def is_suppressed(node: ast.stmt) -> bool:
    """Whether errors of its body are let go: `with contextlib.suppress(...)`, a `try` by another name."""
    return isinstance(node, ast.With | ast.AsyncWith) and any(
        isinstance(item.context_expr, ast.Call) and dotted(item.context_expr.func).rpartition(".")[2] == "suppress"
        for item in node.items
    )


def is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.comparators) == 1
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value == "__main__"
    )


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return ""


if __name__ == "__main__":
    main()
