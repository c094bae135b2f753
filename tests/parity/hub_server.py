"""A server that speaks as much of Hugging Face's hub as its clients need: listings, trees, HEAD with ETags and commits, redirects to a second server (the
store of large files), ranges; and that misbehaves where a test asks for it."""

import hashlib
import http.server
import json
import pathlib
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


LARGE = (".safetensors", ".bin", ".parquet")


def of_large(file: str, content: bytes) -> dict:
    return {"lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}} if file.endswith(LARGE) else {}


def tree_of_large(file: str, content: bytes) -> dict:
    return {"lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}} if file.endswith(LARGE) else {}


class Quiet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30  # seconds, for a client that says nothing

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", headers=(), sent=None):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        if "Content-Length" not in dict(headers):
            self.send_header("Content-Length", str(len(body)))
        if sent is not None:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if sent is None else body[:sent])

    def answer_file(self, content, headers, breaks):
        wanted = self.headers.get("Range")
        first = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        if first >= len(content) > 0:
            return self.answer(416, headers={"Content-Range": f"bytes */{len(content)}"})
        headers = dict(headers)
        if first:
            headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
        return self.answer(206 if first else 200, content[first:], headers, sent=(len(content) - first) // 2 if breaks else None)


class Hub:
    """Repositories by name, each a folder of files; `large` says which files are kept in the store."""

    def __init__(self):
        self.repos, self.private, self.failing = {}, {}, {}
        self.requests, self.tokens_of_store = [], []
        self.breaks = 0  # how many transfers of large files break off half-way
        self.damaged = set()
        self.busy = {}  # part of a path -> [how many times, status, headers]: it is answered so, and then as ever
        hub = self

        class OfHub(Quiet):
            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

        class OfStore(Quiet):
            def do_GET(self):
                hub.answer_from_store(self)

            do_HEAD = do_GET

        self.servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) for kind in (OfHub, OfStore)]
        for server in self.servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url, self.store = (f"http://127.0.0.1:{server.server_port}" for server in self.servers)

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def add(self, name, folder, kind="models"):
        folder = pathlib.Path(folder)
        self.repos[kind, name] = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    def answer(self, request):
        path = request.path.split("?")[0]
        self.requests.append(f"{request.command} {path}")
        for part, busy in self.busy.items():
            if part in path and busy[0] > 0:
                busy[0] -= 1
                return request.answer(busy[1], headers=busy[2])
        for part, (status, headers) in self.failing.items():
            if part in path:
                return request.answer(status, headers=headers)
        kind = "datasets" if path.startswith(("/api/datasets/", "/datasets/")) else "models"
        for (own_kind, name), files in self.repos.items():
            if own_kind != kind:
                continue
            api, plain = f"/api/{kind}/{name}/", f"/{'datasets/' if kind == 'datasets' else ''}{name}/resolve/"
            if path == api.rstrip("/"):
                path = api + "revision/main"
            if not path.startswith((api, plain)):
                continue
            token = self.private.get(name)
            if token and request.headers.get("Authorization") != f"Bearer {token}":
                return request.answer(401, headers={"X-Error-Code": "RepoNotFound"})
            if path.startswith(api):
                return self.answer_api(request, path.removeprefix(api), name, files)
            return self.answer_resolve(request, *path.removeprefix(plain).split("/", 1), files)
        return request.answer(404, headers={"X-Error-Code": "RepoNotFound"})

    def answer_api(self, request, rest, name, files):
        what, revision, *within = rest.split("/")
        if revision not in ("main", COMMIT):
            return request.answer(404, headers={"X-Error-Code": "RevisionNotFound"})
        content = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]}
        if "blobs=true" in request.path.lower():
            content["siblings"] = [{"rfilename": file, "size": len(text), "blobId": git_sha1(text)} | of_large(file, text) for file, text in files.items()]
        if what == "tree":
            folder = "".join(part + "/" for part in within)
            content = [{"type": "file", "path": file, "size": len(text), "oid": git_sha1(text)} | tree_of_large(file, text) for file, text in files.items()]
            folders = dict.fromkeys(str(above) for file in files for above in reversed(pathlib.PurePosixPath(file).parents[:-1]))
            content += [{"type": "directory", "path": path, "size": 0, "oid": git_sha1(path.encode())} for path in folders]
            content = [one for one in content if one["path"].startswith(folder)]
            if folder and not content:
                return request.answer(404, headers={"X-Error-Code": "EntryNotFound"})
            if "recursive=false" in request.path.lower():
                content = [one for one in content if "/" not in one["path"].removeprefix(folder)]
        return request.answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def answer_resolve(self, request, revision, file, files):
        file = urllib.parse.unquote(file)
        if revision not in ("main", COMMIT) or file not in files:
            return request.answer(404, headers={"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        content = files[file]
        if not file.endswith(LARGE):
            return request.answer_file(content, {"ETag": f'"{git_sha1(content)}"', "X-Repo-Commit": COMMIT}, False)
        digest = hashlib.sha256(content).hexdigest()
        return request.answer(302, headers={"Location": f"{self.store}/{digest}", "X-Linked-Etag": f'"{digest}"', "X-Linked-Size": len(content),
                                            "ETag": '"of-the-redirect"', "X-Repo-Commit": COMMIT})

    def answer_from_store(self, request):
        self.requests.append(f"{request.command} store{' ' + request.headers['Range'] if request.headers.get('Range') else ''}")
        self.tokens_of_store.append(request.headers.get("Authorization"))
        digest = request.path.removeprefix("/")
        for files in self.repos.values():
            for content in files.values():
                if hashlib.sha256(content).hexdigest() == digest:
                    breaks = self.breaks > 0 and request.command == "GET"
                    self.breaks -= breaks
                    body = bytes(len(content)) if digest in self.damaged else content
                    return request.answer_file(body, {"ETag": '"store"'}, breaks)
        return request.answer(404)
