"""A step is checked before it starts, by reading it; nothing of it is ever executed."""

from __future__ import annotations

import resource
import time
from typing import Any

import pytest

from engine.contract import ContractRefused
from engine.preflight import Finding, checks, reading
from engine.preflight.child import summarise
from tests.runner.stage import Stage, scripted

child = reading._CHILD
DOC = '"""A step."""\n'
SHARED = {"shared/__init__.py": "", "shared/utils.py": "def f(): ...\n"}


def findings(stage: Stage, code: str, step: dict[str, Any] | None = None, **keys: Any) -> list[Finding]:
    """All findings, in order: of a step that may start or of one that is refused."""
    stage.write({"work/main.py": DOC + code})
    try:
        return list(stage.resolve(scripted(**(step or {})), **keys).findings)
    except ContractRefused as refused:
        return list(refused.findings)


def failing(stage: Stage, code: str, step: dict[str, Any] | None = None, **keys: Any) -> list[tuple[str, int, str]]:
    found = [finding for finding in findings(stage, code, step, **keys) if not finding.advice]
    return [(finding.reason, finding.line, finding.name) for finding in found]


def advice(stage: Stage, code: str) -> list[tuple[str, int, str]]:
    return [(found.reason, found.line, found.name) for found in findings(stage, code) if found.advice]


def test_good_code_has_no_findings(stage: Stage) -> None:
    stage.write(SHARED)
    code = (
        "import json, os.path, pulse\nfrom shared.utils import f\nfrom shared import utils\nimport shared.utils as u\n"
    )
    assert findings(stage, code) == []


def test_without_an_entry_point_nothing_starts(stage: Stage) -> None:
    with pytest.raises(ContractRefused) as refused:
        stage.resolve()
    assert (refused.value.outcome, refused.value.reason) == ("preflight_failed", "entry_point_missing")


def test_a_syntax_error_says_file_and_line(stage: Stage) -> None:
    assert failing(stage, "x = (\n") == [("syntax", 2, "work/main.py")]
    stage.write({"shared/__init__.py": "", "shared/bad.py": "ok = 1\ndef (\n"})
    assert failing(stage, "from shared import bad\n") == [("syntax", 2, "shared/bad.py")]


def test_another_steps_unfinished_code_never_fails_it(stage: Stage) -> None:
    stage.write({"other/main.py": "def (\n", "other/helper.py": "import nope\n"})
    assert findings(stage, "print(1)\n") == []


def test_a_missing_module_names_it_and_what_to_do(stage: Stage) -> None:
    (finding,) = findings(stage, "import json\nimport nope.deep\n")
    assert finding.path.split("/") == ["code", "work", "main.py"]
    assert (finding.line, finding.name) == (3, "nope.deep")
    assert "requirements.txt" in finding.message


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    import nope\nexcept ImportError:\n    nope = None\n",
        "def f():\n    import nope\n",
        "import os\nif os.name == 'nt':\n    import nope\n",
        "class A:\n    def f(self):\n        from nope import x\n",
        "if __name__ == '__main__':\n    import nope\n",
    ],
)
def test_an_optional_import_never_fails(stage: Stage, code: str) -> None:
    assert failing(stage, code) == []


@pytest.mark.parametrize(
    "code",
    [
        "import contextlib\nwith contextlib.suppress(ImportError):\n    import nope\n",
        "from contextlib import suppress\nwith suppress(ImportError, OSError):\n    import nope\n",
    ],
)
def test_an_import_whose_error_is_suppressed_never_fails(stage: Stage, code: str) -> None:
    assert failing(stage, code) == []


@pytest.mark.parametrize(
    "before",
    [
        "import os, sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'vendor'))\n",
        "import sys, types\nsys.modules['nope'] = types.ModuleType('nope')\n",
        "import sys as system\nsystem.path += ['vendor']\n",
        "from sys import path\npath.append('vendor')\n",
        "import site\nsite.addsitedir('vendor')\n",
        "import shared.paths\n",
    ],
)
def test_an_import_after_the_code_changed_where_modules_are_found_is_only_doubted(stage: Stage, before: str) -> None:
    stage.write({"shared/__init__.py": "", "shared/paths.py": "import sys\nsys.path.append('vendor')\n"})
    assert failing(stage, before + "import nope\n") == []
    assert ("module_missing", 2 + before.count("\n"), "nope") in advice(stage, before + "import nope\n")


def test_an_import_before_that_still_fails(stage: Stage) -> None:
    assert failing(stage, "import sys\nimport nope\nsys.path.append('vendor')\n") == [("module_missing", 3, "nope")]


@pytest.mark.parametrize(
    "code", ["return 1\n", "from __future__ import nope\n", "await x\n", "for x in y:\n  def f(a, a): 1\n"]
)
def test_what_only_a_compiler_refuses_is_a_syntax_error_too(stage: Stage, code: str) -> None:
    assert [reason for reason, _, _ in failing(stage, code)] == ["syntax"]
    stage.write({"shared/__init__.py": "", "shared/bad.py": code})
    assert [(reason, name) for reason, _, name in failing(stage, "from shared import bad\n")] == [
        ("syntax", "shared/bad.py")
    ]


@pytest.mark.parametrize("text", ["\n" * 400_000, " " * 400_000, "function " * 40_000, "${" + "a" * 400_000])
def test_no_text_takes_long_to_be_searched_for_bash(text: str) -> None:
    source = f"import os\nos.system({text!r})\n"
    began = time.process_time()
    assert summarise(source.encode())["error"] is None
    assert time.process_time() - began < 2


def test_another_steps_file_takes_no_time_of_this_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keeps the reader busy: here its own text does, for as long as the processor time of the child lasts."""
    parse = "        tree = ast.parse(source)"
    busy = stage.data.root / "child.py"
    busy.write_text(child.read_text().replace(parse, f"        while b'BUSY' in source: pass\n{parse}"))
    monkeypatch.setattr(reading, "_CHILD", busy)
    monkeypatch.setattr(checks, "_readers", {})
    stage.write({"other/main.py": "BUSY = 1\n", "shared/__init__.py": "", "zzz/main.py": "BUSY = 2\n"})
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    assert findings(stage, "import shared\n") == []
    assert findings(stage, "import shared, json\n") == []
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 5


def test_imports_are_followed_through_the_tree(stage: Stage) -> None:
    stage.write({"shared/__init__.py": "from . import deep\n", "shared/deep.py": "import nope\n"})
    assert failing(stage, "import shared\n") == [("module_missing", 1, "nope")]


def test_a_name_that_a_package_may_define_is_not_doubted_and_a_missing_submodule_is(stage: Stage) -> None:
    stage.write({**SHARED, "plain/x.py": ""})
    assert failing(stage, "from shared import whatever\n") == []
    assert failing(stage, "import shared.whatever\n") == [("module_missing", 2, "shared.whatever")]
    assert failing(stage, "from plain import y\n") == [("module_missing", 2, "plain.y")]
    assert failing(stage, "from plain import x\n") == []


def test_a_helper_imported_by_a_wrong_path_is_hinted_at(stage: Stage) -> None:
    stage.write(SHARED)
    (finding,) = findings(stage, "import utils\n")
    assert "shared.utils" in finding.message


def test_a_relative_import_in_an_entry_point_cannot_work(stage: Stage) -> None:
    assert failing(stage, "from . import beside\n") == [("module_missing", 2, ".")]


def test_a_standard_module_that_this_interpreter_lacks_is_missing(stage: Stage) -> None:
    """A distribution may leave some out; the interpreter that will run the step decides, not a list."""
    stage.write({"work/main.py": DOC + "import asyncio, sqlite3, msilib\n"})
    with pytest.raises(ContractRefused) as refused:
        stage.resolve()
    assert [finding.name for finding in refused.value.findings] == ["msilib"]


def test_no_module_is_executed_by_the_check(stage: Stage) -> None:
    sentinel = stage.data.root / "sentinel"
    planted = f"open({str(sentinel)!r}, 'w').write('x')\n"
    stage.data.root.chmod(0o777)
    stage.write({"shared/__init__.py": planted, "shared/utils.py": planted, "sitecustomize.py": planted})
    assert failing(stage, planted + "import shared.utils\n") == []
    assert not sentinel.exists()


def test_nesting_that_breaks_a_parser_is_a_finding_of_that_file_only(stage: Stage) -> None:
    stage.write({"other/main.py": "x = " + "(" * 200_000, "third/main.py": "-" * 300_000 + "1"})
    assert findings(stage, "print(1)\n") == []
    assert [reason for reason, _, _ in failing(stage, "x = " + "[" * 5000 + "]" * 5000 + "\n")] == ["syntax"]


def test_a_file_that_ends_the_reading_process_fails_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever crashes the reader: here its own text does, when it comes to a certain word."""
    parse = "        tree = ast.parse(source)"
    crashing = stage.data.root / "child.py"
    crashing.write_text(child.read_text().replace(parse, f"        b'FATAL' in source and sys.exit(9)\n{parse}"))
    monkeypatch.setattr(reading, "_CHILD", crashing)
    monkeypatch.setattr(checks, "_readers", {})
    others = {f"other/m{n}.py": f"X = {n}\n" for n in range(9)}
    stage.write({**others, "shared/__init__.py": "", "shared/bad.py": "FATAL = 1\n"})
    assert findings(stage, "import shared\n") == []
    assert failing(stage, "import shared.bad\n") == [("syntax", 0, "shared/bad.py")]


def test_bytes_that_are_no_source_are_a_finding(stage: Stage) -> None:
    stage.write({"shared/__init__.py": b"\xff\xfe\x00bad"})
    assert [reason for reason, _, _ in failing(stage, "import shared\n")] == ["syntax"]


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("import os\nX = os.environ['VAR_A']\n", ["VAR_A"]),
        ("from os import environ\nX = f\"{environ['SECRET_A']}\"\n", ["SECRET_A"]),
        ("import os\nif __name__ == '__main__':\n    print(os.environ['VAR_A'])\n", ["VAR_A"]),
        ("import os\nif len(os.environ['VAR_A']) > 3:\n    print(os.environ['VAR_B'])\n", ["VAR_A"]),
        ("import os\nX = os.environ.get('VAR_A')\n", []),
        ("import os\ndef f():\n    return os.environ['VAR_A']\n", []),
        ("import os\nX = 1 if os.name else os.environ['VAR_A']\n", []),
        ("import os\nX = os.name or os.environ['VAR_A']\n", []),
        ("import os\nos.environ['VAR_A'] = '1'\n", []),
        ("import os\nX = os.environ['HOME']\n", []),
    ],
)
def test_what_an_entry_point_reads_in_any_case_is_required(stage: Stage, code: str, needed: list[str]) -> None:
    assert [name for reason, _, name in failing(stage, code) if reason == "configuration_missing"] == needed


def test_what_a_step_names_is_required_and_empty_is_missing(stage: Stage) -> None:
    step = {"requires": ["VAR_BASE_URL"]}
    assert [name for _, _, name in failing(stage, "pass\n", step)] == ["VAR_BASE_URL"]
    assert [name for _, _, name in failing(stage, "pass\n", step, group_values={"BASE_URL": ""})] == ["VAR_BASE_URL"]
    assert failing(stage, "pass\n", step, group_values={"BASE_URL": "x"}) == []


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (
            "from pulse import call\nwhile 1:\n  try:\n    call('read_file', path='x')\n  except OSError:\n    pass\n",
            ("retry_loop", 6, "read_file"),
        ),
        (
            "from pulse import tools\ntry:\n    tools.mutate_workflow_db(sql='x')\nexcept Exception:\n    print(1)\n",
            ("tool_error_swallowed", 5, "mutate_workflow_db"),
        ),
        ("import pulse\npulse.call('read_file', path='${VAR_ROOT}/x')\n", ("variable_unexpanded", 3, "${VAR_ROOT}")),
        ("import subprocess\nsubprocess.run('[[ -f x ]] && y', shell=True)\n", ("bash_under_sh", 3, "[[")),
    ],
)
def test_advice_is_given_and_stops_nothing(stage: Stage, code: str, wanted: tuple[str, int, str]) -> None:
    assert advice(stage, code) == [wanted]


@pytest.mark.parametrize(
    "code",
    [
        "import pulse\ntry:\n    pulse.call('read_file', path='x')\nexcept pulse.ToolError:\n    raise\n",
        "import pulse\ntry:\n    pulse.call('read_file', path='x')\nexcept pulse.ToolError:\n    pulse.refuse('no')\n",
        "import subprocess\nsubprocess.run('[ -f x ] && y', shell=True)\n",
        "import subprocess\nsubprocess.run(['bash', '-c', '[[ -f x ]]'])\n",
        "for n in range(3):\n    try:\n        print(n)\n    except OSError:\n        pass\n",
    ],
)
def test_code_that_is_fine_gets_no_advice(stage: Stage, code: str) -> None:
    assert advice(stage, code) == []


def test_what_lies_badly_in_the_tree_is_told(stage: Stage) -> None:
    stage.write({"json.py": "", "my helpers/x.py": "", "sitecustomize.py": "", "a.pth": "", "pulse.py": ""})
    (stage.workflow.code / "link.py").symlink_to("/etc/hostname")
    reasons = [reason for reason, _, _ in advice(stage, "print(1)\n")]
    assert sorted(reasons) == [
        "folder_not_importable",
        "never_run",
        "never_run",
        "not_plain",
        "shadows_pulse",
        "shadows_standard",
    ]


def test_an_entry_point_without_a_docstring_gets_advice(stage: Stage) -> None:
    stage.write({"work/main.py": "print(1)\n"})
    assert [finding.reason for finding in stage.resolve().findings] == ["docstring_missing"]


def test_a_file_beyond_the_cap_is_said_not_to_be_checked(stage: Stage) -> None:
    stage.write({"shared/__init__.py": "", "shared/data.py": "X = '" + "x" * 1_100_000 + "'\n"})
    assert [reason for reason, _, _ in advice(stage, "import shared.data\n")] == ["not_checked"]


def test_a_verdict_is_kept_until_the_tree_changes(stage: Stage) -> None:
    assert failing(stage, "import helper\n") == [("module_missing", 2, "helper")]
    before = len(checks._verdicts)
    assert failing(stage, "import helper\n") == [("module_missing", 2, "helper")]
    assert len(checks._verdicts) == before
    stage.write({"work/helper.py": ""})
    assert failing(stage, "import helper\n") == []
