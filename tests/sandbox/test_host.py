"""What is found on a host, and how a host that cannot confine steps is told why."""

from __future__ import annotations

import dataclasses
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from engine.places import DataPlaces
from engine.sandbox import canary, diagnosis, host, launch, processes
from engine.sandbox.access import Runner
from engine.sandbox.errors import Reason, SandboxRefused
from tests.sandbox import weaker
from tests.sandbox.bench import Bench

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def pretender(folder: Path, complaint: str) -> Path:
    """Stands for a bubblewrap on a host that does not let it work: knows its options, says `complaint`, ends with 1."""
    options = " ".join(host.NEEDED_OPTIONS)
    script = f"""
case "$1" in
--version) echo "bubblewrap 0.8.0";;
--help) echo "{options}";;
*) echo "bwrap: {complaint}" >&2; exit 1;;
esac"""
    return program(folder / "bwrap", script)


def refusal(data_root: Path, **given: str) -> SandboxRefused:
    with pytest.raises(SandboxRefused) as refused:
        host.find(data_root, **given)  # type: ignore[arg-type]
    assert refused.value.cure
    return refused.value


def test_the_hosts_own_programs_are_found(data_root: Path) -> None:
    tools = host.find(data_root)
    assert tools.bwrap.path == Path("/usr/bin/bwrap")
    assert len(tools.bwrap.sha256) == 64
    assert tools.interpreter.path.is_relative_to("/usr")
    assert tools.interpreter_root is None


def test_a_bubblewrap_that_is_absent_is_said_to_be(data_root: Path) -> None:
    refused = refusal(data_root, bwrap=str(data_root / "absent"))
    assert refused.reason is Reason.BWRAP_ABSENT
    assert "apt-get install bubblewrap" in refused.cure


@pytest.mark.parametrize(
    ("mode", "said"), [(0o777, "others"), (0o644, "cannot execute"), (0o4755, "set-uid"), (0o700, "cannot execute")]
)
@root_only
def test_a_bubblewrap_that_others_could_change_or_the_runner_not_run_is_not_used(
    data_root: Path, mode: int, said: str
) -> None:
    refused = refusal(data_root, bwrap=str(program(data_root / "bwrap", "true", mode)))
    assert refused.reason is Reason.BWRAP_UNSUITABLE
    assert said in refused.detail


@root_only
def test_a_bubblewrap_of_somebody_else_is_not_used(data_root: Path) -> None:
    path = program(data_root / "bwrap", "true")
    os.chown(path, 4321, 4321)
    assert refusal(data_root, bwrap=str(path)).reason is Reason.BWRAP_UNSUITABLE


def test_a_bubblewrap_that_lacks_an_option_is_not_used(data_root: Path) -> None:
    path = program(data_root / "bwrap", 'echo "bubblewrap 0.4.0 --args"')
    refused = refusal(data_root, bwrap=str(path))
    assert "--bind-fd" in refused.detail
    assert "0.4.0" not in refused.cure


def test_a_bubblewrap_by_a_relative_path_is_refused(data_root: Path) -> None:
    with pytest.raises(SandboxRefused):
        host.find(data_root, bwrap="bwrap")


@root_only
def test_an_interpreter_in_a_home_folder_is_not_used(data_root: Path) -> None:
    assert refusal(data_root, interpreter="/root/python3").reason is Reason.INTERPRETER_UNREACHABLE


def test_an_interpreter_that_is_absent_or_none_is_not_used(data_root: Path) -> None:
    failing, old = program(data_root / "failing", "exit 3"), program(data_root / "old", "echo 3.9.2 /usr")
    for path in (data_root / "absent", failing, old):
        assert refusal(data_root, interpreter=str(path)).reason is Reason.INTERPRETER_UNREACHABLE


@root_only
def test_an_interpreter_outside_usr_is_mounted_with_its_folder(data_root: Path) -> None:
    path = program(data_root / "python", f"echo 3.12.1 {data_root}")
    tools = host.find(data_root, interpreter=str(path))
    assert tools.interpreter_root == data_root


@root_only
def test_a_uid_is_allotted_once_and_kept(data_root: Path, tmp_path: Path) -> None:
    first = host.allot_uid(data_root)
    assert first >= host.FIRST_UID
    assert host.allot_uid(data_root) == first
    assert host.runner(data_root) == Runner(first, first)
    assert host.runner(data_root, 4711).uid == 4711


@root_only
@pytest.mark.parametrize("kept", ["0", "", "root", "-5"])
def test_a_kept_uid_that_is_none_is_refused(data_root: Path, kept: str) -> None:
    (data_root / "runner.uid").write_text(kept)
    with pytest.raises(SandboxRefused) as refused:
        host.runner(data_root)
    assert refused.value.reason is Reason.RUNNER_IS_ROOT


@root_only
def test_the_data_folder_has_its_parts_with_their_modes(data_root: Path) -> None:
    who = Runner(71234, 71234)
    host.prepare_data(data_root, who)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data_root.iterdir()}
    assert modes == {"workspaces": 0o710, "lib": 0o750, "environments": 0o750, "secrets": 0o700}
    assert who.barred_from(data_root / "secrets" / "django.key") == data_root / "secrets"
    assert who.barred_from(data_root / "workspaces" / "team") is None


@root_only
def test_a_data_folder_that_the_runner_cannot_enter_is_refused(data_root: Path) -> None:
    closed = data_root / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(SandboxRefused) as refused:
        host.prepare_data(closed / "data", Runner(71234, 71234))
    assert str(closed) in refused.value.detail


@root_only
def test_data_of_a_release_in_a_closed_folder_lie_elsewhere(data_root: Path) -> None:
    release = data_root / "home" / "pulse"
    release.mkdir(parents=True)
    assert host.default_data(release) is None
    (data_root / "home").chmod(0o700)
    elsewhere = host.default_data(release)
    assert elsewhere
    assert elsewhere.parent == Path("/var/lib/pulse")
    assert host.default_data(release) == elsewhere


def test_sockets_lie_in_a_short_folder_of_our_own(data_root: Path) -> None:
    folder = host.runtime_folder(data_root)
    try:
        assert len(str(folder)) < 40
        assert stat.S_IMODE(folder.stat().st_mode) == 0o711
        assert folder == host.runtime_folder(data_root)
    finally:
        folder.rmdir()


@root_only
def test_a_folder_of_sockets_that_is_a_link_or_anothers_is_refused(data_root: Path) -> None:
    (data_root / "real").mkdir()
    (data_root / "link").symlink_to("real")
    os.chown(data_root / "real", 4321, 4321)
    for name in ("link", "real"):
        with pytest.raises(SandboxRefused):
            host.runtime_folder(data_root, str(data_root / name))


@pytest.mark.sandbox
def test_the_canary_comes_through_whole(shared_bench: Bench) -> None:
    checks = canary.check(shared_bench.tools, shared_bench.root, shared_bench.runtime)
    assert [check for check in checks if not check.ok] == []
    assert len(checks) > 15
    assert not list(shared_bench.root.glob(".canary-*"))
    assert list(shared_bench.runtime.iterdir()) == []


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("complaint", "cause", "cure"),
    [
        ("No permissions to create new namespace, likely because", "user namespace", "--privileged"),
        ("Creating new namespace failed: max_*_namespaces exceeded (ENOSPC)", "user namespaces", "max_user_namespaces"),
        ("setting up uid map: Permission denied", "AppArmor", "bwrap-userns-restrict"),
        ("loopback: Failed RTM_NEWADDR: Operation not permitted", "AppArmor", "bwrap-userns-restrict"),
        ("Can't mount proc on /newroot/proc: Operation not permitted", "masked /proc", "systempaths=unconfined"),
        ("Can't read /proc/sys/kernel/overflowuid", "/proc", "systempaths=unconfined"),
        ("Creating new namespace failed: Resource temporarily unavailable", "processes", "LimitNPROC"),
        ("Can't find source path /root/x: Permission denied", "cannot enter", "chmod 0711"),
        ("something nobody knows", "something nobody knows", "doctor"),
    ],
)
def test_a_host_that_does_not_let_bubblewrap_work_is_told_why_and_what_to_do(
    data_root: Path, complaint: str, cause: str, cure: str
) -> None:
    tools = host.find(data_root, bwrap=str(pretender(data_root, complaint)))
    host.prepare_data(data_root, tools.runner)
    (check,) = canary.check(tools, data_root, host.runtime_folder(data_root, str(data_root / "sockets")))
    assert not check.ok
    assert check.required
    assert cause in check.cause
    assert cure in check.cure
    found = diagnosis.refusal(f"bwrap: {complaint}")
    assert found.code == "SANDBOX_UNAVAILABLE"


@pytest.mark.sandbox
def test_a_canary_in_a_real_host_without_namespaces_is_refused(bench: Bench, tmp_path: Path) -> None:
    """The kernel's own refusal: no further user namespaces are allowed in the one it is started in."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
Path("/proc/sys/user/max_user_namespaces").write_text("0")
from engine.sandbox import canary, host
from engine.sandbox.access import Runner
import dataclasses
root = Path({str(bench.root)!r})
tools = dataclasses.replace(host.find(root, runner_uid=70000), runner=Runner(0, 0))
import os
os.geteuid = lambda: 1
for check in canary.check(tools, root, root / "sockets"):
    print(check.ok, check.cause, check.cure)
"""
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("False")


def test_start_times_are_told_with_their_boot() -> None:
    told = processes.started(os.getpid())
    assert told
    ticks, _, boot = told.partition("@")
    assert ticks.isdigit()
    assert len(told) <= 32
    assert boot
    assert processes.started(2**22 + 1) is None


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("dropped", "failing"),
    [
        ("--unshare-net", "no network"),
        ("--unshare-ipc", "own namespaces"),
        ("--remount-ro", "everything else is read only"),
        ("--size", "temporary space is bounded"),
        ("--seccomp", "launch"),
    ],
)
def test_the_canary_notices_that_a_protection_is_missing(
    data_root: Path, dropped: str, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "START_TIMEOUT_S", 2.0)
    tools = host.find(data_root)
    host.prepare_data(data_root, tools.runner)
    script = Path(shutil.copyfile(weaker.__file__, data_root / "weaker.py"))
    script.chmod(0o644)
    path = program(data_root / "bwrap", f'exec {tools.interpreter.path} -I {script} {dropped} "$@"')
    tools = dataclasses.replace(tools, bwrap=dataclasses.replace(tools.bwrap, path=path))
    runtime = host.runtime_folder(data_root, str(data_root / "sockets"))
    checks = canary.check(tools, data_root, runtime)
    assert failing in {check.name for check in checks if not check.ok and check.required}


def test_folders_of_the_data_folder_are_named_in_one_place(data_root: Path) -> None:
    places = DataPlaces(data_root)
    host.prepare_data(data_root, host.runner(data_root))
    assert places.library.is_dir()
    assert places.environments.is_dir()
    assert places.secrets.is_dir()


ORDINARY = """
import os, sys
os.umask(0o077)
from pathlib import Path
from engine.sandbox import canary, host
data = Path(sys.argv[1])
tools = host.find(data)
host.prepare_data(data, tools.runner)
checks = canary.check(tools, data, host.runtime_folder(data, str(data / "sockets")))
print(tools.runner.dropped, len(checks) > 15, [check for check in checks if not check.ok])
"""


@pytest.mark.sandbox
@root_only
def test_an_ordinary_user_with_a_strict_umask_can_run_steps_too(data_root: Path) -> None:
    uid = 70_000 + os.getpid()
    shutil.copytree(Path(canary.__file__).parents[1], data_root / "release" / "engine")
    own = data_root / "own"
    own.mkdir()
    os.chown(own, uid, uid)
    python = host.find(data_root).interpreter.path
    done = subprocess.run(
        [python, "-B", "-c", ORDINARY, str(own)],
        env={"PYTHONPATH": str(data_root / "release"), "PATH": "/usr/bin:/bin"},
        cwd="/",
        user=uid,
        group=uid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "False True []\n", done.stderr
