"""Segment files: one interface over a local folder and S3, with the few promises that the journal is built on.

A name appears only when its content is complete; `create_exclusive` lets exactly one of several creators win. This file
decides how each place keeps those promises; it knows nothing of what the files mean. S3 is in `store_s3`.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from spindle.errors import WarehouseError

_BUFFER_BYTES = 1 << 18


class Writer(ABC):
    """A file being written: bytes go in, and the name exists only after `seal`. `abandon` leaves nothing behind."""

    name: str
    size: int = 0

    @abstractmethod
    def write(self, data: bytes) -> None: ...

    @abstractmethod
    def seal(self) -> None: ...

    @abstractmethod
    def abandon(self) -> None: ...


class Store(ABC):
    """Files by name (`/` separated) under one root. Every failure to read or write is a `WarehouseError` that names the
    file; a name that does not exist is a `FileNotFoundError`. Picklable; clients are made where they are used."""

    root: str

    @abstractmethod
    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        """Write or replace a file in one step. `durable=False` skips the flush to disk (progress, hints)."""

    @abstractmethod
    def create_exclusive(self, name: str, content: bytes) -> bool:
        """Create the file unless it exists; True for the one creator that won. The winner's content is complete."""

    @abstractmethod
    def get(self, name: str) -> bytes: ...

    @abstractmethod
    def get_range(self, name: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on; fewer at the end of the file."""

    @abstractmethod
    def list(self, prefix: str) -> list[str]:
        """Names that start with `prefix`, sorted; unfinished files are not among them."""

    @abstractmethod
    def exists(self, name: str) -> bool: ...

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove the file; a missing one is no error."""

    @abstractmethod
    def open_writer(self, name: str) -> Writer: ...

    @abstractmethod
    def clear_unfinished(self, prefix: str) -> None:
        """Remove what writers that died have left under names with this prefix; a writer that lives fails at `seal`."""


def open_store(root: str | os.PathLike[str]) -> Store:
    """The store at a local path, a `file://` URL, or `s3://bucket/prefix` (also spelled `s3a://`).

    Raises:
        WarehouseError: a scheme that is neither.
    """
    text = os.fspath(root)
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if scheme in ("s3", "s3a"):
        from spindle.store_s3 import S3Store

        bucket, _, prefix = text.split("://", 1)[1].partition("/")
        return S3Store(bucket, prefix.strip("/"))
    if scheme == "file" or text.startswith("file:"):  # Hadoop also writes file:/path
        text = unquote(urlsplit(text).path)
    elif scheme:
        raise WarehouseError(f"{text}: {scheme}:// is not supported; use a local path or s3://bucket/prefix")
    return LocalStore(text)


class LocalStore(Store):
    """Files in a folder. Unfinished ones have a hidden name in the folder of the final one, so a rename is atomic."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)  # noqa: PTH100 - a str, kept cheap to pickle

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        with self._complete(name, content, durable) as temporary:
            os.replace(temporary, self._path(name))  # noqa: PTH105
            if durable:
                _sync_folder(self._path(name).parent)

    def create_exclusive(self, name: str, content: bytes) -> bool:
        with self._complete(name, content, durable=True) as temporary:
            try:
                os.link(temporary, self._path(name))  # fails if the name exists; content is whole from the start
            except FileExistsError:
                return False
            _sync_folder(self._path(name).parent)
            return True

    def get(self, name: str) -> bytes:
        with _explained(self._path(name)):
            return self._path(name).read_bytes()

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        with _explained(self._path(name)), self._path(name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def list(self, prefix: str) -> list[str]:
        folder = self._path(prefix if prefix.endswith("/") else prefix.rpartition("/")[0])
        with _explained(folder):
            if not folder.is_dir():
                return []
            files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
            names = (path.relative_to(self.root).as_posix() for path in files)
            return sorted(name for name in names if name.startswith(prefix))

    def exists(self, name: str) -> bool:
        with _explained(self._path(name)):
            return self._path(name).exists()

    def delete(self, name: str) -> None:
        with _explained(self._path(name)):
            self._path(name).unlink(missing_ok=True)

    def open_writer(self, name: str) -> Writer:
        return _LocalWriter(self._path(name), name)

    def clear_unfinished(self, prefix: str) -> None:
        folder, _, start = prefix.rpartition("/")
        with _explained(self._path(folder)):
            for path in self._path(folder).glob(f".{glob.escape(start)}*"):
                path.unlink(missing_ok=True)

    def entries(self) -> Sequence[str]:
        """Names of files and folders right below the root, hidden ones aside; none where nothing is yet."""
        root = Path(self.root)
        with _explained(root):
            return sorted(path.name for path in root.iterdir() if path.name[0] != ".") if root.exists() else []

    def _path(self, name: str) -> Path:
        return Path(self.root, name)

    @contextlib.contextmanager
    def _complete(self, name: str, content: bytes, durable: bool) -> Iterator[str]:
        """A temporary file with the whole content; gone afterwards, whatever happens."""
        path = self._path(name)
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    if durable:
                        file.flush()
                        os.fsync(descriptor)
                Path(temporary).chmod(0o644)  # mkstemp gives 0600; other tools of the warehouse read these files
                yield temporary
            finally:
                with contextlib.suppress(FileNotFoundError):
                    Path(temporary).unlink()


class _LocalWriter(Writer):
    def __init__(self, path: Path, name: str) -> None:
        self.name, self.size, self._path = name, 0, path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self._partial.open("wb", buffering=_BUFFER_BYTES)

    def write(self, data: bytes) -> None:
        try:  # not `_explained`: called for each page
            self._file.write(data)
        except OSError as error:
            raise _explanation(self._path, error) from error
        self.size += len(data)

    def seal(self) -> None:
        with _explained(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.replace(self._path)
            _sync_folder(self._path.parent)

    def abandon(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._partial.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename last over a power cut; without this the name may be lost although the content is on disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Foreign errors are translated once, at this door."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _explanation(path, error) from error


def _explanation(path: Path, error: OSError) -> WarehouseError:
    return WarehouseError(f"{path}: {_HINTS.get(error.errno or 0, error.strerror or str(error))}")


_HINTS = {
    errno.ENOSPC: "the disk is full: free space or move the warehouse, then run the job again",
    errno.EDQUOT: "the disk quota is used up: free space, then run the job again",
    errno.ENOTDIR: "a part of this path is a file, not a folder",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "no permission: check the owner and mode of the folder",
    errno.EPERM: "no permission: check the owner and mode of the folder",
}
