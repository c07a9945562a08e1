"""What a policy is built from, and what it refuses before anything is started."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.sandbox import grants, policy
from engine.sandbox.access import Runner
from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.limits import Limits
from engine.sandbox.policy import Declared, Host, InputFile, Policy, build, standard_grants
from tests.sandbox.bench import Bench


def refusal(declared: Declared, host: Host) -> Reason:
    with pytest.raises(SandboxRefused) as refused:
        build(declared, host).close()
    assert refused.value.detail
    return refused.value.reason


def mounts_of(built: Policy) -> dict[str, grants.Mount]:
    with built:
        return {mount.dest: mount for mount in built.mounts}


@pytest.fixture
def listening(bench: Bench) -> Iterator[Path]:
    path = bench.runtime / "tools.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o666)
        yield path


def code_of(built: Policy) -> dict[str, bool]:
    """Which mounts there are of the code, and whether each may be written."""
    return {dest: mount.write for dest, mount in mounts_of(built).items() if mount.store == "code"}


EACH = {"/pulse/code/gate": True, "/pulse/code/review": True, "/pulse/code/shared": True}


def test_the_code_is_one_mount_where_its_folder_is_closed_to_steps(bench: Bench) -> None:
    built = build(bench.declared(), bench.host())
    assert code_of(built) == {"/pulse/code": True}
    assert built.code_access == dict.fromkeys(("gate", "review", "shared"), "read-write")


@pytest.mark.parametrize(("owner", "mode"), [("platform", 0o770), ("runner", 0o550)])
def test_each_entry_of_code_is_a_mount_where_steps_could_change_its_folder(bench: Bench, owner: str, mode: int) -> None:
    os.chown(bench.workflow.code, bench.runner.uid if owner == "runner" else -1, bench.runner.gid)
    bench.workflow.code.chmod(mode)
    assert code_of(build(bench.declared(), bench.host())) == EACH


def test_each_entry_of_code_is_a_mount_where_one_is_locked(bench: Bench) -> None:
    built = build(bench.declared(), bench.host(locked_steps=frozenset({"review"})))
    assert code_of(built) == EACH | {"/pulse/code/review": False}


def test_an_entry_of_code_that_will_not_do_is_refused_though_the_code_is_one_mount(bench: Bench) -> None:
    (bench.workflow.code / "shared").chmod(0o777)
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_UNREADABLE


def test_the_folder_of_a_locked_step_is_bound_to_be_read_for_every_step(bench: Bench) -> None:
    built = build(bench.declared(), bench.host(locked_steps=frozenset({"review"})))
    assert built.code_access == {"gate": "read-write", "review": "read", "shared": "read-write"}
    assert not mounts_of(built)["/pulse/code/review"].write


@pytest.mark.parametrize("access", ["read", "read-write"])
@pytest.mark.parametrize(("store", "dest"), [("knowledgebase", "/pulse/kb"), ("assets", "/pulse/assets")])
def test_stores_are_mounted_as_they_are_granted(bench: Bench, store: str, dest: str, access: str) -> None:
    folder = bench.workflow.root / store
    folder.mkdir()
    mounts = mounts_of(build(bench.declared(access={store: access}), bench.host()))
    assert mounts[dest].write is (access == "read-write")
    assert dest not in mounts_of(build(bench.declared(access={store: "none"}), bench.host()))


def test_a_missing_optional_folder_is_left_out_and_said_to_be(bench: Bench) -> None:
    mount = mounts_of(build(bench.declared(), bench.host()))["/pulse/learnings/_global"]
    assert mount.status == "skipped"
    assert not bench.workflow.learnings.exists()


def test_a_missing_writable_folder_is_made_for_the_runner(bench: Bench) -> None:
    mount = mounts_of(build(bench.declared(access={"learnings": "read-write"}), bench.host()))[
        "/pulse/learnings/_global"
    ]
    made = (bench.workflow.learnings / "_global").stat()
    assert mount.created
    assert bench.runner.may(made, 7)
    assert made.st_mode & 0o7007 == 0


def test_a_writable_folder_that_cannot_be_made_is_refused(bench: Bench) -> None:
    host = bench.host(create_missing=False)
    assert refusal(bench.declared(access={"learnings": "read-write"}), host) is Reason.GRANT_WRITE_MISSING


def test_a_missing_required_input_is_refused(bench: Bench) -> None:
    missing = InputFile(0, bench.workflow.attempt("run-1", "fetch", 1).out / "pull.json", "pull.json")
    assert refusal(bench.declared(), bench.host(inputs=(missing,))) is Reason.GRANT_READ_MISSING


def test_an_input_appears_under_its_number_to_be_read(bench: Bench) -> None:
    source = bench.workflow.attempt("run-1", "fetch", 1).out / "pull.json"
    source.parent.mkdir(parents=True)
    source.write_text("{}")
    mounts = mounts_of(build(bench.declared(), bench.host(inputs=(InputFile(0, source, "pull.json"),))))
    assert not mounts["/pulse/run/in/0/pull.json"].write


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_an_input_that_is_no_plain_file_is_refused(bench: Bench, kind: str) -> None:
    source = bench.workflow.attempt("run-1", "fetch", 1).out / "pull.json"
    source.parent.mkdir(parents=True)
    makers = {
        "link": lambda: source.symlink_to("/etc/shadow"),
        "pipe": lambda: os.mkfifo(source),
        "folder": source.mkdir,
    }
    makers[kind]()
    host = bench.host(inputs=(InputFile(0, source, "pull.json"),))
    expected = Reason.GRANT_ESCAPES_ROOT if kind == "link" else Reason.GRANT_UNREADABLE
    assert refusal(bench.declared(), host) is expected


def test_a_folder_that_cannot_be_read_is_refused_though_it_is_optional(bench: Bench) -> None:
    folder = bench.workflow.learnings / "_global"
    folder.mkdir(parents=True)
    folder.chmod(0)
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_UNREADABLE


def test_a_folder_below_one_that_the_runner_cannot_enter_is_refused(bench: Bench) -> None:
    (bench.workflow.learnings / "_global").mkdir(parents=True)
    bench.workflow.learnings.chmod(0o700)
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_UNREADABLE


def test_a_folder_of_a_stranger_is_refused(bench: Bench) -> None:
    os.chown(bench.workflow.code / "review", 12345, bench.runner.gid)
    (bench.workflow.code / "review").chmod(0o770)
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_UNREADABLE


def test_a_folder_that_everybody_may_write_is_refused(bench: Bench) -> None:
    (bench.workflow.code / "review").chmod(0o777)
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_UNREADABLE


def test_a_link_inside_the_workflow_is_refused(bench: Bench) -> None:
    (bench.workflow.code / "alias").symlink_to("review")
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_SYMLINK


@pytest.mark.parametrize("target", ["../../wf2/code/gate", "/etc", "../../../../secrets"])
def test_a_link_out_of_the_workflow_is_refused(bench: Bench, target: str) -> None:
    (bench.root / "workspaces" / "team" / "wf2" / "code" / "gate").mkdir(parents=True)
    (bench.workflow.code / "alias").symlink_to(target)
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_ESCAPES_ROOT


def test_a_link_above_the_granted_folder_is_refused(bench: Bench) -> None:
    elsewhere = bench.root / "workspaces" / "team" / "wf2" / "learnings"
    (elsewhere / "_global").mkdir(parents=True)
    bench.workflow.learnings.symlink_to(elsewhere)
    assert refusal(bench.declared(), bench.host()) is Reason.GRANT_ESCAPES_ROOT


@pytest.mark.parametrize("place", ["/etc/passwd", "wf2/code/gate/main.py", "wf/../wf2/code/gate/main.py"])
def test_files_beside_the_workflow_are_refused_whatever_their_names_begin_with(bench: Bench, place: str) -> None:
    other = bench.root / "workspaces" / "team" / "wf2" / "code" / "gate"
    other.mkdir(parents=True)
    (other / "main.py").write_text("")
    source = bench.workflow.root.parent / place
    assert refusal(bench.declared(), bench.host(inputs=(InputFile(0, source, "x"),))) is Reason.GRANT_ESCAPES_ROOT


def test_a_workflow_outside_the_data_folder_is_refused(bench: Bench) -> None:
    assert refusal(bench.declared(), bench.host(data_root=bench.root / "lib")) is Reason.GRANT_ESCAPES_ROOT


@pytest.mark.parametrize("closed", ["secrets", "database", ""])
def test_the_platforms_own_folders_are_never_mounted(bench: Bench, closed: str) -> None:
    folder = bench.root / closed if closed else bench.root / "workspaces" / ".."
    built = build(bench.declared(), bench.host())
    with built:
        forged = dataclasses.replace(built.mounts[0], real=os.path.realpath(folder), dest="/pulse/forged")
        with pytest.raises(SandboxRefused) as refused:
            policy.check_mounts([forged], built.host)
    assert refused.value.reason is Reason.POLICY_FORBIDDEN_PATH


@pytest.mark.parametrize("inside", ["db/workflow.sqlite3", "db/snapshots/1"])
def test_the_workflows_database_is_never_mounted(bench: Bench, inside: str) -> None:
    file = bench.workflow.root / inside
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert refusal(bench.declared(), bench.host(trigger=file)) is Reason.POLICY_FORBIDDEN_PATH


def test_a_grant_that_holds_bubblewrap_is_refused(bench: Bench) -> None:
    program = dataclasses.replace(bench.tools.bwrap, path=bench.workflow.code / "shared" / "bwrap")
    host = bench.host(tools=dataclasses.replace(bench.tools, bwrap=program))
    assert refusal(bench.declared(), host) is Reason.POLICY_FORBIDDEN_PATH


@pytest.mark.parametrize(
    "pair",
    [("/pulse/kb", "/pulse/kb"), ("/pulse/kb", "/pulse/kb/x"), ("/pulse/run", "/pulse/run/out")],
)
def test_a_destination_below_another_is_refused(pair: tuple[str, str]) -> None:
    mounts = [grants.Mount("code", dest, dest, False, "granted") for dest in (*pair, f"{pair[0]}-a")]
    with pytest.raises(SandboxRefused) as refused:
        grants.refuse_nested(mounts)
    assert refused.value.reason is Reason.POLICY_NESTED_MOUNT


@pytest.mark.parametrize("dest", ["/etc/x", "/pulse", "/tmp/x", "/pulse/../etc", "/usr"])
def test_a_destination_outside_the_steps_own_places_is_refused(dest: str) -> None:
    with pytest.raises(SandboxRefused) as refused:
        grants.refuse_nested([grants.Mount("code", dest, dest, False, "granted")])
    assert refused.value.reason is Reason.POLICY_NESTED_MOUNT


def test_one_source_with_two_accesses_is_refused(bench: Bench) -> None:
    source = bench.workflow.code / "main.py"
    source.write_text("")
    host = bench.host(inputs=(InputFile(0, source, "main.py"),))
    assert refusal(bench.declared(), host) is Reason.POLICY_CONFLICT


def test_a_step_without_its_folder_is_refused(bench: Bench) -> None:
    declared = bench.declared(step_id="absent")
    assert refusal(declared, bench.host()) is Reason.GRANT_WRITE_MISSING
    assert refusal(declared, bench.host(locked_steps=frozenset({"absent"}))) is Reason.GRANT_READ_MISSING


def test_declared_hosts_are_refused_in_this_release(bench: Bench) -> None:
    assert refusal(bench.declared(hosts=("api.github.com:443",)), bench.host()) is Reason.EGRESS_UNAVAILABLE


def test_a_runner_that_is_root_is_refused(bench: Bench) -> None:
    host = bench.host(tools=dataclasses.replace(bench.tools, runner=Runner(0, 0)))
    assert refusal(bench.declared(), host) is Reason.RUNNER_IS_ROOT


@pytest.mark.parametrize("limits", [Limits(processes=1), Limits(memory_mb=8), Limits(file_mb=0)])
def test_limits_that_nothing_can_start_in_are_refused(bench: Bench, limits: Limits) -> None:
    assert refusal(bench.declared(limits=limits), bench.host()) is Reason.SANDBOX_LIMITS_TOO_SMALL


def test_a_socket_that_is_not_armed_is_refused(bench: Bench) -> None:
    assert refusal(bench.declared(), bench.host(tools_socket=bench.runtime / "none.sock")) is Reason.TOOLS_UNAVAILABLE


def test_the_socket_is_bound_as_a_file_to_be_read(bench: Bench, listening: Path) -> None:
    mounts = mounts_of(build(bench.declared(), bench.host(tools_socket=listening)))
    assert not mounts["/run/pulse/tools.sock"].write


def test_the_record_can_be_stored_and_names_no_value(bench: Bench, listening: Path) -> None:
    declared = bench.declared(secrets=("GITHUB_TOKEN",), tools=("query_workflow_db",))
    host = bench.host(tools_socket=listening, env_names=("SECRET_GITHUB_TOKEN",), ids={"run_id": "r"})
    with build(declared, host) as built:
        record = json.loads(json.dumps(built.record()))
    assert record["declared"]["secrets"] == ["GITHUB_TOKEN"]
    assert record["seccomp"]["profile"] == "pulse-2"
    assert record["runner"] == {"uid": bench.runner.uid, "gid": bench.runner.gid, "dropped": True}
    by_dest = {mount["dest"]: mount for mount in record["mounts"]}
    status = bench.workflow.code.stat()
    assert by_dest["/pulse/code"]["inode"] == f"{status.st_dev}:{status.st_ino}"
    assert by_dest["/pulse/code"]["source"] == "code"


def test_what_is_declared_is_the_same_for_each_attempt_and_changes_with_a_lock(bench: Bench) -> None:
    first, second = build(bench.declared(), bench.host()), build(bench.declared(), bench.host(ids={"run_id": "other"}))
    locked = build(bench.declared(), bench.host(locked_steps=frozenset({"gate"})))
    records = []
    for built in (first, second, locked):
        with built:
            records.append(built.declared_record())
    assert records[0] == records[1] != records[2]


def test_a_refused_policy_leaves_no_descriptor_open(bench: Bench) -> None:
    before = os.listdir("/proc/self/fd")
    assert refusal(bench.declared(), bench.host(tools_socket=bench.runtime / "none.sock"))
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("access", [{}, {"learnings": "read-write"}, {"knowledgebase": "read", "assets": "read-write"}])
def test_code_and_own_outputs_are_always_granted(access: dict[str, str]) -> None:
    stores = {(grant.store, grant.access) for grant in standard_grants(access)}
    assert {("code", "read-write"), ("run", "read-write")} <= stores
