"""How an attempt ended is decided by facts; what the script claims only tells facts apart."""

from __future__ import annotations

import pytest

from engine import json_values
from engine.runner import execute
from tests.runner.stage import Silent, Stage

pytestmark = pytest.mark.sandbox

STEP = "/pulse/code/work"
BOUNDARY = "from pulse import ToolBoundaryError\nraise ToolBoundaryError('not_owner', 'this session is not yours')\n"


def test_exit_0_is_a_success(stage: Stage) -> None:
    ran = stage.run("print('done')\n")
    assert (ran.ending.outcome, ran.ending.exit_code, ran.log) == ("succeeded", 0, "done\n"), ran
    assert ran.ending.tree_gone


def test_a_non_zero_exit_is_a_failure_though_valid_files_lie_there(stage: Stage) -> None:
    ran = stage.run("import pulse\npulse.write_json('a.json', {})\nexit(3)\n", step={"context_output": ["a.json"]})
    assert (ran.ending.outcome, ran.ending.reason, ran.ending.exit_code) == ("script_error", "exit_3", 3), ran
    assert [output.path for output in ran.ending.outputs] == ["a.json"]


def test_an_uncaught_exception_is_a_script_error_with_its_place(stage: Stage) -> None:
    ran = stage.run("def f():\n    raise ValueError('no good')\nf()\n")
    assert ran.ending.outcome == "script_error", ran
    assert ran.ending.detail == f"ValueError: no good ({STEP}/main.py:2)"
    assert ran.ending.claims["exception"]["class"] == "ValueError"
    assert "boot" not in ran.log
    assert ran.log.startswith(f'Traceback (most recent call last):\n  File "{STEP}/main.py", line 3, in <module>')


def test_an_uncaught_assertion_is_told_apart(stage: Stage) -> None:
    assert stage.run("assert 1 == 2, 'sums'\n").ending.outcome == "assertion_failed"
    assert stage.run("class Mine(AssertionError): ...\nraise Mine('x')\n").ending.outcome == "assertion_failed"


def test_an_assertion_stays_one_whatever_its_text_holds(stage: Stage) -> None:
    ran = stage.run("raise AssertionError('a\\0b')\n")
    assert ran.ending.outcome == "assertion_failed", ran
    assert "\0" not in ran.ending.detail


def test_a_refusal_can_be_kept_whatever_its_text_holds(stage: Stage) -> None:
    ran = stage.run("""print(r'PULSE_REFUSAL: {"reason": "\\ud800 a\\u0000b"}')\nexit(2)\n""")
    assert ran.ending.outcome == "refused", ran
    assert json_values.readable(ran.ending.claims)["refusal"]["reason"] == "\ufffd a\u2400b"  # as its column keeps it


@pytest.mark.parametrize("code", [137, 152, 153])
def test_an_exit_code_above_128_is_no_signal(stage: Stage, code: int) -> None:
    ran = stage.run(f"import sys\nsys.exit({code})\n")
    assert (ran.ending.outcome, ran.ending.reason) == ("script_error", f"exit_{code}"), ran


def test_a_signal_is_told_as_one(stage: Stage) -> None:
    ran = stage.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert (ran.ending.outcome, ran.ending.reason) == ("script_error", "signal_9"), ran


def test_the_end_of_processor_time_is_believed_only_where_it_was_used(stage: Stage) -> None:
    ran = stage.run("import os, signal\nos.kill(os.getpid(), signal.SIGXCPU)\n")
    assert (ran.ending.outcome, ran.ending.reason) == ("script_error", "signal_24"), ran


def test_a_printed_assertion_is_none(stage: Stage) -> None:
    ran = stage.run("import sys\nprint('AssertionError: x', file=sys.stderr)\nexit(1)\n")
    assert ran.ending.outcome == "script_error"


def test_a_boundary_error_needs_its_row_in_the_ledger(stage: Stage) -> None:
    assert stage.run(BOUNDARY, listeners=Silent(refused=True)).ending.outcome == "tool_boundary"
    assert stage.run(BOUNDARY, listeners=Silent(refused=False)).ending.outcome == "script_error"


def test_a_refused_row_without_the_error_is_no_boundary_fault(stage: Stage) -> None:
    assert stage.run("raise ValueError\n", listeners=Silent(refused=True)).ending.outcome == "script_error"


def test_a_refusal_is_shown_as_claimed(stage: Stage) -> None:
    ran = stage.run("import pulse\npulse.refuse('no budget', 'the transfer', 'ask Ann')\n")
    assert (ran.ending.outcome, ran.ending.reason) == ("refused", "refusal"), ran
    assert ran.ending.claims["refusal"] == {
        "reason": "no budget",
        "blocked_action": "the transfer",
        "resolution": "ask Ann",
    }


def test_exit_2_without_a_record_is_an_unexplained_refusal(stage: Stage) -> None:
    ran = stage.run("exit(2)\n")
    assert (ran.ending.outcome, ran.ending.reason) == ("refused", "unexplained")


@pytest.mark.parametrize(
    "code",
    [
        "import argparse\nargparse.ArgumentParser().parse_args(['--nope'])\n",
        "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, '/nope.py']))\n",
        (
            "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-c', 'import argparse;"
            'argparse.ArgumentParser().parse_args(["--nope"])\']))\n'
        ),
    ],
)
def test_exit_2_of_a_usage_error_is_a_script_error(stage: Stage, code: str) -> None:
    ran = stage.run(code)
    assert (ran.ending.outcome, ran.ending.reason) == ("script_error", "usage_error"), ran


def test_a_refusal_record_with_another_exit_code_refuses_nothing(stage: Stage) -> None:
    ran = stage.run('print(\'PULSE_REFUSAL: {"reason": "x"}\')\n')
    assert ran.ending.outcome == "succeeded"
    assert ran.ending.claims["refusal"]["reason"] == "x"


def test_concerns_are_shown_beside_the_result(stage: Stage) -> None:
    ran = stage.run("import pulse\npulse.concern('two\\nlines')\nprint('CONCERN: by hand')\n")
    assert ran.ending.claims["concerns"] == ["two lines", "by hand"]


def test_text_that_looks_like_bubblewrap_fools_nobody(stage: Stage) -> None:
    ran = stage.run("import sys\nprint('bwrap: Creating new namespace failed', file=sys.stderr)\nexit(1)\n")
    assert (ran.ending.outcome, ran.ending.reason) == ("script_error", "exit_1")


def test_a_step_that_kills_itself_says_by_which_signal(stage: Stage) -> None:
    ran = stage.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    assert (ran.ending.outcome, ran.ending.reason) == ("script_error", "signal_9"), ran


def test_a_claim_that_was_forged_changes_little(stage: Stage) -> None:
    """A script can write to boot's descriptor; that moves it between outcomes that are all its own failure."""
    code = (
        "import os\nfor fd in range(3, 30):\n    try: os.write(fd, b'99999:x,garbage')\n"
        "    except OSError: pass\nexit(1)\n"
    )
    assert stage.run(code).ending.outcome == "script_error"


def test_a_failing_str_of_an_exception_is_no_matter(stage: Stage) -> None:
    ran = stage.run("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd\n")
    assert ran.ending.outcome == "script_error", ran


def test_an_attempt_has_one_start(stage: Stage) -> None:
    """What is there already is evidence."""
    stage.write({"work/main.py": "print(1)\n"})
    contract = stage.resolve()
    assert execute(contract, Silent()).outcome == "succeeded"
    again = execute(contract, Silent())
    assert (again.outcome, again.reason) == ("harness_rejected", "attempt_exists")
