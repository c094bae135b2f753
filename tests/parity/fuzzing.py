"""Has trainrun_probe read files that are changed at random (fuzz.h): each is to be read, or refused with an error of the right kind, in little time and
memory. TRAINRUN_FUZZ_SECONDS says how long (of the processor) for each reader, TRAINRUN_FUZZ_ROUNDS how many files; TRAINRUN_FUZZ_SEED draws others;
TRAINRUN_FUZZ_FIRST and TRAINRUN_FUZZ_ROUNDS=1 repeat the round that a finding names."""

import json
import os
import pathlib

from probe import ProbeError

FOUND = "found.txt"  # lies beside the files of findings
CHECKED = 500  # rounds from which on some files are read, and some refused


def setting(name: str, kind: type, otherwise):
    return kind(os.environ.get(f"TRAINRUN_FUZZ_{name}", otherwise))


def written(folder: pathlib.Path, files: dict[str, bytes | str]) -> list[str]:
    """Writes files, and gives their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return [str(folder / name) for name in files]


def placed(files: list[str], folder: pathlib.Path) -> list[dict[str, str]]:
    """The same files as seeds that a reader finds in `folder`, under their names."""
    folder.mkdir(parents=True, exist_ok=True)
    return [{"path": file, "place": str(folder / pathlib.Path(file).name)} for file in files]


def fuzz(probe, folder: pathlib.Path, reader: str, files: list, rounds: int = 600, refuses: bool = True, **request) -> dict:
    """Runs the fuzzer; `refuses`: whether changed files are refused at all, and not made anew."""
    changed = folder / "changed"
    changed.mkdir(exist_ok=True)
    plan = {"rounds": setting("ROUNDS", int, rounds), "seconds": setting("SECONDS", float, 0), "first": setting("FIRST", int, 0)}
    plan["seed"] = setting("SEED", int, request.pop("seed", 1))
    try:
        reply, _ = probe.ask("fuzz", reader=reader, files=files, folder=str(changed), **plan, **request)
    except ProbeError as error:
        left = [str(path) for path in changed.iterdir() if not path.name.startswith("seed-")]
        (changed / FOUND).write_text(str(error))
        raise AssertionError(f"{error}; the file that was read then: {left}") from error
    print(json.dumps({"reader": request.get("spec", {}).get("type", reader)} | reply))
    if reply["findings"]:
        (changed / FOUND).write_text("\n".join(reply["findings"]))
    assert reply["findings"] == [], "\n".join(reply["findings"])
    if reply["rounds"] >= CHECKED:
        assert reply["read"] > reply["rounds"] / 100
        assert reply["refused"] > reply["rounds"] / 20 or not refuses
    return reply
