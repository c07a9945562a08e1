"""How a step's Python starts: its import path, and that nothing in the tree can stand in for the platform."""

from __future__ import annotations

import os
import py_compile
import re
from pathlib import Path

import pytest

from tests.runner.stage import Stage

pytestmark = pytest.mark.sandbox

PLANTED = "open('/pulse/run/out/sentinel', 'w').write(__name__)\n"


def test_the_import_path_is_step_then_tree_then_dependencies(stage: Stage) -> None:
    ran = stage.run("import sys\nprint(*sys.path[:3], sep='\\n')\nprint(sys.argv, __file__, __name__)\n")
    step, tree, dependencies, started = ran.log.splitlines()
    assert (step, tree) == ("/pulse/code/work", "/pulse/code")
    assert re.fullmatch(r"/pulse/deps/lib/python3\.\d+/site-packages", dependencies)
    assert started == f"['{step}/main.py'] {step}/main.py __main__"


def test_a_step_that_only_prints_pays_for_nothing_else(stage: Stage) -> None:
    ran = stage.run("import pulse, sys\nprint(*sorted(sys.modules))\n")
    assert {"json", "re", "typing", "os", "site", "socket", "pathlib", "enum"} & set(ran.log.split()) == set()


def test_modules_beside_the_entry_point_and_shared_ones_are_imported(stage: Stage) -> None:
    stage.write({"work/beside.py": "X = 1\n", "shared/__init__.py": "", "shared/utils.py": "Y = 2\n"})
    ran = stage.run("import beside\nfrom shared.utils import Y\nprint(beside.X, Y)\n")
    assert ran.log == "1 2\n", ran


def test_nothing_that_looks_like_a_start_file_is_run(stage: Stage) -> None:
    names = ("sitecustomize.py", "usercustomize.py", "x.pth", "pulse.py", "pulse/__init__.py")
    stage.write(
        {f"{folder}{name}": PLANTED for name in names for folder in ("", "work/") if name != "pulse.py" or folder}
    )
    ran = stage.run("import pulse\nprint(pulse.__file__)\n")
    assert ran.log == "/pulse/lib/site/pulse/__init__.py\n", ran
    assert not (ran.out / "sentinel").exists()
    assert {"never_run", "shadows_pulse"} <= {finding.reason for finding in ran.contract.findings}


def test_the_library_does_not_import_what_has_a_standard_modules_name(stage: Stage) -> None:
    stage.write({f"{folder}{name}.py": PLANTED for name in ("json", "pathlib", "_socket") for folder in ("work/", "")})
    code = "import pulse\nprint(pulse.params())\npulse.write_json('a.json', 1)\npulse.concern('x')\n"
    ran = stage.run(code)
    assert ran.ending.outcome == "succeeded", ran
    assert not (ran.out / "sentinel").exists()
    assert "shadows_standard" in {finding.reason for finding in ran.contract.findings}


def test_compiled_files_in_the_tree_are_never_read(stage: Stage, tmp_path: Path) -> None:
    """An unchecked .pyc would be run instead of the source beside it."""
    poisoned = tmp_path / "poisoned.py"
    poisoned.write_text("print('poisoned')\n")
    compiled = py_compile.compile(str(poisoned), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert compiled is not None
    stage.write(
        {"shared/x.py": "print('source')\n", "shared/__pycache__/x.cpython-311.pyc": Path(compiled).read_bytes()}
    )
    ran = stage.run("import shared.x\n")
    assert ran.log == "source\n"
    assert "compiled_files" in {finding.reason for finding in ran.contract.findings}


def test_programs_that_a_script_starts_find_the_same_modules(stage: Stage) -> None:
    stage.write({"shared/__init__.py": "", "shared/utils.py": "Y = 2\n"})
    code = (
        "import subprocess, sys\nsubprocess.run(['python3', '-c', 'import sys, pulse, shared.utils;"
        " print(pulse.__file__, shared.utils.Y, sys.prefix)'], check=True)\n"
    )
    assert stage.run(code).log == "/pulse/lib/site/pulse/__init__.py 2 /pulse/deps\n"


def test_processes_of_a_pool_work(stage: Stage) -> None:
    code = (
        "import multiprocessing\ndef double(n):\n    return 2 * n\nif __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn'):\n"
        "        with multiprocessing.get_context(method).Pool(2) as pool:\n"
        "            print(pool.map(double, [1, 2]))\n"
    )
    assert stage.run(code).log == "[2, 4]\n[2, 4]\n"


def test_what_site_gives_is_there(stage: Stage) -> None:
    ran = stage.run("import sys\nprint(sys.prefix, callable(help), callable(quit))\nexit()\n")
    assert ran.log == "/pulse/deps True True\n", ran
    assert ran.ending.outcome == "succeeded"


def test_handlers_at_exit_run_and_an_own_excepthook_is_called(stage: Stage) -> None:
    code = (
        "import atexit, sys\natexit.register(print, 'bye')\n"
        "sys.excepthook = lambda *a: print('mine', a[0].__name__)\n1/0\n"
    )
    ran = stage.run(code)
    assert ran.log == "mine ZeroDivisionError\nbye\n"
    assert ran.ending.claims["exception"]["class"] == "ZeroDivisionError"


def test_only_the_three_standard_descriptors_are_open(stage: Stage) -> None:
    code = "import subprocess\nprint(subprocess.run(['ls', '/proc/self/fd'], capture_output=True).stdout.split())\n"
    ran = stage.run(code)
    assert ran.log == "[b'0', b'1', b'2', b'3']\n", ran


def test_the_platforms_own_descriptors_are_not_inherited(stage: Stage) -> None:
    leaked = os.open("/etc/hostname", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    code = "import os\nfor n in range(200):\n    try: print(os.readlink(f'/proc/self/fd/{n}'))\n    except OSError: 0\n"
    try:
        ran = stage.run(code)
    finally:
        os.close(leaked)
    assert "hostname" not in ran.log
    assert all(line.startswith(("pipe:", "/dev/null")) for line in ran.log.splitlines()), ran
