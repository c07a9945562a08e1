"""A launch from its start to its end: what is known of its exit, and that nothing of it is left."""

from __future__ import annotations

import ctypes
import os
import re
import select
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engine.sandbox import diagnosis, launch, policy, processes
from engine.sandbox.errors import Reason, SandboxRefused
from engine.sandbox.launch import Sandbox
from engine.sandbox.limits import Limits
from tests.sandbox.bench import ENV, Bench, finish

pytestmark = pytest.mark.sandbox

HIDE = """
import os, signal, sys, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        time.sleep(600)
    os._exit(0)
print("hidden", flush=True)
"""


def processes_of(uid: int) -> list[int]:
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                state = Path(f"/proc/{entry.name}/stat").read_text().rpartition(")")[2].split()[0]
                if entry.stat().st_uid == uid and state != "Z":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def first_line(sandbox: Sandbox) -> str:
    assert select.select([sandbox.stdout], [], [], 20)[0]
    return os.read(sandbox.stdout, 4096).decode()


@pytest.mark.parametrize("code", [0, 1, 2, 77])
def test_the_exit_code_is_the_commands(shared_bench: Bench, code: int) -> None:
    ended = shared_bench.run(f"raise SystemExit({code})")
    assert (ended.exit.code, ended.exit.signal, ended.exit.command_ran, ended.exit.killed) == (code, None, True, False)


def test_a_signal_is_told(shared_bench: Bench) -> None:
    ended = shared_bench.run("import os; os.kill(os.getpid(), 11)")
    assert (ended.exit.code, ended.exit.signal, ended.exit.command_ran) == (139, 11, True)


def test_text_that_looks_like_bubblewraps_is_the_steps_own_failure(shared_bench: Bench) -> None:
    ended = shared_bench.run(
        "import sys; sys.stderr.write('bwrap: No permissions to create new namespace'); sys.exit(1)"
    )
    assert ended.exit.command_ran
    assert ended.exit.code == 1


def test_a_command_that_cannot_be_run_ends_as_a_shell_would_say_it(shared_bench: Bench) -> None:
    ended = shared_bench.run("", argv=["/pulse/lib/absent"])
    assert ended.exit.code == 127
    assert "/pulse/lib/absent" in ended.stderr


def test_a_working_folder_that_is_not_there_is_a_failed_set_up(shared_bench: Bench) -> None:
    built = policy.build(shared_bench.declared(), shared_bench.host())
    sandbox = launch.start(built, argv=["/usr/bin/true"], env=ENV, cwd="/pulse/code/absent")
    ended = finish(sandbox)
    sandbox.close()
    assert not ended.exit.command_ran
    assert "absent" in diagnosis.refusal(ended.stderr).detail


def test_frame_and_claims_go_over_their_own_descriptors(shared_bench: Bench) -> None:
    script = """
import os, sys
frame, claims = map(int, sys.argv[1:])
with os.fdopen(frame, "rb") as file, os.fdopen(claims, "wb") as out:
    out.write(file.read()[::-1])
"""
    frame = os.urandom(300_000)
    sandbox = shared_bench.start(script, frame=frame)
    claimed, deadline = b"", time.monotonic() + 20
    while time.monotonic() < deadline:
        select.select([sandbox.claims], [], [], 1)
        try:
            piece = os.read(sandbox.claims, 65536)
        except BlockingIOError:
            continue
        if not piece:
            break
        claimed += piece
    assert finish(sandbox).exit.code == 0
    sandbox.close()
    assert claimed == frame[::-1]


def test_nothing_is_in_the_arguments_that_others_can_see(shared_bench: Bench) -> None:
    sandbox = shared_bench.start(
        "import time; time.sleep(60)", env=ENV | {"SECRET_TOKEN": "correct horse"}, frame=b"battery"
    )
    seen = ""
    for pid in processes_of(shared_bench.runner.uid):
        seen += Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    sandbox.kill()
    assert sandbox.wait(5)
    sandbox.close()
    assert "--args" in seen
    assert "horse" not in seen
    assert "battery" not in seen
    assert str(shared_bench.root) not in seen


def test_a_detached_process_is_gone_when_the_command_has_ended(shared_bench: Bench) -> None:
    ended = shared_bench.run(HIDE)
    assert ended.exit.code == 0
    assert processes_of(shared_bench.runner.uid) == []


def test_a_kill_ends_what_hid_and_ignores_signals(shared_bench: Bench) -> None:
    sandbox = shared_bench.start(HIDE + "time.sleep(600)")
    assert "hidden" in first_line(sandbox)
    assert len(processes_of(shared_bench.runner.uid)) >= 3
    assert not sandbox.gone()
    sandbox.kill()
    ended = sandbox.wait(2)
    assert ended is not None
    assert ended.killed
    assert not ended.command_ran or ended.code == 137
    assert sandbox.gone()
    assert processes_of(shared_bench.runner.uid) == []
    sandbox.kill()
    sandbox.close()


def test_killing_everything_from_inside_reaches_nothing_outside(shared_bench: Bench) -> None:
    watched = shared_bench.start("import time; time.sleep(600)")
    script = "import os; child = os.fork() or os.read(os.pipe()[0], 1); os.kill(-1, 9); print(os.waitpid(child, 0)[1])"
    assert shared_bench.run(script).stdout == "9\n"
    assert watched.wait(0) is None
    watched.kill()
    assert watched.wait(5)
    watched.close()


def test_a_reaper_that_knows_pid_and_start_ends_the_whole_tree(shared_bench: Bench) -> None:
    sandbox = shared_bench.start(HIDE + "time.sleep(600)")
    first_line(sandbox)
    assert processes.alive(sandbox.pid, sandbox.pid_started)
    assert processes.kill_tree(sandbox.pid, sandbox.pid_started)
    assert processes.kill_tree(sandbox.pid, sandbox.pid_started)
    assert sandbox.wait(5)
    assert processes_of(shared_bench.runner.uid) == []
    sandbox.close()


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        started = processes.started(other.pid)
        assert started
        ticks, _, boot = started.partition("@")
        for stale in (f"{int(ticks) - 1}@{boot}", f"{ticks}@another", "", "x"):
            assert not processes.alive(other.pid, stale)
            assert processes.kill_tree(other.pid, stale)
        assert other.poll() is None
        assert processes.alive(other.pid, started)
        assert processes.kill_tree(other.pid, started)
        assert other.wait(5) == -9


WORKER = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from engine.places import DataPlaces
from engine.sandbox import host
from tests.sandbox.bench import Bench
root = Path({root!r})
workflow = DataPlaces(root).workflow("team", "wf")
bench = Bench(root, host.find(root, runner_uid={uid}), root / "sockets", workflow, {number})
sandbox = bench.start({script!r}, frame=b"go")
print(sandbox.pid, sandbox.pid_started, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [900, 901, 902])
def test_when_the_worker_dies_its_sandbox_dies(shared_bench: Bench, number: int) -> None:
    script = WORKER.format(
        path=sys.path,
        root=str(shared_bench.root),
        uid=shared_bench.runner.uid,
        number=number,
        script=HIDE + "time.sleep(600)",
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout
        pid, started = worker.stdout.readline().split()
        worker.kill()
        worker.wait()
    assert processes.wait_gone(int(pid), started, 5)
    assert not processes.alive(int(pid), started)


def test_a_worker_that_dies_while_it_launches_leaves_no_command_running(shared_bench: Bench) -> None:
    """Killed at different moments of the launch: without its frame nothing runs, and a sweep ends the rest."""
    waits = "import os, sys, time; os.read(int(sys.argv[1]), 9) == b'go' and time.sleep(600)"
    launching = WORKER.replace("sandbox = ", "print('ready', flush=True)\nsandbox = ", 1)
    for moment in range(10):
        number = 1000 + moment
        script = launching.format(
            path=sys.path, root=str(shared_bench.root), uid=shared_bench.runner.uid, number=number, script=waits
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout
            assert worker.stdout.readline() == "ready\n"
            time.sleep(moment * 0.002)
            worker.kill()
    deadline = time.monotonic() + 10
    while processes_of(shared_bench.runner.uid) and time.monotonic() < deadline:
        time.sleep(0.05)
        processes.sweep(shared_bench.runner.uid)
    assert processes_of(shared_bench.runner.uid) == []


def test_a_sweep_leaves_sandboxes_alone_that_are_watched(shared_bench: Bench) -> None:
    sandbox = shared_bench.start("import time; time.sleep(600)")
    assert processes.sweep(shared_bench.runner.uid) == 0
    assert sandbox.wait(0.1) is None
    sandbox.kill()
    assert sandbox.wait(5)
    sandbox.close()


def test_threads_may_end_while_it_runs_also_the_one_that_started_it(shared_bench: Bench) -> None:
    box: list[Sandbox] = []
    runner = threading.Thread(target=lambda: box.append(shared_bench.start("import time; time.sleep(600)")))
    runner.start()
    runner.join()
    assert box[0].wait(0.3) is None
    box[0].kill()
    assert box[0].wait(5)
    box[0].close()


def test_the_platform_keeps_its_own_ids_and_cannot_be_traced_by_the_runner(shared_bench: Bench) -> None:
    sandbox = shared_bench.start("import time; time.sleep(600)")
    ids = {
        line
        for thread in Path("/proc/self/task").iterdir()
        for line in (thread / "status").read_text().splitlines()
        if line.startswith(("Uid:", "Gid:", "Groups:"))
    }
    assert len(ids) == 3, "all threads have the same"
    assert not any(str(shared_bench.runner.uid) in line for line in ids)
    outside = Path(f"/proc/{sandbox.pid}/status").read_text()
    assert f"Uid:\t{shared_bench.runner.uid}\t{shared_bench.runner.uid}\t{shared_bench.runner.uid}" in outside
    assert re.search(r"^Groups:\s*$", outside, re.MULTILINE)
    assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0, "PR_GET_DUMPABLE"
    sandbox.kill()
    assert sandbox.wait(5)
    sandbox.close()


def test_the_admitted_folder_is_mounted_though_its_name_was_given_to_another(bench: Bench) -> None:
    built = policy.build(bench.declared(), bench.host())
    code = bench.workflow.code
    code.rename(code.with_name("moved"))
    (code / "gate").mkdir(parents=True)
    argv = [str(bench.tools.interpreter.path), "-c", "import os; print(os.listdir('/pulse/code/gate'))"]
    sandbox = launch.start(built, argv=argv, env=ENV, cwd="/pulse/code/gate")
    ended = finish(sandbox)
    sandbox.close()
    assert ended.stdout == "['main.py']\n"


def test_a_folder_that_appears_later_is_not_granted_to_an_attempt_that_runs(bench: Bench) -> None:
    script = "import os, sys; os.read(int(sys.argv[1]), 9); print(os.path.exists('/pulse/learnings/_global'))"
    sandbox = bench.start(f"import time; print('up'); time.sleep(0.5); {script}", frame=b"")
    assert first_line(sandbox).startswith("up")
    (bench.workflow.learnings / "_global").mkdir(parents=True)
    assert finish(sandbox).stdout.strip().endswith("False")
    sandbox.close()


@pytest.mark.parametrize("mode", [0o750, 0o770])
def test_no_entry_of_the_code_can_be_made_replaced_or_taken_away(bench: Bench, mode: int) -> None:
    """By the folder's own mode where the code is one mount, by the mounts of its entries where it is not."""
    os.chown(bench.workflow.code, -1, bench.runner.gid)
    bench.workflow.code.chmod(mode)
    (bench.workflow.code / "helper.py").write_text("")
    script = """
import os
os.chdir("/pulse/code")
tries = [(os.mkdir, "new"), (os.rename, "review", "away"), (os.rename, "gate/main.py", "helper.py"),
    (os.unlink, "helper.py"), (os.rmdir, "shared"), (os.chmod, ".", 0o777), (os.link, "gate/main.py", "linked"),
    (os.symlink, "/etc", "link"), (os.mkfifo, "pipe"), (os.open, ".", os.O_TMPFILE | os.O_RDWR)]
for what, *given in tries:
    try:
        what(*given)
        print(what.__name__, given)
    except OSError:
        pass
"""
    before = sorted(path.stat().st_ino for path in bench.workflow.code.iterdir())
    assert bench.run(script).stdout == ""
    assert sorted(path.stat().st_ino for path in bench.workflow.code.iterdir()) == before
    assert stat.S_IMODE(bench.workflow.code.stat().st_mode) == mode


def test_code_of_a_locked_step_is_closed_and_that_of_another_is_open(bench: Bench) -> None:
    script = """
for path in ("/pulse/code/gate/main.py", "/pulse/code/review/main.py"):
    try:
        with open(path, "a") as file: file.write("# changed")
        print("written")
    except OSError as error:
        print(error.errno)
"""
    for file in ("gate", "review"):
        os.chown(bench.workflow.code / file / "main.py", bench.runner.uid, bench.runner.gid)
    assert bench.run(script, host=bench.host(locked_steps=frozenset({"gate"}))).stdout == "30\nwritten\n"
    assert bench.run(script).stdout == "written\nwritten\n"
    assert "changed" in (bench.workflow.code / "gate" / "main.py").read_text()


def test_a_link_planted_by_a_step_makes_nothing_on_the_host(bench: Bench) -> None:
    victim = bench.root / "victim"
    victim.mkdir(mode=0o777)
    victim.chmod(0o777)
    plant = f"""
import os
for folder in ("/pulse/code/gate", "/pulse/run/out", "/pulse/learnings/_global"):
    for name in ("gate", "run", "in", "0", "lib", "pulse", "sub"):
        for target in ("/oldroot{victim}", "{victim}", "/newroot{victim}"):
            path = f"{{folder}}/{{name}}"
            if not os.path.lexists(path): os.symlink(target, path)
"""
    declared = bench.declared(access={"learnings": "read-write", "knowledgebase": "read-write"})
    attempt = bench.new_attempt()
    for _ in range(12):
        host = bench.host(attempt=attempt)
        assert bench.run(plant, declared=declared, host=host).exit.code == 0
    running = [bench.start(plant, declared=declared, host=bench.host(attempt=attempt)) for _ in range(4)]
    for sandbox in running:
        assert finish(sandbox).exit.code == 0
        sandbox.close()
    assert list(victim.iterdir()) == []


def test_a_limit_that_cannot_be_set_is_refused(bench: Bench) -> None:
    built = policy.build(bench.declared(limits=Limits(open_files=2**40)), bench.host())
    with pytest.raises(SandboxRefused) as refused:
        launch.start(built, argv=["/usr/bin/true"], env=ENV, cwd="/")
    assert refused.value.reason is Reason.SANDBOX_INCOMPLETE


def test_a_command_that_waits_for_its_frame_has_its_limits_before_it(shared_bench: Bench) -> None:
    kinds = "(r.RLIMIT_NPROC, r.RLIMIT_CPU, r.RLIMIT_AS)"
    script = f"import os, resource as r, sys; os.read(int(sys.argv[1]), 9); print(*map(r.getrlimit, {kinds}))"
    limits = Limits(processes=33, cpu_s=7, memory_mb=200)
    built = policy.build(shared_bench.declared(limits=limits), shared_bench.host())
    command = [str(shared_bench.tools.interpreter.path), "-I", "-c", script]
    sandbox = launch.start(built, argv=command, env=ENV, cwd="/pulse/code/gate", frame="later")
    sandbox.release(b"go")
    assert finish(sandbox).stdout == f"{(33, 33)} {(7, 8)} {(200 << 20, 200 << 20)}\n"
    sandbox.close()


def test_launches_leave_no_descriptor_behind(bench: Bench) -> None:
    bench.run("pass")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        bench.run("pass")
    assert len(os.listdir("/proc/self/fd")) == before
