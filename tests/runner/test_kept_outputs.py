"""What an attempt left stays as it was recorded, whoever holds descriptors of what it wrote."""

from __future__ import annotations

import hashlib
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.contract import Dependency
from engine.runner import Ending, execute
from engine.sandbox import takeover
from tests.runner.stage import Ran, Silent, Stage, scripted

pytestmark = pytest.mark.sandbox

TAKES = """
import array, mmap, os, socket, time
door = socket.socket(socket.AF_UNIX)
door.bind("/pulse/code/shared/door")
os.chmod("/pulse/code/shared/door", 0o777)
door.listen(1)
print("open", flush=True)
_, given, _, _ = door.accept()[0].recvmsg(1, socket.CMSG_SPACE(16))
folder, inner, file, readable = array.array("i", given[0][2])
mapped = mmap.mmap(file, 1, mmap.MAP_SHARED)
print("taken", flush=True)
while not os.path.exists("/pulse/code/shared/ended"):
    time.sleep(0.01)
def new(where):
    os.close(os.open("late.json", os.O_CREAT | os.O_WRONLY, dir_fd=where))
def again(handle):
    os.pwrite(os.open(f"/proc/self/fd/{handle}", os.O_WRONLY), b"again", 0)
for change in (
    lambda: os.pwrite(file, b"other", 0),
    lambda: mapped.__setitem__(0, 1),
    lambda: again(readable),
    lambda: os.truncate(file, 2),
    lambda: new(folder),
    lambda: new(inner),
    lambda: os.unlink("a.json", dir_fd=folder),
    lambda: os.rename("b.json", "c.json", src_dir_fd=folder, dst_dir_fd=inner),
    lambda: os.chmod(f"/proc/self/fd/{folder}", 0o777),
):
    try:
        change()
    except OSError:
        pass
"""
GIVES = """
import array, os, socket
os.chdir(os.environ["STEP_OUTPUT_DIR"])
os.mkdir("inner")
for name in ("a.json", "b.json", "inner/d.json"):
    open(name, "w").write("as it was")
flags = (os.O_RDONLY, os.O_RDONLY, os.O_RDWR, os.O_RDONLY)
given = array.array("i", map(os.open, (".", "inner", "a.json", "b.json"), flags))
"""
HANDS = """
with socket.socket(socket.AF_UNIX) as door:
    door.connect("/pulse/code/shared/door")
    door.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, given)])
"""


@contextmanager
def holder(stage: Stage) -> Iterator[None]:
    """Another step of the workflow that runs beside, and at the end changes what it was handed."""
    stage.write({"hold/main.py": TAKES, "shared/__init__.py": ""})
    heard, opened = Silent(), threading.Event()
    heard.wish = lambda: opened.set() if heard.grown else None
    contract = stage.resolve(scripted("hold"))
    found: list[Ending] = []
    thread = threading.Thread(target=lambda: found.append(execute(contract, heard)))
    thread.start()
    try:
        assert opened.wait(30)
        yield
    finally:
        (stage.workflow.code / "shared" / "ended").touch()
        thread.join()
    held = Ran(contract, found[0], heard)
    assert found[0].outcome == "succeeded", held
    assert "taken" in held.log, held


def kept(out: Path) -> dict[str, str]:
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_descriptors_that_were_passed_on_reach_nothing_that_is_kept(stage: Stage) -> None:
    with holder(stage):
        ran = stage.run(GIVES + HANDS)
    assert ran.ending.outcome == "succeeded", ran
    recorded = {output.path: output.sha256 for output in ran.ending.outputs}
    assert recorded == dict.fromkeys(("a.json", "b.json", "inner/d.json"), hashlib.sha256(b"as it was").hexdigest())
    assert kept(ran.out) == recorded


def test_an_attempt_ends_with_its_processes_though_another_holds_its_streams(stage: Stage) -> None:
    streams = GIVES + "given[:] = array.array('i', [1, 2, given[2], 1])\n" + HANDS
    with holder(stage):
        ran = stage.run(streams, step={"limits": {"timeout_s": 30}})
    assert ran.ending.outcome == "succeeded", ran
    assert (ran.ending.finished_at - ran.ending.started_at).total_seconds() < 30


class Full(Silent):
    """Listeners of a platform that can write no more than a megabyte to a file; the step's own limit is another."""

    def started(self, pid: int, pid_started: str) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))


@pytest.mark.parametrize(("code", "outcome"), [(0, "limit_exceeded"), (3, "script_error")])
def test_outputs_that_cannot_be_kept_are_no_outputs(stage: Stage, code: int, outcome: str) -> None:
    big = f"import pulse, sys\npulse.write_json('a.json', 'x' * (2 << 20))\nsys.exit({code})\n"
    bounds = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        ran = stage.run(big, listeners=Full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, bounds)
    assert ran.ending.outcome == outcome, ran
    assert [(output.path, output.problem) for output in ran.ending.outputs] == [("(all files)", "not_kept")]
    assert (ran.ending.reason == "disk") is (code == 0)


def test_a_step_that_leaves_nothing_keeps_no_folder_that_could_be_filled(stage: Stage) -> None:
    ran = stage.run("pass\n")
    assert (ran.ending.outcome, ran.ending.outputs) == ("succeeded", ()), ran
    assert not ran.out.exists()


def test_what_is_kept_may_be_read_by_the_next_step_and_written_by_none(stage: Stage) -> None:
    made = stage.run("import pulse\npulse.write_json('inner/a.json', 1)\n")
    kept = os.stat(made.out / "inner" / "a.json")
    assert (kept.st_uid, kept.st_mode & 0o777) == (os.geteuid(), takeover.FILE)
    assert (made.out / "inner").stat().st_mode & 0o777 == made.out.stat().st_mode & 0o777 == takeover.FOLDER
    attempt = made.contract.ask.attempt
    assert {folder.stat().st_mode & 0o777 for folder in (attempt.root, *attempt.root.parents[:2])} == {0o711}
    given = {"made/inner/a.json": Dependency(attempt, "inner/a.json")}
    step = {"context_dependencies": ["made/inner/a.json"]}
    assert stage.run("import sys\nprint(open(sys.argv[1]).read())\n", step=step, dependencies=given).log == "1\n\n"
