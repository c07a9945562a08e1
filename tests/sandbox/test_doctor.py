"""`manage.py doctor`: each check says what it found, and what to do; one that is required and fails ends it with 1."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from pytest_django import Settings

from config.management.commands.doctor import product
from engine.doctor import planted, trial, volume
from engine.doctor.examine import Facts, examine, failed
from engine.sandbox import cgroup
from tests.sandbox.bench import Bench

pytestmark = pytest.mark.sandbox
RELEASE = Path(__file__).resolve().parents[2]


def facts_of(bench: Bench) -> Facts:
    return Facts(bench.root, RELEASE, runtime=str(bench.runtime), runner_uid=bench.runner.uid)


def test_a_host_that_can_run_steps_passes_every_required_check(shared_bench: Bench) -> None:
    checks = list(examine(facts_of(shared_bench)))
    assert [check for check in checks if check.required and not check.ok] == []
    assert not failed(checks)
    names = {check.name for check in checks}
    assert {"launch", "no network", "dependency environments can be built", "openat2", planted.NAME} <= names


def test_every_check_that_does_not_hold_says_why_and_what_to_do(shared_bench: Bench) -> None:
    for check in examine(facts_of(shared_bench)):
        assert check.ok or (check.cause and check.cure), check.name


@pytest.mark.django_db
def test_it_warns_that_web_has_no_uid_of_its_own() -> None:
    (check,) = [check for check in product() if check.name == "web has a uid of its own"]
    assert (check.ok, check.required) == (False, False)
    who = "web and worker both run as root" if os.geteuid() == 0 else f"steps all run as uid {os.geteuid()}"
    assert who in check.cause
    assert check.cure


def test_secrets_that_steps_can_read_are_refused(shared_bench: Bench) -> None:
    key = shared_bench.root / "readable.key"
    key.write_text("secret")
    key.chmod(0o644)
    facts = dataclasses.replace(facts_of(shared_bench), closed=(key, shared_bench.root / "secrets"))
    (check,) = [check for check in examine(facts) if check.name == "database, keys and settings are closed to steps"]
    assert not check.ok
    assert str(key) in check.cause
    assert "secrets" not in check.cause
    key.chmod(0o600)
    assert not failed(list(examine(facts)))


def test_without_bubblewrap_it_says_so_and_looks_no_further(shared_bench: Bench) -> None:
    checks = list(examine(dataclasses.replace(facts_of(shared_bench), bwrap="/usr/bin/absent-bwrap")))
    assert failed(checks)
    assert checks[-1].name == "bubblewrap and interpreter"
    assert "apt-get install bubblewrap" in checks[-1].cure


def test_a_data_folder_in_the_release_is_a_warning(data_root: Path) -> None:
    (check, *_) = volume.checks(data_root / "release" / "var", data_root / "release")
    assert not check.ok
    assert not check.required


def test_the_volume_of_a_folder_is_named() -> None:
    assert volume.mount_of(Path("/proc/self")).kind == "proc"
    assert volume.mount_of(Path("/dev/shm")).kind == "tmpfs"


def test_a_planted_link_is_no_danger_whatever_this_bubblewrap_does(shared_bench: Bench) -> None:
    check = planted.check(shared_bench.tools, shared_bench.root)
    assert not check.required
    assert shared_bench.tools.bwrap.version in check.cause + check.note
    assert not list(shared_bench.root.glob(".planted-*"))


def test_an_interpreter_that_cannot_import_what_was_installed_is_refused(shared_bench: Bench) -> None:
    good = trial.check(shared_bench.tools, shared_bench.root)
    assert good.ok, good.cause
    program = dataclasses.replace(shared_bench.tools.interpreter, path=Path("/usr/bin/false"))
    bad = trial.check(dataclasses.replace(shared_bench.tools, interpreter=program), shared_bench.root)
    assert not bad.ok
    assert bad.required
    assert not list(shared_bench.root.glob(".trial-*"))


def test_a_delegated_group_is_found_only_where_it_hands_down_what_is_needed(tmp_path: Path) -> None:
    unit = tmp_path / "cgroup" / "pulse.service"
    (unit / "worker").mkdir(parents=True)
    mountinfo, own = tmp_path / "mountinfo", tmp_path / "own"
    mountinfo.write_text(f"30 1 0:26 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw\n")
    own.write_text("1:name=systemd:/x\n0::/pulse.service/worker\n")
    assert cgroup.delegated(mountinfo, own) is None
    (unit / "cgroup.subtree_control").write_text("cpu memory\n")
    assert cgroup.delegated(mountinfo, own) is None
    (unit / "cgroup.subtree_control").write_text("memory pids\n")
    assert cgroup.delegated(mountinfo, own) is None or os.geteuid() != 0
    if os.geteuid() == 0:
        os.setxattr(unit, "trusted.delegate", b"1")
    assert cgroup.delegated(mountinfo, own) == unit
    own.write_text("0::/\n")
    assert cgroup.delegated(mountinfo, own) is None


@pytest.fixture
def lines(shared_bench: Bench, settings: Settings, db: None) -> Callable[..., tuple[int, list[str]]]:
    """Runs the command on the shared data folder: its exit code and what it printed."""
    del db
    if connection.vendor == "sqlite":
        os.chmod(str(connection.settings_dict["NAME"]), 0o600)  # that of the tests lies open in /tmp
    settings.PULSE_DATA, settings.PULSE_RUNTIME = shared_bench.root, str(shared_bench.runtime)
    settings.PULSE_RUNNER_UID, settings.DEBUG = shared_bench.runner.uid, False

    def run(*words: str) -> tuple[int, list[str]]:
        out = io.StringIO()
        try:
            call_command("doctor", *words, stdout=out)
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue().splitlines()
        return 0, out.getvalue().splitlines()

    return run


def test_the_command_prints_a_line_for_each_check(lines: Callable[..., tuple[int, list[str]]]) -> None:
    code, printed = lines()
    assert [line for line in printed if line.startswith("refused")] == []
    assert code == 0
    assert printed[-1] == "Steps can run on this host."
    assert "ok       queue" in printed
    assert "ok       no network" in printed


def test_the_command_ends_with_one_when_no_step_can_run(
    lines: Callable[..., tuple[int, list[str]]], settings: Settings
) -> None:
    settings.PULSE_BWRAP = "/usr/bin/absent-bwrap"
    code, printed = lines("--quiet")
    assert code == 1
    assert any(line.startswith("refused  bubblewrap and interpreter: bubblewrap was not found") for line in printed)
    assert not any(line.startswith("ok ") for line in printed)


@pytest.mark.parametrize(("name", "value"), [("SECRET_KEY", "short"), ("DEBUG", True), ("ALLOWED_HOSTS", ["*"])])
def test_settings_that_are_not_safe_are_refused(
    lines: Callable[..., tuple[int, list[str]]], settings: Settings, name: str, value: object
) -> None:
    setattr(settings, name, value)
    code, printed = lines("--quiet")
    assert code == 1
    assert any(line.startswith("refused") and name in line for line in printed)
