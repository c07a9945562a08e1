"""What a step sees and can do: one launch tries everything (explore.py), each test reads one answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import explore
from tests.sandbox.bench import ENV, Bench

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def found(shared_bench: Bench) -> dict[str, Any]:
    bench = shared_bench
    other = bench.root / "workspaces" / "team" / "wf2" / "code" / "gate" / "main.py"
    other.parent.mkdir(parents=True)
    other.write_text("another workflow's code")
    shutil.copyfile(explore.__file__, bench.workflow.code / "gate" / "main.py")
    with socket.socket() as listener, socket.socket(socket.AF_UNIX) as abstract:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        port = listener.getsockname()[1]
        abstract.bind(f"\0pulse-test-{port}")
        abstract.listen()
        facts = {"another workflow": str(other), "data folder": str(bench.root / "lib"), "port": str(port)}
        leaked = os.open("/etc", os.O_RDONLY)
        os.set_inheritable(leaked, True)
        argv = [str(bench.tools.interpreter.path), "-I", "-B", "/pulse/code/gate/main.py", json.dumps(facts)]
        try:
            ended = bench.run("", argv=argv)
        finally:
            os.close(leaked)
        with pytest.raises(BlockingIOError):
            listener.accept()
    return ended.json()


@pytest.mark.parametrize("name", ["another workflow", "data folder", "shadow", "link in outputs"])
def test_files_of_the_host_and_of_other_workflows_are_not_there(found: dict[str, Any], name: str) -> None:
    assert found[name] == "ENOENT"


@pytest.mark.parametrize("path", explore.CLOSED)
def test_nothing_but_the_grants_can_be_written(found: dict[str, Any], path: str) -> None:
    assert found[f"write {path}"] in {"EROFS", "EACCES"}


@pytest.mark.parametrize("path", explore.OPEN)
def test_what_is_granted_can_be_written(found: dict[str, Any], path: str) -> None:
    assert found[f"write {path}"] == "'written'"


def test_it_finds_a_passwd_made_up_for_it(found: dict[str, Any]) -> None:
    assert found["passwd"] == repr("step:x:1000:1000:step:/tmp:/bin/sh\n")


def test_no_new_top_level_entry_of_code_can_be_made(found: dict[str, Any]) -> None:
    assert found["new entry of code"] == "EACCES"
    assert found["list /pulse/code"] == ["gate", "review", "shared"]


def test_what_it_wrote_is_the_runners_on_the_host_and_open_to_its_group_only(
    found: dict[str, Any], shared_bench: Bench
) -> None:
    written = shared_bench.workflow.code / "gate" / "x"
    assert written.read_text() == "planted"
    assert written.stat().st_uid == shared_bench.runner.uid != 0
    assert found["mode of a new file"] == "0o660"


def test_the_hosts_core_pattern_is_unchanged(found: dict[str, Any]) -> None:
    assert found
    assert "planted" not in Path("/proc/sys/kernel/core_pattern").read_text()


def test_devices_are_refused_and_pipes_are_not(found: dict[str, Any]) -> None:
    assert found["device"] == "EPERM"
    assert found["pipe"] == "None"


def test_files_cannot_be_given_away_nor_linked_across_mounts(found: dict[str, Any]) -> None:
    assert found["chown"] in {"EPERM", "EINVAL"}
    assert found["hard link"] in {"EXDEV", "EPERM"}


def test_only_the_given_names_are_in_the_environment(found: dict[str, Any]) -> None:
    assert set(found["names"]) - {"LC_CTYPE"} == {*ENV, "PWD"}
    assert set(found["names of pid 1"]) <= {*ENV, "PWD"}


def test_no_descriptor_but_the_three_is_inside(found: dict[str, Any]) -> None:
    assert found["descriptors"] == [0, 1, 2]
    assert found["stdout"].startswith("'pipe:")


def test_no_capability_is_left_and_the_filter_is_on(found: dict[str, Any]) -> None:
    status = found["status"]
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_the_root_holds_nothing_of_the_host(found: dict[str, Any]) -> None:
    assert not {"home", "root", "var", "sys", "srv", "mnt", "opt"} & set(found["list /"])
    assert found["list /pulse/run"] == ["in", "out"]


def test_it_is_somebody_else_on_a_host_of_another_name(found: dict[str, Any]) -> None:
    assert found["self"] == ["step", 1000, 1000, "/pulse/code/gate"]


@pytest.mark.parametrize("family", ["vsock", "netlink", "packet", "alg"])
def test_other_socket_families_are_refused(found: dict[str, Any], family: str) -> None:
    assert found[f"family {family}"] == "EAFNOSUPPORT"


@pytest.mark.parametrize("family", ["unix", "inet", "inet6"])
def test_ordinary_sockets_can_be_made(found: dict[str, Any], family: str) -> None:
    assert found[f"family {family}"] == "None"


@pytest.mark.parametrize(
    ("road", "answers"),
    [
        ("tcp", {"ENETUNREACH"}),
        ("udp", {"ENETUNREACH"}),
        ("tcp6", {"ENETUNREACH", "EADDRNOTAVAIL"}),
        ("icmp", {"ENETUNREACH", "EACCES", "EPERM"}),
        ("loopback", {"ECONNREFUSED"}),
        ("abstract socket", {"ECONNREFUSED"}),
        ("names resolved", {"none"}),
    ],
)
def test_there_is_no_network(found: dict[str, Any], road: str, answers: set[str]) -> None:
    assert found[road] in answers


def test_terminals_cannot_be_typed_into(found: dict[str, Any]) -> None:
    assert found["ioctl of a terminal"] == "EPERM"


@pytest.mark.parametrize("command", ["bwrap --unshare-user --ro-bind / / true", "unshare -U true", "unshare -n true"])
def test_no_further_namespaces_can_be_made(found: dict[str, Any], command: str) -> None:
    assert found[command] != 0


def test_ordinary_programs_work(found: dict[str, Any]) -> None:
    assert found["ls /usr"] == 0
    assert found["threads"] == 1
    assert found["pool"] == [1, 2]
