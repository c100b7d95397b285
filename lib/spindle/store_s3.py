"""Segment files in S3, or a store that speaks its protocol, by boto3.

This file decides how the promises of `store` are kept there: a name appears when an upload is complete (a PUT, or the
end of a multipart upload), and a conditional PUT lets one creator win. Endpoint, region and credentials come from the
environment and the files that boto3 reads (`AWS_ENDPOINT_URL_S3`, `AWS_PROFILE`, ...), the same that Hadoop's
S3A connector is given. Against an endpoint of its own, checksums are sent only where the protocol requires them
(`AWS_REQUEST_CHECKSUM_CALCULATION` overrides): boto3 sends more since 1.36, and other stores refuse them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from spindle.errors import WarehouseError
from spindle.store import Store, Writer

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

_PART_BYTES = 8 << 20  # of a multipart upload; S3 asks for 5 MiB at least, and this is what a writer keeps in memory
_AHEAD = 2  # parts on their way while the next one fills
_MISSING = {"404", "NoSuchKey", "NotFound"}
_TAKEN = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}

_clients: dict[int, S3Client] = {}  # by process: a client must not cross a fork, and making one costs 50 ms


class S3Store(Store):
    """Names below `s3://bucket/prefix`. Holds no client, so it can be pickled and outlives a fork."""

    def __init__(self, bucket: str, prefix: str) -> None:
        self.root = f"s3://{bucket}/{prefix}".rstrip("/")
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""

    def put(self, name: str, content: bytes, *, durable: bool = True) -> None:
        with self._explained(name):
            _client().put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)

    def create_exclusive(self, name: str, content: bytes) -> bool:
        from botocore.exceptions import ClientError

        with self._explained(name):
            try:
                _client().put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content, IfNoneMatch="*")
            except ClientError as error:
                if _code(error) not in _TAKEN:
                    raise
                # A PUT that timed out and was repeated finds its own first try: whose it is, the content says.
                with contextlib.suppress(FileNotFoundError):
                    return self.get(name) == content
                return self.create_exclusive(name, content)  # 409: two at once, and neither has won yet
            return True

    def get(self, name: str) -> bytes:
        with self._explained(name):
            return _client().get_object(Bucket=self._bucket, Key=self._prefix + name)["Body"].read()

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        wanted = f"bytes={offset}-{offset + length - 1}"
        with self._explained(name):
            return _client().get_object(Bucket=self._bucket, Key=self._prefix + name, Range=wanted)["Body"].read()

    def list(self, prefix: str) -> list[str]:
        with self._explained(prefix):
            pages = (
                _client().get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)
            )
            keys = (found["Key"] for page in pages for found in page.get("Contents", ()))
            return sorted(key.removeprefix(self._prefix) for key in keys)

    def exists(self, name: str) -> bool:
        try:
            with self._explained(name):
                _client().head_object(Bucket=self._bucket, Key=self._prefix + name)
        except FileNotFoundError:
            return False
        return True

    def delete(self, name: str) -> None:
        with self._explained(name):
            _client().delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def open_writer(self, name: str) -> Writer:
        return _S3Writer(self, name)

    def clear_unfinished(self, prefix: str) -> None:
        with self._explained(prefix):
            found = _client().list_multipart_uploads(Bucket=self._bucket, Prefix=self._prefix + prefix)
            for upload in found.get("Uploads", ()):
                _client().abort_multipart_upload(Bucket=self._bucket, Key=upload["Key"], UploadId=upload["UploadId"])

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        """Foreign errors are translated once, at this door."""
        from botocore.exceptions import BotoCoreError, ClientError

        where = f"s3://{self._bucket}/{self._prefix}{name}"
        try:
            yield
        except ClientError as error:
            if _code(error) in _MISSING:
                raise FileNotFoundError(where) from error
            raise WarehouseError(f"{where}: {_hint(_code(error))} ({error})") from error
        except BotoCoreError as error:
            raise WarehouseError(f"{where}: {error}; check AWS_ENDPOINT_URL_S3, the region and credentials") from error


class _S3Writer(Writer):
    """A multipart upload with at most three parts in memory; a file smaller than a part is one PUT."""

    def __init__(self, store: S3Store, name: str) -> None:
        self.name, self.size, self._store = name, 0, store
        self._waiting = bytearray()
        self._upload: str | None = None
        self._parts: list[Future[dict[str, Any]]] = []
        self._sender = ThreadPoolExecutor(1, "s3-upload")  # the fetch loop writes here and must not wait for the net
        self._where: dict[str, Any] = {"Bucket": store._bucket, "Key": store._prefix + name}

    def write(self, data: bytes) -> None:
        self._waiting += data
        self.size += len(data)
        while len(self._waiting) >= _PART_BYTES:
            self._send(bytes(self._waiting[:_PART_BYTES]))
            del self._waiting[:_PART_BYTES]

    def seal(self) -> None:
        with self._finishing():
            if not self._parts:
                self._store.put(self.name, bytes(self._waiting))
                return
            if self._waiting:
                self._send(bytes(self._waiting))
            with self._store._explained(self.name):
                parts: Any = {"Parts": [part.result() for part in self._parts]}
                upload = {**self._where, "UploadId": self._upload}
                _client().complete_multipart_upload(**upload, MultipartUpload=parts)

    def abandon(self) -> None:
        self._waiting.clear()
        with self._finishing():
            wait(self._parts)
            if self._upload is not None:
                with contextlib.suppress(WarehouseError, FileNotFoundError), self._store._explained(self.name):
                    _client().abort_multipart_upload(**self._where, UploadId=self._upload)

    @contextlib.contextmanager
    def _finishing(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._sender.shutdown(wait=False)

    def _send(self, part: bytes) -> None:
        if len(self._parts) >= _AHEAD:
            with self._store._explained(self.name):
                self._parts[-_AHEAD].result()  # no more than that many parts in memory; raises what went wrong
        self._parts.append(self._sender.submit(self._upload_part, len(self._parts) + 1, part))

    def _upload_part(self, number: int, part: bytes) -> dict[str, Any]:
        if self._upload is None:
            self._upload = _client().create_multipart_upload(**self._where)["UploadId"]
        sent = _client().upload_part(**self._where, UploadId=self._upload, PartNumber=number, Body=part)
        return {"ETag": sent["ETag"], "PartNumber": number}


def _client() -> S3Client:
    """This process's client. boto3 renews credentials by itself."""
    client = _clients.get(os.getpid())
    if client is None:
        import boto3
        from botocore.config import Config

        session = boto3.session.Session()
        own = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        checks: dict[str, Any] = {}
        if own and "AWS_REQUEST_CHECKSUM_CALCULATION" not in os.environ:
            checks = {
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
                "s3": {"addressing_style": "path"},
            }
        settings = Config(retries={"mode": "standard", "max_attempts": 5}, max_pool_connections=16, **checks)
        client = session.client("s3", config=settings)
        _clients.clear()
        _clients[os.getpid()] = client
    return client


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _hint(code: str) -> str:
    return {
        "NoSuchBucket": "the bucket does not exist",
        "AccessDenied": "no permission: the credentials may not do this here",
        "403": "no permission: the credentials may not do this here",
        "InvalidAccessKeyId": "the access key is unknown",
        "SignatureDoesNotMatch": "the secret key is wrong",
        "QuotaExceeded": "the quota is used up",
    }.get(code, "the store refused")
