"""What a step left is listed and judged, and never trusted."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from engine.runner import collect
from tests.runner.stage import Silent, Stage

pytestmark = pytest.mark.sandbox

OUT = "import os\nout = os.environ['STEP_OUTPUT_DIR']\n"


def test_each_file_is_listed_with_its_digest(stage: Stage) -> None:
    ran = stage.run("import pulse\npulse.write_json('a/b.json', {'x': 1})\n")
    data = (ran.out / "a" / "b.json").read_bytes()
    (output,) = ran.ending.outputs
    assert (output.path, output.bytes, output.sha256) == ("a/b.json", len(data), hashlib.sha256(data).hexdigest())


def test_a_declared_output_that_is_missing_fails_the_step(stage: Stage) -> None:
    ran = stage.run("pass\n", step={"context_output": ["report.json"]})
    assert (ran.ending.outcome, ran.ending.reason) == ("validation_failed", "output_missing"), ran
    assert "report.json" in ran.ending.detail


@pytest.mark.parametrize(
    "make",
    [
        "os.symlink('/etc/passwd', out + '/report.json')",
        "os.mkfifo(out + '/report.json')",
        "os.mkdir(out + '/report.json')",
        "open(out + '/x', 'w').write('x'); os.link(out + '/x', out + '/report.json')",
    ],
)
def test_an_output_that_is_no_plain_file_is_not_read(stage: Stage, make: str) -> None:
    ran = stage.run(OUT + make + "\n", step={"context_output": ["report.json"]})
    assert (ran.ending.outcome, ran.ending.reason) == ("validation_failed", "result_not_regular"), ran
    assert all(output.sha256 == "" for output in ran.ending.outputs)


def test_an_output_too_large_is_refused_before_it_is_read(stage: Stage) -> None:
    make = "os.truncate(os.open(out + '/report.json', os.O_CREAT | os.O_RDWR), 3 * 1024 * 1024)\n"
    step = {"context_output": ["report.json"], "limits": {"file_mb": 4}}
    ran = stage.run(OUT + make, step=step)
    assert ran.ending.outcome == "succeeded", ran
    rules = {"files": [{"file_name": "report.json", "must_exist": True, "json_checks": [{"path": "$.a"}]}]}
    big = OUT + "os.truncate(os.open(out + '/report.json', os.O_CREAT | os.O_RDWR), 20 * 1024 * 1024)\n"
    judged = stage.run(big, step={"validation": rules})
    assert judged.ending.outcome == "validation_failed", judged


def test_a_validation_block_decides_with_its_report(stage: Stage) -> None:
    rules = {"files": [{"file_name": "a.json", "json_checks": [{"path": "$.total", "value_type": "integer"}]}]}
    good = stage.run("import pulse\npulse.write_json('a.json', {'total': 1})\n", step={"validation": rules})
    bad = stage.run("import pulse\npulse.write_json('a.json', {'total': [1]})\n", step={"validation": rules})
    assert good.ending.outcome == "succeeded", good
    assert good.ending.validation is not None
    assert good.ending.validation["status"] == "passed"
    assert (bad.ending.outcome, bad.ending.reason) == ("validation_failed", "check_failed"), bad
    assert [output.path for output in bad.ending.outputs] == ["a.json"]


def test_a_rule_that_cannot_be_applied_is_no_failed_check(stage: Stage) -> None:
    write = "import pulse\npulse.write_json('a.json', {'total': 1})\n"
    endless = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    faulty = {"file_name": "a.json", "schema": endless}
    failed = {"file_name": "a.json", "json_checks": [{"path": "$.nothing", "must_exist": True}]}
    alone = stage.run(write, step={"validation": {"files": [faulty]}})
    both = stage.run(write, step={"validation": {"files": [faulty, failed]}})
    assert (alone.ending.outcome, alone.ending.reason) == ("validation_failed", "rule_faulty"), alone
    assert (both.ending.outcome, both.ending.reason) == ("validation_failed", "check_failed"), both


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"[" * 100_000, b'{"total": NaN}', b""])
def test_a_result_that_is_no_json_fails_its_check_and_leaves_nothing_stuck(stage: Stage, data: bytes) -> None:
    rules = {"files": [{"file_name": "a.json", "json_checks": [{"path": "$.total"}]}]}
    ran = stage.run(OUT + f"open(out + '/a.json', 'wb').write({data!r})\n", step={"validation": rules})
    assert (ran.ending.outcome, ran.ending.reason) == ("validation_failed", "check_failed"), ran


def test_a_database_check_asks_the_listeners(stage: Stage) -> None:
    rules = {"db": [{"name": "one row", "sql": "select 1", "min_rows": 1}]}
    assert (
        stage.run("pass\n", step={"validation": rules}, listeners=Silent(rows=[{"x": 1}])).ending.outcome == "succeeded"
    )
    assert stage.run("pass\n", step={"validation": rules}).ending.outcome == "validation_failed"


def test_a_file_that_holds_a_secret_is_flagged(stage: Stage) -> None:
    code = (
        "import os, pulse\npulse.write_json('leak.json', os.environ['SECRET_KEY'])\npulse.write_json('fine.json', 1)\n"
    )
    ran = stage.run(
        code, step={"secrets": ["KEY"]}, secrets={"KEY": "correct horse"}, allowed_secrets=frozenset({"KEY"})
    )
    assert {output.path: output.contains_secret for output in ran.ending.outputs} == {
        "leak.json": True,
        "fine.json": False,
    }


def test_a_name_that_is_no_text_is_listed_as_one_and_holds_no_secret(stage: Stage) -> None:
    code = OUT + "open(os.fsencode(out) + b'/\\xffodd.md', 'w').close()\n"
    ran = stage.run(code, step={"secrets": ["KEY"]}, secrets={"KEY": "correct horse"}, allowed_secrets={"KEY"})
    assert [(output.path, output.contains_secret) for output in ran.ending.outputs] == [("\ufffdodd.md", False)]


def test_a_secret_in_the_name_of_a_file_is_masked(stage: Stage) -> None:
    code = "import os, pulse\npulse.write_json(os.environ['SECRET_KEY'] + '.json', 1)\n"
    ran = stage.run(
        code, step={"secrets": ["KEY"]}, secrets={"KEY": "correct horse"}, allowed_secrets=frozenset({"KEY"})
    )
    assert [(output.path, output.contains_secret) for output in ran.ending.outputs] == [("***.json", True)]


def test_the_outputs_belong_to_the_attempt_and_are_empty_at_the_start(stage: Stage) -> None:
    code = "import os, pulse\nprint(os.listdir(pulse.output_dir))\npulse.write_json('x.json', 1)\n"
    first, second = stage.run(code), stage.run(code)
    assert (first.log, second.log) == ("[]\n", "[]\n")
    assert first.out != second.out


def test_dependencies_are_read_in_their_declared_order_and_not_written(stage: Stage) -> None:
    code = (
        "import sys\nfor path in sys.argv[1:]:\n    print(path, open(path).read() if path else '-')\n"
        "try: open(sys.argv[1], 'w')\nexcept OSError as e: print(type(e).__name__)\n"
    )
    step = {"context_dependencies": ["fetch/b.txt", {"path": "other/none.txt", "optional": True}, "fetch/a.txt"]}
    given = {"fetch/a.txt": stage.produced("a.txt", b"A"), "fetch/b.txt": stage.produced("b.txt", b"B")}
    ran = stage.run(code, step=step, dependencies=given)
    assert ran.log == "/pulse/run/in/0/b.txt B\n -\n/pulse/run/in/2/a.txt A\nOSError\n", ran


def test_code_that_changed_while_it_ran_is_told(stage: Stage) -> None:
    still = stage.run("print(1)\n")
    changed = stage.run("open('/pulse/code/work/new.txt', 'w').write('x')\n")
    assert still.ending.code_digest_end == still.contract.code_digest
    assert changed.ending.code_digest_end != changed.contract.code_digest
    assert Path(stage.workflow.code / "work" / "new.txt").read_text() == "x"
    assert os.stat(stage.workflow.code / "work" / "new.txt").st_uid == stage.host.runner.uid


def test_outputs_beyond_what_a_row_can_hold_are_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MOST_LISTED", 50)
    code = f"{OUT}for n in range(80):\n    open(f'{{out}}/{{n:03d}}', 'w').write('x')\n"
    outputs = stage.run(code, step={"context_output": ["070"]}).ending.outputs
    assert (outputs[-1].path, outputs[-1].bytes, outputs[-1].problem) == ("(29 more files)", 29, "left_out")
    assert [output.path for output in outputs[:-1]] == [*(f"{n:03d}" for n in range(50)), "070"]


def test_long_names_of_outputs_are_bounded_together(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MOST_NAMES", 1000)
    code = (
        "import os\nos.chdir(os.environ['STEP_OUTPUT_DIR'])\nfor n in range(9):\n    open(f'{n}' * 190, 'w').close()\n"
    )
    assert [output.problem for output in stage.run(code).ending.outputs] == [*([""] * 5), "left_out"]
