"""What bubblewrap is told: all of it explicit, flat, and nothing that the step could have a hand in."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.sandbox import arguments, policy
from engine.sandbox.errors import Reason, SandboxRefused
from tests.sandbox.bench import Bench


def words(bench: Bench, **changes: object) -> list[str]:
    declared = bench.declared(access={"learnings": "read-write", "assets": "read-write"})
    with policy.build(declared, bench.host(**changes)) as built:
        return arguments.arguments(built, arguments.Handed({}, 90, 91), "/pulse/code/gate")


def test_each_namespace_is_asked_for_by_its_own_name(bench: Bench) -> None:
    told = set(words(bench))
    assert {f"--unshare-{kind}" for kind in ("user", "ipc", "pid", "net", "uts", "cgroup")} <= told
    assert {"--disable-userns", "--assert-userns-disabled", "--die-with-parent", "--new-session", "--cap-drop"} <= told
    assert not [word for word in told if word.endswith("-try") and word != "--ro-bind-try"]
    assert "--unshare-all" not in told


def test_no_path_of_the_data_folder_is_named(bench: Bench) -> None:
    assert not [word for word in words(bench) if str(bench.root) in word]


def test_every_parent_of_a_mount_is_made_in_bubblewraps_own_root_before_any_mount(bench: Bench) -> None:
    told = words(bench)
    first_mount = min(index for index, word in enumerate(told) if word in {"--bind-fd", "--ro-bind-fd"})
    made = {told[index + 1] for index, word in enumerate(told[:first_mount]) if word == "--dir"}
    mounts = [told[index + 2] for index, word in enumerate(told) if word in {"--bind-fd", "--ro-bind-fd"}]
    assert {str(Path(dest).parent) for dest in mounts} <= made
    assert "--dir" not in told[first_mount:]


def test_everything_is_made_read_only_at_the_end(bench: Bench) -> None:
    told = words(bench)
    assert [told[index + 1] for index, word in enumerate(told) if word == "--remount-ro"] == ["/proc", "/dev", "/"]
    assert told.index("--remount-ro") > max(index for index, word in enumerate(told) if word.endswith("bind-fd"))


@pytest.mark.parametrize("place", ["/", "/root/python", "/home/x", "/pulse/python", "/tmp/python", "/etc"])
def test_an_interpreter_in_a_place_that_is_not_its_own_is_refused(bench: Bench, place: str) -> None:
    with pytest.raises(SandboxRefused) as refused:
        list(arguments._system(Path(place)))
    assert refused.value.reason is Reason.INTERPRETER_UNREACHABLE
    assert "/opt/python" in list(arguments._system(Path("/opt/python")))
