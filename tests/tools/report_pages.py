"""Pages that `trainrun report` writes, read as a browser reads them."""

import html.parser
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess

import pytest

VOID = {"meta", "input", "img", "br", "link", "hr"}


class Page(html.parser.HTMLParser):
    """Its tags in order, its tables by caption, its scripts, and whether each tag is closed in its order."""

    def __init__(self, path: pathlib.Path):
        super().__init__(convert_charrefs=True)
        self.tags, self.tables, self.scripts, self.text = [], {}, [], ""
        self._open, self._rows, self._cell, self._caption, self._script = [], None, None, None, None
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self._open == [], self._open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "caption":
            self._caption = ""
        elif tag == "tr" and self._rows is not None:
            self._rows.append([])
        elif tag in ("td", "th"):
            self._cell = ""
        elif tag == "script":
            self._script = ""

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, (tag, self.getpos())
        if tag in ("td", "th"):
            self._rows[-1].append(self._cell)
            self._cell = None
        elif tag == "table":
            self.tables[self._caption] = self._rows
        elif tag == "script":
            self.scripts.append(self._script)
            self._script = None

    def handle_data(self, data):
        if self._script is not None:
            self._script += data
            return
        self.text += data
        if self._cell is not None:
            self._cell += data
        elif self._open and self._open[-1] == "caption":
            self._caption += data

    @property
    def data(self) -> dict:
        return json.loads(self.scripts[0])


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")


def browse(page: pathlib.Path, *options: str) -> subprocess.CompletedProcess:
    home = page.parent / "browser"
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
               f"--user-data-dir={home}", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=15000", *options, page.as_uri()]
    environment = {**os.environ, "HOME": str(page.parent)}
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True, env=environment)


def screenshot(page: pathlib.Path, picture: pathlib.Path, width: int, height: int, *, dark: bool = False) -> None:
    options = ["--blink-settings=preferredColorScheme=0"] if dark else []
    browse(page, f"--screenshot={picture}", f"--window-size={width},{height}", *options)
    assert picture.read_bytes().startswith(b"\x89PNG")


def evaluated(page: pathlib.Path, script: str, width: int = 1200, before: str = "") -> dict:
    """What `script` returns in the page, in a window of this width; and what the console said."""
    text = page.read_text(encoding="utf-8")
    probe = page.with_name(f"probe-{page.name}")
    # Chromium's own window is at least 500 pixels wide: a narrow page is looked at in a frame.
    report = f"""<script>{before}</script><script>
window.problems = [];
(async () => {{ let found; try {{ found = await (async () => {{ {script} }})(); }} catch (error) {{ found = {{error: String(error)}}; }}
  parent.postMessage(JSON.stringify(found), '*'); }})();</script>"""
    catch = "<script>window.errors = []; addEventListener('error', (event) => window.errors.push(event.message)); addEventListener('securitypolicyviolation', (event) => window.errors.push(event.blockedURI));</script>"
    assert text.count("</head>") == 1 and text.rstrip().endswith("</body></html>")
    probe.write_text(text.replace("</head>", catch + "</head>").replace("</body></html>", report + "</body></html>"), encoding="utf-8")
    frame = page.with_name(f"frame-{page.name}")
    frame.write_text(f"""<!DOCTYPE html><meta charset="utf-8"><body><pre id="found">nothing</pre>
<script>addEventListener('message', (event) => {{ document.getElementById('found').textContent = event.data; }});</script>
<iframe src="{probe.as_uri()}" style="width: {width}px; height: 900px; border: 0"></iframe>""", encoding="utf-8")
    shown = browse(frame, "--dump-dom", "--allow-file-access-from-files", "--window-size=1600,1000").stdout
    found = html.unescape(shown.split('<pre id="found">')[1].split("</pre>")[0])
    assert found != "nothing", shown[-2000:]
    result = json.loads(found)
    assert not (isinstance(result, dict) and "error" in result), result
    return result


def axe_source() -> str | None:
    """axe-core's script, which PyPI's axe-playwright-python has within it."""
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        return None
    found = list(pathlib.Path(package.origin).parent.glob("axe*.js"))
    return found[0].read_text(encoding="utf-8") if found else None
