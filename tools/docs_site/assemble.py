"""Gathers the pages of the site: README.md, docs/, and whatever these link to within the checkout, each at its own path, so that every link holds."""

import pathlib
import re
import shutil

LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def targets(page: pathlib.Path, text: str) -> list[pathlib.Path]:
    """The files that a page links to. Raises FileNotFoundError for one that is not there."""
    found = []
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))):
        if re.match(r"[a-z]+:", link):
            continue
        path = (page.parent / link).resolve()
        if path.is_dir():
            path = path / "README.md"
        if not path.is_file():
            raise FileNotFoundError(f"{page}: links to {link}, which is not there")
        found.append(path)
    return found


def pages(root: pathlib.Path) -> list[pathlib.Path]:
    """All files of the site, relative to the checkout."""
    waiting = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    known = set(waiting)
    while waiting:
        page = waiting.pop()
        if page.suffix != ".md":
            continue
        for path in targets(page, page.read_text(encoding="utf-8")):
            if path not in known:
                path.relative_to(root)  # a link out of the checkout is an error
                known.add(path)
                waiting.append(path)
    return sorted(path.relative_to(root) for path in known)


def assemble(root: pathlib.Path, folder: pathlib.Path) -> int:
    """Copies them to `folder`, which is made anew."""
    root = root.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    files = pages(root)
    for path in files:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, folder / path)
    worker = folder / "assets/iframe-worker.js"
    worker.parent.mkdir(exist_ok=True)
    shutil.copyfile(pathlib.Path(__file__).with_name("iframe-worker.js"), worker)
    return len(files)


if __name__ == "__main__":
    checkout = pathlib.Path(__file__).resolve().parents[2]
    print(f"site: {assemble(checkout, checkout / 'build/site_source')} files")
