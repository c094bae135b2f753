"""Two MLflow servers for tests: one that stands in for it, which checks each request as strictly as MLflow does, and MLflow's own."""

import http.server
import json
import math
import pathlib
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

ALLOWED = re.compile(r"^[/\w.\- ]+$")
STATUSES = {"RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"}


class Refused(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.answer = status, {"error_code": code, "message": message}


def invalid(message):
    return Refused(400, "INVALID_PARAMETER_VALUE", message)


class StandIn:
    """What MLflow's REST interface does for the requests that a run makes."""

    def __init__(self, port=0, token=None):
        self.experiments = {"Default": "0"}
        self.runs = {}
        self.artifacts = {}
        self.requests = []
        self.failing = 0  # so many requests are answered by 503 first
        self.token = token
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def log_message(self, *_):
                pass

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                url = urllib.parse.urlsplit(self.path)
                try:
                    status, answer = 200, outer.answer(self.command, urllib.parse.unquote(url.path), dict(urllib.parse.parse_qsl(url.query)), body, self.headers)
                except Refused as refused:
                    status, answer = refused.answer
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = handle_one

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, method, path, query, body, headers):
        self.requests.append((method, path))
        if self.failing > 0:
            self.failing -= 1
            raise Refused(503, "TEMPORARILY_UNAVAILABLE", "not now")
        if self.token and headers.get("Authorization") != f"Bearer {self.token}":
            raise Refused(401, "UNAUTHENTICATED", "who are you?")
        if method == "PUT":
            self.artifacts[path.removeprefix("/api/2.0/mlflow-artifacts/artifacts/")] = body
            return {}
        call = path.removeprefix("/api/2.0/mlflow/")
        if method == "GET":
            assert call == "experiments/get-by-name"
            name = query["experiment_name"]
            if name not in self.experiments:
                raise Refused(404, "RESOURCE_DOES_NOT_EXIST", f"Could not find experiment with name '{name}'")
            return {"experiment": {"experiment_id": self.experiments[name], "name": name, "lifecycle_stage": "active"}}
        assert headers["Content-Type"] == "application/json"
        assert len(body) <= 1_000_000
        return getattr(self, call.replace("/", "_").replace("-", "_"))(json.loads(body))

    def experiments_create(self, body):
        if body["name"] in self.experiments:
            raise Refused(400, "RESOURCE_ALREADY_EXISTS", "there is one")
        self.experiments[body["name"]] = str(len(self.experiments))
        return {"experiment_id": self.experiments[body["name"]]}

    def runs_create(self, body):
        run_id = f"{len(self.runs):032x}"
        self.runs[run_id] = {"params": {}, "metrics": {}, "status": "RUNNING", "name": body["run_name"],
                             "experiment_id": body["experiment_id"], "tags": {tag["key"]: tag["value"] for tag in body["tags"]}}
        return {"run": {"info": {"run_id": run_id, "artifact_uri": f"mlflow-artifacts:/{body['experiment_id']}/{run_id}/artifacts"}}}

    def run_of(self, body):
        if body["run_id"] not in self.runs:
            raise Refused(404, "RESOURCE_DOES_NOT_EXIST", f"Run with id={body['run_id']} not found")
        return self.runs[body["run_id"]]

    def runs_update(self, body):
        assert body["status"] in STATUSES
        self.run_of(body)["status"] = body["status"]
        return {}

    def runs_log_batch(self, body):
        run = self.run_of(body)
        metrics, params = body.get("metrics", []), body.get("params", [])
        if len(metrics) > 1000 or len(params) > 100 or len(metrics) + len(params) > 1000:
            raise invalid("too many")
        for item in metrics + params:
            if not ALLOWED.match(item["key"]) or len(item["key"]) > 250:
                raise invalid(f"Invalid name {item['key']}")
        for param in params:
            if len(param["value"]) > 6000:
                raise invalid("too long")
            if run["params"].setdefault(param["key"], param["value"]) != param["value"]:
                raise invalid("Changing param values is not allowed")
        for metric in metrics:
            value = float(metric["value"].replace("Infinity", "inf") if isinstance(metric["value"], str) else metric["value"])
            point = (metric["step"], value, metric["timestamp"])
            history = run["metrics"].setdefault(metric["key"], [])
            if point not in history:
                history.append(point)
        return {}

    def seen(self):
        """Every run: its name, status, params, {(metric, step): values}, and the names of its artifacts."""
        runs = []
        for run_id, run in self.runs.items():
            points = {}
            for key, history in run["metrics"].items():
                for step, value, _ in history:
                    points.setdefault((key, step), []).append(value)
            folder = f"{run['experiment_id']}/{run_id}/artifacts/"
            artifacts = {name.removeprefix(folder): content for name, content in self.artifacts.items() if name.startswith(folder)}
            experiment = next(name for name, number in self.experiments.items() if number == run["experiment_id"])
            runs.append({**run, "points": points, "artifacts": artifacts, "experiment": experiment})
        return runs


class Mlflow:
    """MLflow's own server, of a Python that has it."""

    def __init__(self, python, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        self.process = subprocess.Popen(
            [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")],
            cwd=folder, stdout=subprocess.DEVNULL, stderr=(folder / "server.log").open("w"))
        self.before = set()  # runs of earlier tests
        end = time.monotonic() + 600
        while True:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=5).read()
                return
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None or time.monotonic() > end:
                    self.close()
                    raise AssertionError(pathlib.Path(folder / "server.log").read_text()) from None
                time.sleep(0.2)

    def close(self):
        self.process.terminate()
        self.process.wait(60)

    def ask(self, call, body=None, **query):
        url = f"{self.uri}/api/2.0/{call}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def begin(self):
        """What is there already is not `seen`."""
        self.before |= {run["info"]["run_id"] for run in self.runs()[0]}

    def seen(self):
        found, experiments = self.runs()
        return [self.run_seen(run, experiments) for run in found if run["info"]["run_id"] not in self.before]

    def runs(self):
        experiments = {one["experiment_id"]: one["name"] for one in self.ask("mlflow/experiments/search", {"max_results": 100})["experiments"]}
        found = self.ask("mlflow/runs/search", {"experiment_ids": list(experiments), "max_results": 100}).get("runs", [])
        return found, experiments

    def run_seen(self, run, experiments):
        run_id, points, artifacts = run["info"]["run_id"], {}, {}
        for metric in run["data"].get("metrics", []):
            for point in self.ask("mlflow/metrics/get-history", run_id=run_id, metric_key=metric["key"])["metrics"]:
                value = point["value"]
                points.setdefault((metric["key"], int(point.get("step", 0))), []).append(math.nan if value == "NaN" else float(value))
        for file in self.ask("mlflow/artifacts/list", run_id=run_id).get("files", []):
            path = run["info"]["artifact_uri"].removeprefix("mlflow-artifacts:/") + "/" + file["path"]
            with urllib.request.urlopen(f"{self.uri}/api/2.0/mlflow-artifacts/artifacts/{path}", timeout=60) as answer:
                artifacts[file["path"]] = answer.read()
        return {"name": run["info"]["run_name"], "status": run["info"]["status"], "experiment": experiments[run["info"]["experiment_id"]],
                "params": {one["key"]: one["value"] for one in run["data"].get("params", [])},
                "tags": {one["key"]: one["value"] for one in run["data"].get("tags", [])}, "points": points, "artifacts": artifacts}
