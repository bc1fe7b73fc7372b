"""A server that speaks the protocol of the Hugging Face Hub on the loopback interface, with faults on request."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 10_000  # larger files are stored like those of git-lfs: behind a redirect to another host


class Hub(ThreadingHTTPServer):
    """Serves the files of repositories; tests change what it does."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.statuses: dict[str, tuple[int, str]] = {}  # by repository: every answer, with its X-Error-Code
        self.token: str | None = None  # required if set
        self.breaks_after: int | None = None  # bytes of a large file, once
        self.breaks_always = False  # if `breaks_after` is set: not only once
        self.answers: dict[str, tuple[int, dict[str, str]]] = {}  # by large file: the status and headers of its content
        self.file_statuses: dict[str, int] = {}  # by file
        self.delay_s = 0.0  # of the description of a repository
        self.announces_hashes = True
        self.announced: dict[str, bytes] = {}  # by file name: content whose hash is announced instead
        self.info: Any = ...  # answered instead of the description of a repository
        self.commit = COMMIT  # of the branch `main`
        self.pushed: str | None = None  # the commit of `main` after the next description of a repository
        self.requests: Counter[str] = Counter()  # by method and path
        self.ranges: list[str] = []

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def etag(self, name: str, content: bytes) -> str:
        """The hash that the hub announces: of git for small files, sha256 for large ones."""
        content = self.announced.get(name, content)
        if len(content) > LARGE:
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub that runs in a thread while the block runs."""
    with Hub() as hub:
        thread = Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._handle(with_body=False)

    def do_GET(self) -> None:
        self._handle(with_body=True)

    def _handle(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.requests[f"{self.command} {path}"] += 1
        match = re.fullmatch(r"/(?:api/models/(?P<api>.+?)(?:/revision/(?P<rev>[^/]+))?|(?P<file>.+))", path)
        assert match is not None
        if match["api"]:
            self._info(match["api"], match["rev"] or "main")
        elif path.startswith("/cdn/"):
            self._send_file(*path.removeprefix("/cdn/").split("/resolve/"), with_body=with_body)
        else:
            repository, _, rest = match["file"].partition("/resolve/")
            revision, _, name = rest.partition("/")
            self._resolve(repository, revision, name, with_body=with_body)

    def _refuses(self, repository: str, revision: str) -> bool:
        """Answer with an error, if there is one for this request."""
        hub = self.server
        status = hub.statuses.get(repository)
        if hub.token is not None and self.headers.get("Authorization") != f"Bearer {hub.token}":
            status = (401, "RepoNotFound")
        elif repository not in hub.repositories and status is None:
            status = (404, "RepoNotFound")
        elif revision not in ("main", COMMIT, hub.commit) and status is None:
            status = (404, "RevisionNotFound")
        if status is not None:
            self._answer(status[0], b"", {"X-Error-Code": status[1]} if status[1] else {})
        return status is not None

    def _info(self, repository: str, revision: str) -> None:
        Event().wait(self.server.delay_s)
        if self._refuses(repository, revision):
            return
        siblings = []
        for name, content in self.server.repositories[repository].items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(content)}
            entry["blobId"] = self.server.etag(name, content) if len(content) <= LARGE else "0" * 40
            if len(content) > LARGE:
                sha256 = self.server.etag(name, content)
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
            siblings.append(entry if self.server.announces_hashes else {"rfilename": name})
        commit = self.server.commit if revision == "main" else revision
        info = {
            "id": repository,
            "modelId": repository,
            "sha": commit,
            "private": False,
            "siblings": siblings,
        }
        info = info if self.server.info is ... else self.server.info
        self.server.commit = self.server.pushed or self.server.commit
        self._answer(200, json.dumps(info).encode(), {"Content-Type": "application/json"})

    def _resolve(self, repository: str, revision: str, name: str, *, with_body: bool) -> None:
        if self._refuses(repository, revision):
            return
        if name in self.server.file_statuses:
            self._answer(self.server.file_statuses[name], b"", {})
            return
        content = self.server.repositories[repository].get(name)
        headers = {"X-Repo-Commit": self.server.commit if revision == "main" else revision}
        if content is None:
            self._answer(404, b"", {**headers, "X-Error-Code": "EntryNotFound"})
            return
        etag = self.server.etag(name, content)
        if len(content) > LARGE:
            headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
            self._answer(
                302,
                b"",
                {**headers, "Location": f"http://localhost:{self.server.server_port}/cdn/{repository}/resolve/{name}"},
            )
        else:
            self._answer(200, content, {**headers, "ETag": f'"{etag}"'}, with_body=with_body)

    def _send_file(self, repository: str, name: str, *, with_body: bool) -> None:
        if name in self.server.answers:
            status, headers = self.server.answers[name]
            self._answer(status, b"", headers)
            return
        content = self.server.repositories[repository][name]
        start = 0
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            self.server.ranges.append(wanted[0])
            start = int(wanted[1])
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        limit = self.server.breaks_after
        if not self.server.breaks_always:
            self.server.breaks_after = None
        self._answer(206 if start else 200, content[start:], headers, with_body=with_body, limit=limit)

    def _answer(
        self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool = True, limit: int | None = None
    ) -> None:
        """Send an answer; with `limit`, break the connection after this number of bytes."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.wfile.write(body[:limit])
        if limit is not None:
            self.close_connection = True
