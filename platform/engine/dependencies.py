"""Dependency environments: one for each interpreter and requirements digest, built once, kept, shared."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.places import DataPlaces, WorkflowPlaces
from engine.sandbox.access import Runner
from engine.sandbox.errors import Absent, FileRefused
from engine.sandbox.files import Beneath
from engine.sandbox.host import HostTools
from engine.sandbox.policy import DEPS

PYTHON = f"{DEPS}/bin/python"
LARGEST_REQUIREMENTS = 256 * 1024
BUILD_TIMEOUT_S = 900
READABLE = 0o755
_FINISHED = "pulse-environment.json"
_LAYOUT = "1"
_PASSED_ON = re.compile(
    r"(UV_[A-Z_]+|PIP_INDEX_URL|PIP_EXTRA_INDEX_URL|(?i:https?_proxy|no_proxy|all_proxy)|SSL_CERT_FILE)\Z"
)
_REQUIREMENT = re.compile(r"[A-Za-z0-9]")
_LOCAL = re.compile(r"@\s*(file:|\.|/)|^[^#\s]*(\\|^\.)|(^|\s)-e\b")


class EnvironmentFailed(Exception):
    """The dependency environment was not built; nothing was started. The text names package, interpreter and index."""


@dataclass(frozen=True)
class Environment:
    """A built environment. `names` are what can be imported from it; `links` says that .pth files add to its path."""

    root: Path
    digest: str
    version: str
    names: frozenset[str]
    links: bool

    @property
    def site(self) -> str:
        """The folder of its packages, inside."""
        return f"{DEPS}/{_site(self.version)}"

    @property
    def packages(self) -> Path:
        """The same folder on the host."""
        return self.root / _site(self.version)


def ensure(
    workflow: WorkflowPlaces, data: DataPlaces, host: HostTools, settings: Mapping[str, str] | None = None
) -> Environment:
    """The environment of a workflow's requirements.txt, built when it is not there yet. Raises EnvironmentFailed.

    `settings` is where the package index is configured (UV_..., PIP_INDEX_URL, proxies); the platform's own
    environment when it is None. Nothing else of it reaches the build.
    """
    requirements = _requirements(workflow)
    digest = _digest(requirements, host)
    found = _built.get((data.environments, digest)) or _load(data.environments / digest, digest)
    if found is None:
        _check(requirements)
        with _lock(data.environments, digest):
            found = _load(data.environments / digest, digest)
            if found is None:
                given = os.environ if settings is None else settings
                _build(data.environments, digest, requirements, host, given)
                found = _load(data.environments / digest, digest)
    if found is None:
        raise EnvironmentFailed(f"The environment {digest[:12]} was built and is not there. Nothing was started.")
    _built[data.environments, digest] = found
    return found


_built: dict[tuple[Path, str], Environment] = {}


def _requirements(workflow: WorkflowPlaces) -> str:
    try:
        with Beneath(workflow.root) as folder:
            text = folder.read(workflow.requirements.name, LARGEST_REQUIREMENTS).decode("utf-8-sig")
    except Absent:
        return ""
    except (FileRefused, UnicodeDecodeError) as error:
        raise EnvironmentFailed(f"requirements.txt cannot be read ({error}). Nothing was started.") from None
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _digest(requirements: str, host: HostTools) -> str:
    parts = (_LAYOUT, str(host.interpreter.path), host.interpreter.version, host.interpreter.sha256, requirements)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _check(requirements: str) -> None:
    """Requirements are names of packages: no options, no local files, nothing that would be built by running it."""
    for line in requirements.replace("\\\n", " ").splitlines():
        plain = _REQUIREMENT.match(line) or line.startswith("--hash=") or line == "--require-hashes"
        if not plain or _LOCAL.search(line):
            raise EnvironmentFailed(
                f"requirements.txt has the line {line[:100]!r}: only names of packages with their versions and hashes"
                " are taken. The index is the operator's to configure. Nothing was installed."
            )


def _load(root: Path, digest: str) -> Environment | None:
    try:
        finished = json.loads((root / _FINISHED).read_text())
    except (OSError, ValueError):
        return None
    return Environment(root, digest, finished["version"], frozenset(finished["names"]), bool(finished["links"]))


def _build(environments: Path, digest: str, requirements: str, host: HostTools, settings: Mapping[str, str]) -> None:
    part = environments / f".{digest[:16]}.{secrets.token_hex(4)}"
    part.mkdir(mode=0o755)
    try:
        os.chmod(part, READABLE)
        _make_skeleton(part, host)
        if requirements:
            _install(part, requirements, host, settings)
        version = host.interpreter.version
        names, links = _importable(part / _site(version))
        finished = {
            "version": version,
            "names": sorted(names),
            "links": links,
            "requirements": requirements.splitlines(),
        }
        _take_over(part, host.runner)
        (part / _FINISHED).write_text(json.dumps(finished))
        part.rename(environments / digest)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _make_skeleton(root: Path, host: HostTools) -> None:
    """A virtual environment by hand: the interpreter may come without the modules that make one."""
    for folder in ("bin", _site(host.interpreter.version)):
        (root / folder).mkdir(parents=True)
    for name in ("python", "python3"):
        (root / "bin" / name).symlink_to(host.interpreter.path)
    (root / "pyvenv.cfg").write_text(
        f"home = {host.interpreter.path.parent}\ninclude-system-site-packages = false\n"
        f"version = {host.interpreter.version}\nrelocatable = true\n"
    )


def _install(root: Path, requirements: str, host: HostTools, settings: Mapping[str, str]) -> None:
    """Wheels only, as the uid that runs steps, with nothing of the platform's environment but the index."""
    work = root / ".build"
    work.mkdir()
    (work / "requirements.txt").write_text(requirements + "\n")
    if host.runner.dropped:
        for place, folders, files in os.walk(root):
            for name in ("", *folders, *files):
                os.lchown(os.path.join(place, name), host.runner.uid, host.runner.gid)
    passed = {name: value for name, value in settings.items() if _PASSED_ON.match(name)}
    env = passed | {
        "HOME": str(work),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "UV_CACHE_DIR": str(work / "cache"),
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
    }
    if "PIP_INDEX_URL" in passed:
        env.setdefault("UV_DEFAULT_INDEX", passed["PIP_INDEX_URL"])
    command = [str(_uv(root.parent, host.runner)), "pip", "install", "--no-build", "--color", "never", "--no-progress"]
    command += ["--link-mode", "copy", "--python", str(root / "bin" / "python"), "-r", str(work / "requirements.txt")]
    try:
        done = subprocess.run(
            command,
            env=env,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_TIMEOUT_S,
            umask=0o022,
            check=False,
            **host.runner.process,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailed(_failure(str(error), requirements, host, env)) from None
    if done.returncode:
        raise EnvironmentFailed(_failure(done.stdout.decode(errors="replace"), requirements, host, env))
    shutil.rmtree(work)


def _failure(said: str, requirements: str, host: HostTools, env: Mapping[str, str]) -> str:
    lines = requirements.splitlines()
    names = [re.split(r"[\s=<>!~;\[@]", line)[0] for line in lines if _REQUIREMENT.match(line)]
    blamed = [name for name in names if re.search(rf"\b{re.escape(name)}\b", said, re.IGNORECASE)] or names
    index = env.get("UV_DEFAULT_INDEX") or env.get("UV_INDEX_URL") or env.get("UV_FIND_LINKS") or "the default index"
    return (
        f"The dependencies could not be installed: {', '.join(blamed[:5])} for Python {host.interpreter.version}"
        f" ({host.interpreter.path}) from {_without_credentials(index)}. Nothing was started."
        " Only ready-made wheels are installed; nothing is built from source."
        f" {_without_credentials(said.strip())[-2000:]}"
    )


def _without_credentials(text: str) -> str:
    return re.sub(r"//[^/@\s]*@", "//***@", text)


def _uv(environments: Path, runner: Runner) -> Path:
    """uv where the runner can execute it: as it is installed, or a copy in the data folder."""
    installed = next((path for path in _uv_places() if path.exists()), None)
    if installed is None:
        raise EnvironmentFailed("uv is not installed beside the platform: no dependencies can be. Nothing was started.")
    real = Path(os.path.realpath(installed))
    if runner.barred_from(real) is None:
        return real
    status = real.stat()
    copy = environments / f".uv-{status.st_size}-{status.st_mtime_ns}"
    if not copy.exists():
        part = copy.with_name(f"{copy.name}.{secrets.token_hex(4)}")
        shutil.copyfile(real, part)
        part.chmod(0o755)
        part.rename(copy)
    return copy


def _uv_places() -> Iterator[Path]:
    yield Path(sys.prefix, "bin", "uv")
    found = shutil.which("uv")
    if found:
        yield Path(found)


def _take_over(root: Path, runner: Runner) -> None:
    """What was installed becomes the platform's own, so that no step's uid can change it."""
    for place, folders, files in os.walk(root):
        os.chmod(place, READABLE)
        for name in ("", *folders, *files):
            path = os.path.join(place, name)
            if runner.dropped:
                os.lchown(path, os.geteuid(), os.getegid())
            if name in files and not os.path.islink(path):
                os.chmod(path, 0o755 if os.stat(path).st_mode & 0o100 else 0o644)


def _importable(site: Path) -> tuple[set[str], bool]:
    """Top-level names that can be imported from a folder of packages, and whether .pth files add others."""
    names: set[str] = set()
    links = False
    for entry in os.scandir(site):
        stem, dot, ending = entry.name.partition(".")
        if entry.is_dir() and not dot:
            names.add(entry.name)
        elif ending == "py" or ending.endswith("so") or ending == "pyc":
            names.add(stem)
        elif entry.name.endswith(".pth"):
            links = True
    return names - {"__pycache__"}, links


def _site(version: str) -> str:
    return f"lib/python{'.'.join(version.split('.')[:2])}/site-packages"


@contextmanager
def _lock(environments: Path, digest: str) -> Iterator[None]:
    """Two workers that need the same environment build it once."""
    environments.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(environments / f".{digest[:16]}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
