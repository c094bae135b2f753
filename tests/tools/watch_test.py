"""`trainrun report --watch` serves the page of runs on loopback alone, and its figures follow a run that goes on."""

import http.client
import json
import re
import subprocess

import pytest

from tests.program import BINARY, CALLED


@pytest.fixture(name="watched", scope="module")
def a_run_that_goes_on_and_its_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("watch") / "run"
    job = subprocess.Popen([BINARY, "tests/recipes/digits_small.yaml", f"output_dir={folder}", "training={num_epochs: 1000000}", "logging.every_steps=1000",
                            "checkpoint.every=1000000", "evaluation.every=1000000"], stdout=subprocess.PIPE, text=True)
    assert any(line.startswith("step 1000/") for line in job.stdout)
    server = subprocess.Popen([BINARY, "report", str(folder), "--watch"], stdout=subprocess.PIPE, text=True)
    port = int(re.match(r"http://localhost:(\d+)/ shows the report", server.stdout.readline())[1])
    yield folder, port, job
    for process in (server, job):
        process.kill()
        process.wait()


def ask(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Host": host or f"localhost:{port}"})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_the_page_is_that_of_the_report_and_asks_its_server_alone(watched):
    _, port, _ = watched
    status, headers, page = ask(port, "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8" and headers["Cache-Control"] == "no-store"
    assert "connect-src 'self'" in page and '"watched":true' in page
    assert re.search(r'<div id="states">.*digits_small.*running', page, re.DOTALL)


def test_the_figures_follow_the_run(watched):
    folder, port, job = watched
    before = json.loads(ask(port, "/data")[2])
    last = before["runs"][0]["train"]["step"][-1]
    while json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["step"] <= last:
        assert job.poll() is None
    after = json.loads(ask(port, "/data")[2])
    steps, losses = after["runs"][0]["train"]["step"], after["runs"][0]["train"]["figures"]["train/loss"]
    assert steps[-1] > last and len(losses) == len(steps)
    logged = {line["step"]: line["train/loss"] for line in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())}
    assert all(logged[step] == pytest.approx(loss) for step, loss in zip(steps, losses, strict=True))
    assert after["charts"] == before["charts"] and "running" in after["states"]


@pytest.mark.parametrize("host", ["evil.example:{port}", "localhost", "127.0.0.1:1", "localhost.evil.example:{port}"])
def test_another_name_is_refused(watched, host):
    _, port, _ = watched
    status, _, said = ask(port, "/data", host.format(port=port))
    assert status == 403 and f"this page is served to http://localhost:{port} alone" in said


def test_it_listens_on_loopback_alone(watched):
    _, port, _ = watched
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    assert {row[1] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"} == {f"0100007F:{port:04X}"}


def test_there_are_no_other_pages(watched):
    _, port, _ = watched
    assert ask(port, "/../../etc/passwd")[0] == 404


def test_a_port_that_is_taken_and_options_that_do_not_fit_are_told(watched):
    folder, port, _ = watched
    def say(*arguments):
        done = subprocess.run([CALLED, "report", str(folder), *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        return done.stderr
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use; --port takes another one" in say("--watch", "--port", str(port))
    assert "--watch follows figures, and --evaluate makes the models predict" in say("--watch", "--evaluate")
    assert "--watch" in say("--port", "8080")
