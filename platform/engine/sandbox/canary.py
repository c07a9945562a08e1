"""One real launch that shows whether this host can confine a step: run by the doctor, and at each start of a worker.

Nothing of it is remembered: what a host allowed yesterday says nothing of today.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import socket
import tempfile
import time
from pathlib import Path

from engine.places import WorkflowPlaces
from engine.sandbox import launch, policy
from engine.sandbox.checks import Check
from engine.sandbox.errors import FileRefused, SandboxRefused
from engine.sandbox.files import Beneath
from engine.sandbox.host import HostTools
from engine.sandbox.launch import Exit, Sandbox
from engine.sandbox.limits import Limits

LIMITS = Limits(timeout_s=20, cpu_s=10, memory_mb=512, processes=24, file_mb=1, tmp_mb=2, shm_mb=2)
STEP = "canary"
CURE = "No step is started on this host. Run `manage.py doctor` for the whole picture."
NAMESPACES = ("user", "pid", "net", "ipc", "uts")
_ENV = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}  # noqa: S108 - inside
_PROBE = Path(__file__).with_name("probe.py")
_MOST = 256 * 1024


def check(tools: HostTools, data_root: Path, runtime: Path) -> list[Check]:
    """Launches the probe in a throw-away workflow below `data_root` and says what held. Takes well below a second."""
    folder = Path(tempfile.mkdtemp(prefix=".canary-", dir=data_root))
    try:
        folder.chmod(0o711)
        return _check(tools, data_root, runtime, folder)
    except SandboxRefused as refusal:
        return [Check("launch", False, f"{refusal.reason}: {refusal.detail}", refusal.cure or CURE)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(tools: HostTools, data_root: Path, runtime: Path, folder: Path) -> list[Check]:
    workflow = WorkflowPlaces(folder / "workflow")
    facts = _lay_out(workflow, folder)
    path = runtime / f"canary-{secrets.token_hex(6)}.sock"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
        listener.bind(str(path))
        stack.callback(path.unlink, missing_ok=True)
        path.chmod(0o666)
        listener.listen(1)
        host = policy.Host(
            data_root=data_root,
            runtime=runtime,
            workflow=workflow,
            attempt=workflow.attempt("run", STEP, 1),
            library=folder / "lib",
            tools=tools,
            tools_socket=path,
        )
        declared = policy.Declared(STEP, policy.standard_grants({}), limits=LIMITS)
        argv = [str(tools.interpreter.path), "-I", "-B", f"{policy.CODE}/{STEP}/main.py", json.dumps(facts)]
        built = policy.build(declared, host)
        sandbox = launch.start(built, argv=argv, env=_ENV, cwd=f"{policy.CODE}/{STEP}", frame="later")
        stack.callback(sandbox.close)
        stack.callback(sandbox.kill)
        sandbox.release(facts["word"].encode())
        said, complaint = _read(sandbox)
        ended = sandbox.wait(5)
        return _judge(ended, said, complaint, _written(host, facts["word"]))


def _lay_out(workflow: WorkflowPlaces, folder: Path) -> dict[str, str]:
    step = workflow.code / STEP
    step.mkdir(parents=True)
    shutil.copyfile(_PROBE, step / "main.py")
    (folder / "lib").mkdir()
    (folder / "outside").write_text("not for steps\n")
    workflow.attempt("run", STEP, 1).root.mkdir(parents=True)
    facts = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES}
    facts |= {"outside": str(folder / "outside"), "word": secrets.token_hex(8), "machine": os.uname().machine}
    facts |= {"names": " ".join(_ENV), "tmp_mb": str(LIMITS.tmp_mb), "file_mb": str(LIMITS.file_mb)}
    return facts | {"processes": str(LIMITS.processes)}


def _read(sandbox: Sandbox) -> tuple[bytes, bytes]:
    """Both streams, until the probe itself has ended (its daemon holds none of them) or time is up."""
    texts = {sandbox.stdout: b"", sandbox.stderr: b""}
    open_ends, deadline = set(texts), time.monotonic() + LIMITS.timeout_s
    while open_ends and (left := deadline - time.monotonic()) > 0:
        for end in select.select(list(open_ends), [], [], left)[0]:
            piece = os.read(end, 65536)
            if not piece:
                open_ends.discard(end)
            elif len(texts[end]) < _MOST:
                texts[end] += piece
    return texts[sandbox.stdout], texts[sandbox.stderr]


def _written(host: policy.Host, word: str) -> bool:
    try:
        with Beneath(host.attempt.out) as out:
            return out.read("written", 100) == word.encode()
    except FileRefused:
        return False


def _judge(ended: Exit | None, said: bytes, complaint: bytes, written: bool) -> list[Check]:
    try:
        found = json.loads(said)
    except ValueError:
        return [_one("launch", _end(ended, complaint))]
    outlived = None if ended else "a detached process outlived its sandbox for 5 s"
    return [
        _one("launch", None if ended is None or ended.code == 0 else _end(ended, complaint)),
        *(_one(name, problem) for name, problem in found.items()),
        _one("outputs arrive on the host", None if written else "what the probe wrote is not there"),
        _one("detached processes end with the sandbox", outlived),
    ]


def _one(name: str, problem: str | None) -> Check:
    return Check(name, True) if problem is None else Check(name, False, problem, CURE)


def _end(ended: Exit | None, complaint: bytes) -> str:
    last = complaint.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
    return f"the probe ended with {ended.code if ended else 'nothing'}: {last[0][:300]}"
