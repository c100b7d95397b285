"""Installs what `make test-heavy` needs beyond `.venv`: nginx and Debian's python3-doc (real HTML to crawl), which only
root can bring, and tools from PyPI (Airflow, ...), each in an environment of its own: `heavy.d/NAME.lock` goes
into `.venv-NAME`.

Decides what is missing and how a shortage is told; the tests decide by themselves whether they can run. What is there
is left alone, so a second run does nothing and needs no network. In CI a shortage is an error, elsewhere a sentence.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = Path(__file__).resolve().parent / "heavy.d"
DOCUMENTATION = "/usr/share/doc/python3*/html/index.html"
#: Debian package -> whether it is here. Other systems may bring the same files by other means.
NEEDED: dict[str, Callable[[], bool]] = {
    "nginx-light": lambda: shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"]) is not None,
    "python3-doc": lambda: any(Path("/").glob(DOCUMENTATION[1:])),
}
#: Slim images leave documentation out when they install; nothing else is upgraded along the way.
OPTIONS = [
    *("-o", "Dpkg::Options::=--path-include=/usr/share/doc/python3*"),
    *("-o", "APT::Get::Upgrade-By-Source-Package=false"),
]


class Shortage(Exception):
    """Why something cannot be installed here."""


def main() -> int:
    codes = [environment(ROOT / f".venv-{lock.stem}", lock) for lock in sorted(LOCKS.glob("*.lock"))]
    return max(of_the_system(), *codes)


def environment(home: Path, lock: Path) -> int:
    """What the lock file names, unless this very lock is installed already."""
    done, wanted = home / "installed", hashlib.sha256(lock.read_bytes()).hexdigest()
    if done.exists() and done.read_text() == wanted:
        print(f"heavy: {lock.stem} is in {home.name}; not installed again")
        return 0
    print(f"heavy: installing {lock.stem} into {home.name}", flush=True)
    venv.create(home, with_pip=True, clear=True)
    command = [home / "bin" / "pip", "install", "--quiet", "--require-hashes", "--no-deps", "-r", lock]
    if (code := subprocess.run(command, check=False).returncode) != 0:
        return tell([lock.stem], f"pip ended with exit code {code}")
    done.write_text(wanted)
    return 0


def of_the_system() -> int:
    """The packages of Debian."""
    missing = [package for package, here in NEEDED.items() if not here()]
    for package in NEEDED:
        if package not in missing:
            print(f"heavy: {package} is here; not installed again")
    if not missing:
        return 0
    try:
        install(missing)
    except Shortage as shortage:
        return tell(missing, str(shortage))
    return 0


def tell(missing: list[str], why: str) -> int:
    """An error in CI, where nothing is skipped in silence; a note for a user, whose other tests run all the same."""
    print(f"heavy: {' and '.join(missing)} not installed: {why}", file=sys.stderr)
    if os.environ.get("CI") == "true":
        return 1
    print("heavy: the tests that need them will be skipped", file=sys.stderr)
    return 0


def install(packages: list[str]) -> None:
    """Raises Shortage: no apt-get, not root, or apt-get failed (with its last words)."""
    if shutil.which("apt-get") is None:
        raise Shortage("this is no Debian; install nginx, and the HTML of Python's documentation at " + DOCUMENTATION)
    if os.geteuid() != 0:
        raise Shortage(f"only root can; run: sudo apt-get install --no-install-recommends {' '.join(packages)}")
    print(f"heavy: installing {' and '.join(packages)}", flush=True)
    try:
        without_services(lambda: apt_get("install", "-y", "--no-install-recommends", *OPTIONS, *packages))
    except Shortage:  # the package lists are missing or old
        apt_get("update")
        without_services(lambda: apt_get("install", "-y", "--no-install-recommends", *OPTIONS, *packages))
    if absent := [package for package in packages if not NEEDED[package]()]:
        raise Shortage(f"apt-get succeeded, but the files of {' and '.join(absent)} are not where they should be")


def without_services(action: Callable[[], None], policy: Path = Path("/usr/sbin/policy-rc.d")) -> None:
    """Runs `action` while packages may not start their services: our nginx is started by the test, on its own port."""
    if policy.exists():  # a container's own; it says no already, or its owner wants otherwise
        action()
        return
    policy.write_text("#!/bin/sh\nexit 101\n")  # "action forbidden by policy" (invoke-rc.d(8))
    policy.chmod(0o755)
    try:
        action()
    finally:
        policy.unlink()


def apt_get(*words: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-qq", *words],
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise Shortage(f"apt-get {words[0]}: {' / '.join(last) or f'exit code {done.returncode}'}")


if __name__ == "__main__":
    sys.exit(main())
