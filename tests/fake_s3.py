"""As much of S3's protocol as Spindle uses, in memory, on loopback: enough to see which requests a store makes.

Signatures are not checked. Conditional PUT, ranges, listing in pages and multipart uploads behave as documented by AWS.
"""

from __future__ import annotations

import hashlib
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

MODIFIED = "Mon, 30 Nov 2026 12:00:00 GMT"


class FakeS3:
    """Use as a context manager. `objects` by "bucket/key"; `log`: method, path, headers; `fail`: the next answers."""

    def __init__(self, *buckets: str, page_size: int = 1000) -> None:
        self.buckets, self.page_size = set(buckets), page_size
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.upload_names: dict[str, str] = {}
        self.log: list[tuple[str, str, dict[str, str]]] = []
        self.fail: list[tuple[int, str]] = []
        self.lock = threading.Lock()

    def __enter__(self) -> FakeS3:
        owner = self

        class Handler(_Handler):
            s3 = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    s3: FakeS3
    protocol_version = "HTTP/1.1"

    def handle_any(self) -> None:
        parts = urlsplit(self.path)
        name, self.query = unquote(parts.path).strip("/"), parse_qs(parts.query, keep_blank_values=True)
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.s3.lock:
            self.s3.log.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            if self.s3.fail:
                status, code = self.s3.fail.pop(0)
                return self.error(status, code)
            if name.partition("/")[0] not in self.s3.buckets:
                return self.error(404, "NoSuchBucket")
            return getattr(self, self.command.lower())(name)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any  # noqa: N815

    def put(self, name: str) -> None:
        if "partNumber" in self.query:
            self.s3.uploads[self.query["uploadId"][0]][int(self.query["partNumber"][0])] = self.body
        elif self.headers.get("If-None-Match") == "*" and name in self.s3.objects:
            return self.error(412, "PreconditionFailed")
        else:
            self.s3.objects[name] = self.body
        return self.answer(200, headers={"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'})

    def post(self, name: str) -> None:
        if "uploads" in self.query:
            key = f"upload{len(self.s3.log)}"
            self.s3.uploads[key] = {}
            self.s3.upload_names[key] = name
            return self.xml(
                f"<InitiateMultipartUploadResult><UploadId>{key}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = self.s3.uploads.pop(self.query["uploadId"][0])
        numbers = [int(n) for n in re.findall(rb"<PartNumber>(\d+)</PartNumber>", self.body)]
        if any(len(parts[n]) < 5 << 20 for n in numbers[:-1]):
            return self.error(400, "EntityTooSmall")
        self.s3.objects[name] = b"".join(parts[n] for n in numbers)
        return self.xml("<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")

    def get(self, name: str) -> None:
        if "list-type" in self.query:
            return self.listing(name)
        if "uploads" in self.query:
            return self.unfinished(f"{name}/{self.query.get('prefix', [''])[0]}")
        if name not in self.s3.objects:
            return self.error(404, "NoSuchKey")
        content, wanted = self.s3.objects[name], re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        facts = {"Last-Modified": MODIFIED, "ETag": f'"{hashlib.md5(content).hexdigest()}"'}
        if wanted is None:
            return self.answer(200, content, facts)
        first, last = int(wanted[1]), min(int(wanted[2]), len(content) - 1)
        place = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        return self.answer(206, content[first : last + 1], facts | place)

    def head(self, name: str) -> None:
        if name not in self.s3.objects:
            return self.answer(404)
        return self.answer(200, self.s3.objects[name], {"Last-Modified": MODIFIED})

    def delete(self, name: str) -> None:
        if "uploadId" in self.query:
            self.s3.uploads.pop(self.query["uploadId"][0], None)
        self.s3.objects.pop(name, None)
        return self.answer(204)

    def listing(self, bucket: str) -> None:
        prefix, after = self.query.get("prefix", [""])[0], self.query.get("continuation-token", [""])[0]
        keys = sorted(name.removeprefix(f"{bucket}/") for name in self.s3.objects if name.startswith(f"{bucket}/"))
        keys = [key for key in keys if key.startswith(prefix) and key > after]
        page, more = keys[: self.s3.page_size], len(keys) > self.s3.page_size
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-30T12:00:00.000Z</LastModified><Size>1</Size></Contents>"
            for key in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return self.xml(
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{found}</ListBucketResult>"
        )

    def unfinished(self, prefix: str) -> None:
        names = ((key, self.s3.upload_names[key]) for key in self.s3.uploads)
        found = "".join(
            f"<Upload><Key>{escape(name.partition('/')[2])}</Key><UploadId>{key}</UploadId></Upload>"
            for key, name in names
            if name.startswith(prefix)
        )
        self.xml(f"<ListMultipartUploadsResult>{found}</ListMultipartUploadsResult>")

    def error(self, status: int, code: str) -> None:
        self.xml(f"<Error><Code>{code}</Code><Message>{code}</Message></Error>", status)

    def xml(self, text: str, status: int = 200) -> None:
        self.answer(status, f'<?xml version="1.0"?>{text}'.encode(), {"Content-Type": "application/xml"})

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for header, value in (headers or {}).items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass
