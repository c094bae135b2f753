"""The site of the documentation (tools/site): every page of docs/ is in its navigation, and what it links to is there; where mkdocs-material is
installed (tools/site fetches it), it is built without a warning and its search finds pages, from a file, too.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/docs_site"))
import assemble  # noqa: E402

MKDOCS = ROOT / ".deps/site/bin/python"
CONFIG = ROOT / "tools/docs_site/mkdocs.yml"


TYPES_BISECT = """<script>
addEventListener("load", () => setTimeout(() => {
  document.querySelector("[data-md-toggle=search]").click();
  const query = document.querySelector("[data-md-component=search-query]");
  query.value = "bisect";
  query.focus();
  query.dispatchEvent(new Event("keyup"));
}, 300));
</script>"""


def pages_in_navigation() -> list[str]:
    navigation = CONFIG.read_text().split("\nnav:\n")[1]
    return re.findall(r": (\S+\.md)$", navigation, re.MULTILINE)


def test_the_navigation_has_every_page_of_the_documentation_once():
    listed = pages_in_navigation()
    assert len(listed) == len(set(listed))
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages - set(listed) == set(), "add these to nav in tools/docs_site/mkdocs.yml"
    assert {page for page in listed if not (ROOT / page).is_file()} == set()


def test_whatever_a_page_links_to_is_part_of_the_site(tmp_path):
    assembled = {path.as_posix() for path in assemble.pages(ROOT)}
    assert {"README.md", "docs/README.md", "recipes/README.md", "recipes/weather_backtest.yaml", "tools/README.md"} <= assembled
    broken = tmp_path / "docs/a.md"
    broken.parent.mkdir()
    broken.write_text("`[x](none.md)` is code, and so is\n```\n[x](none.md)\n```\n[web](https://example.com) [here](#a)\n")
    (tmp_path / "README.md").write_text("[a](docs/a.md)\n")
    assert [path.as_posix() for path in assemble.pages(tmp_path)] == ["README.md", "docs/a.md"]
    broken.write_text("[x](none.md)")
    with pytest.raises(FileNotFoundError, match=r"a\.md: links to none\.md"):
        assemble.pages(tmp_path)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not MKDOCS.exists():
        pytest.skip("mkdocs-material is not installed: tools/site fetches it")
    folder = tmp_path_factory.mktemp("site")
    assemble.assemble(ROOT, folder / "source")
    config = folder / "mkdocs.yml"
    config.write_text(CONFIG.read_text().replace("../../build/site_source", "source").replace("../../build/site", "site"))
    done = subprocess.run([MKDOCS, "-m", "mkdocs", "build", "--strict", "-f", config], capture_output=True, text=True, timeout=300, check=False,
                          env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING -" not in done.stderr, done.stderr[-3000:]
    return folder / "site"


def test_the_site_needs_no_network(site):
    for page in site.rglob("*.html"):
        outside = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?(https?://[^\s\">]+)|<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?(https?://[^\s\">]+)",
                             page.read_text(encoding="utf-8"))
        assert not outside, (page, outside)


def test_every_link_of_the_site_leads_to_a_file_and_every_anchor_to_a_heading(site):
    identifiers = {page: set(re.findall(r"\sid=\"?([^\s\">]+)", page.read_text(encoding="utf-8"))) for page in site.rglob("*.html")}
    wrong = []
    for page in identifiers:
        content = page.read_text(encoding="utf-8").split("<article", 1)[-1].split("</article>", 1)[0]
        for link in re.findall(r"<a [^>]*href=\"?([^\s\">]+)", content):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.is_file() or (anchor and target in identifiers and anchor not in identifiers[target]):
                wrong.append((page.relative_to(site).as_posix(), link))
    assert not wrong, wrong


def test_the_search_finds_a_page_from_a_file(site, tmp_path):
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("chromium is not installed")
    page = site / "probe.html"  # the home page, and somebody who types a word
    page.write_text((site / "index.html").read_text(encoding="utf-8").replace("</body>", TYPES_BISECT + "</body>"), encoding="utf-8")
    done = subprocess.run([chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000",
                           "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    page.unlink()
    results = done.stdout.split('class="md-search-result__list"', 1)[-1].split("</ol>", 1)[0]
    assert "where_it_went_wrong.html" in results, done.stderr[-500:]
