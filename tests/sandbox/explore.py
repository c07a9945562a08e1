"""Runs inside a sandbox: tries everything and prints what came of it. Its facts come as JSON in the first argument."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable

found: dict[str, object] = {}
READ = ("another workflow", "data folder", "link in outputs")
CLOSED = (
    *("/x", "/usr/x", "/etc/x", "/etc/passwd", "/dev/x", "/proc/sys/kernel/core_pattern", "/pulse/x"),
    *(
        "/pulse/code/x",
        "/pulse/run/x",
        "/pulse/lib/boot.py",
        "/proc/self/oom_score_adj",
        "/proc/1/mem",
        "/proc/self/mem",
    ),
)
OPEN = ("/dev/null", "/tmp/x", "/dev/shm/x", "/pulse/run/out/x", "/pulse/code/gate/x", "/pulse/code/shared/x")
FAMILIES = {"unix": 1, "inet": 2, "inet6": 10, "vsock": 40, "netlink": 16, "packet": 17, "alg": 38}


def attempt(name: str, action: Callable[..., object], *arguments: object) -> None:
    try:
        found[name] = repr(action(*arguments))
    except OSError as error:
        found[name] = errno.errorcode.get(error.errno or 0, str(error))


def read(path: str) -> str:
    with open(path) as file:
        return file.read(200)


def write(path: str) -> str:
    with open(path, "a") as file:
        file.write("planted")
    return "written"


def connect(family: int, kind: int, address: object, protocol: int = 0) -> None:
    with socket.socket(family, kind, protocol) as client:
        client.settimeout(3)
        client.connect(address)
        client.send(b"x")


def files(facts: dict[str, str]) -> None:
    os.symlink(facts["another workflow"], "/pulse/run/out/leak")
    for name, path in (facts | {"link in outputs": "/pulse/run/out/leak", "shadow": "/etc/shadow"}).items():
        attempt(name, read, path)
    attempt("passwd", read, "/etc/passwd")
    for path in (*CLOSED, *OPEN):
        attempt(f"write {path}", write, path)
    attempt("new entry of code", os.mkdir, "/pulse/code/new")
    attempt("device", os.mknod, "/pulse/run/out/null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    attempt("pipe", os.mkfifo, "/tmp/pipe")
    attempt("chown", os.chown, "/pulse/run/out/x", 0, 0)
    attempt("hard link", os.link, "/pulse/lib/boot.py", "/pulse/run/out/boot.py")
    found["mode of a new file"] = oct(os.stat("/pulse/run/out/x").st_mode & 0o777)
    for folder in ("/", "/pulse/run", "/pulse/code"):
        found[f"list {folder}"] = sorted(os.listdir(folder))


def itself() -> None:
    with open("/proc/1/environ", "rb") as file:
        found["names of pid 1"] = [part.split(b"=")[0].decode() for part in file.read().split(b"\0") if part]
    found["names"] = list(os.environ)
    links = {number: f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")}
    found["descriptors"] = sorted(int(number) for number, link in links.items() if os.path.lexists(link))
    attempt("stdout", os.readlink, "/proc/self/fd/1")
    with open("/proc/self/status") as file:
        found["status"] = dict(
            line.strip().split(":\t") for line in file if line.startswith(("Cap", "NoNew", "Seccomp:"))
        )
    found["self"] = [socket.gethostname(), os.getuid(), os.getgid(), os.getcwd()]


def network(facts: dict[str, str]) -> None:
    for name, family in FAMILIES.items():
        attempt(f"family {name}", lambda family=family: socket.socket(family, socket.SOCK_DGRAM).close())
    attempt("tcp", connect, socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.7", 443))
    attempt("udp", connect, socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.7", 53))
    attempt("tcp6", connect, socket.AF_INET6, socket.SOCK_STREAM, ("2001:db8::7", 443))
    attempt("icmp", connect, socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.7", 1), socket.IPPROTO_ICMP)
    attempt("loopback", connect, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(facts["port"])))
    attempt("abstract socket", connect, socket.AF_UNIX, socket.SOCK_STREAM, "\0pulse-test-" + facts["port"])
    try:
        found["names resolved"] = repr(socket.getaddrinfo("example.com", 443))
    except socket.gaierror:
        found["names resolved"] = "none"


def programs() -> None:
    for command in ("bwrap --unshare-user --ro-bind / / true", "unshare -U true", "unshare -n true", "ls /usr"):
        found[command] = subprocess.run(command.split(), capture_output=True, check=False).returncode
    attempt("ioctl of a terminal", fcntl.ioctl, os.openpty()[1], 0x5412, b"x")
    box: list[int] = []
    thread = threading.Thread(target=box.append, args=(1,))
    thread.start()
    thread.join()
    found["threads"] = len(box)
    with multiprocessing.Pool(2) as pool:
        found["pool"] = pool.map(abs, [-1, -2])
    os.kill(1, 9)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    itself()
    files({name: given[name] for name in ("another workflow", "data folder")})
    network(given)
    programs()
    print(json.dumps(found))
