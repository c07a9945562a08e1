#!/usr/bin/env python3
"""Prepares a machine for Pulse: `python3 platform/config/bootstrap.py run|test`. Standard library only.

Makes `.venv` from the hash-pinned lock, and sees to the system packages: installed when this is root on a machine
with apt-get, named with the exact line otherwise. Run again it does nothing within milliseconds.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
LOCKS = {"run": ("runtime.lock",), "test": ("runtime.lock", "dev.lock")}
# What a purpose needs of the system: a program (or a file) that proves it is there, and Debian's package with it.
PACKAGES = {
    "run": (("bwrap", "bubblewrap"),),
    "test": (
        ("bwrap", "bubblewrap"),
        ("chromium", "chromium"),
        ("initdb", "postgresql"),
        ("redis-server", "redis-server"),
        # The numbers of the system call filter are held against these two.
        ("/usr/include/asm-generic/unistd.h", "linux-libc-dev"),
        ("/usr/lib/*/libseccomp.so.2", "libseccomp2"),
    ),
}


def main() -> int:
    purpose = sys.argv[1] if len(sys.argv) == 2 and sys.argv[1] in LOCKS else ""
    if not purpose:
        return refuse("usage: bootstrap.py run|test")
    if sys.version_info < (3, 11):
        version = ".".join(map(str, sys.version_info[:3]))
        return refuse(
            f"Pulse needs Python 3.11 or newer, and {sys.executable} is {version}. Nothing was installed. "
            "Install a newer one and name it: make PYTHON=python3.12 up"
        )
    return environment() or system_packages(purpose) or locked_packages(purpose)


def refuse(message: str) -> int:
    print(f"pulse: {message}", file=sys.stderr)
    return 1


def environment() -> int:
    """The virtual environment itself, without any package."""
    if (
        os.path.exists(PYTHON)
        and subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0
    ):
        return 0
    package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    if subprocess.run([sys.executable, "-c", "import ensurepip, venv"], capture_output=True).returncode != 0:
        if not can_install():
            return refuse(
                f"{sys.executable} cannot make virtual environments. Nothing was installed. Run: "
                f"sudo apt-get install {package}"
            )
        if apt_install([package]) != 0:
            return refuse(f"apt-get could not install {package}. Nothing else was installed. Its own words are above.")
    say("making the virtual environment .venv")
    shutil.rmtree(VENV, ignore_errors=True)
    return subprocess.run([sys.executable, "-m", "venv", VENV]).returncode


def system_packages(purpose: str) -> int:
    """Distribution packages. What cannot be had is named; the product and the suite say again what that costs."""
    missing = [package for program, package in PACKAGES[purpose] if not found(program)]
    if not missing:
        return 0
    if can_install():
        if apt_install(missing) == 0:
            return 0
        say("apt-get could not install " + " ".join(missing) + "; its own words are above.")
    else:
        say("not on this machine: " + ", ".join(missing) + f". To have it: sudo apt-get install {' '.join(missing)}")
    return 0


def locked_packages(purpose: str) -> int:
    locks = [*LOCKS[purpose]]
    if not found("bwrap"):
        locks.append("bubblewrap.lock")
    for lock in locks:
        status = install_lock(lock)
        if status != 0:
            return refuse(
                f"pip could not install lock/{lock}; its own words are above. Pulse was not started. "
                "Run the same command again when the package index can be reached."
            )
    return 0


def install_lock(lock: str) -> int:
    """Installs one lock unless this very text is installed already. Returns pip's exit code."""
    path = os.path.join(ROOT, "lock", lock)
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    stamp = os.path.join(VENV, f"installed-{lock}")
    if os.path.exists(stamp):
        with open(stamp, encoding="ascii") as file:
            if file.read() == digest:
                return 0
    say(f"installing lock/{lock}")
    pip = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--require-hashes", "-r", path]
    status = subprocess.run(pip).returncode
    if status == 0:
        with open(stamp, "w", encoding="ascii") as file:
            file.write(digest)
    return status


def found(program: str) -> bool:
    if program.startswith("/"):
        return bool(glob.glob(program))
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if program == "initdb":  # Debian keeps PostgreSQL's own programs off the PATH
        base = "/usr/lib/postgresql"
        return os.path.isdir(base) and any(
            os.path.exists(os.path.join(base, version, "bin", "initdb")) for version in os.listdir(base)
        )
    return shutil.which(program, path=path) is not None


def can_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(packages: list[str]) -> int:
    say("installing " + " ".join(packages) + " from the distribution")
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if subprocess.run(install, env=quiet, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        return 0
    subprocess.run(["apt-get", "update", "-qq"], env=quiet)
    return subprocess.run(install, env=quiet, stdout=subprocess.DEVNULL).returncode


def say(message: str) -> None:
    print(f"pulse: {message}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(refuse("stopped. Run the same command again: it goes on where it was."))
