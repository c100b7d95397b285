"""Makes dist/spindle.zip, what `spark-submit --py-files` ships: the package with its configuration, jobs and SQL.

Byte for byte the same for the same sources, so that a rebuilt zip changes no digest.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "lib" / "spindle"
SUFFIXES = {".py", ".toml", ".sql", ".conf", ".properties", ".xml", ".typed"}


def main() -> None:
    target = ROOT / "dist" / "spindle.zip"
    target.parent.mkdir(exist_ok=True)
    made = target.with_suffix(".new")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as bundle:
        for folder, _, names in sorted(os.walk(PACKAGE, followlinks=True)):
            for name in sorted(names):
                file = Path(folder, name)
                if file.suffix in SUFFIXES:
                    entry = zipfile.ZipInfo(str(Path("spindle") / file.relative_to(PACKAGE)), (2020, 1, 1, 0, 0, 0))
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    bundle.writestr(entry, file.read_bytes())
    made.replace(target)


if __name__ == "__main__":
    main()
