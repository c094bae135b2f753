"""Which machine and which programs a table is of."""

import hashlib
import json
import os
import pathlib
import subprocess

from . import runs

PACKAGES = ["torch", "torchvision", "accelerate", "transformers", "lightning", "matplotlib"]


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def features() -> list[str]:
    """Those that decide which kernels run."""
    words = set(next((line.split(":")[1] for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")), "").split())
    return [word for word in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if word in words]


def program_digest(binary: pathlib.Path) -> str:
    """Of the program and the libraries built beside it."""
    digest = hashlib.sha256()
    for path in [binary, *sorted(binary.parent.parent.glob("lib/*.so*"))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"], cwd=runs.ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def describe(binary: pathlib.Path, python: pathlib.Path, overrides: list) -> dict:
    asked = runs.run([python, "-B", runs.HERE / "peer_data.py", "versions", *PACKAGES], {"PYTHONPATH": str(runs.BENCH_PACKAGES)})
    memory = runs.number_in("/proc/meminfo", "MemTotal") / 2**20
    return {"processor": processor(), "processors": len(os.sched_getaffinity(0)), "of": os.cpu_count(), "features": features(), "memory_gib": round(memory, 1),
            "kernel": os.uname().release, "commit": commit(), "program": program_digest(binary), "overrides": overrides,
            "versions": json.loads(asked.output)}


SAME = ("processor", "processors", "program", "overrides", "versions")  # what a table may not mix


def differences(old: dict, new: dict) -> list[str]:
    return [f"{key}: {old.get(key)} there, {new.get(key)} here" for key in SAME if old.get(key) != new.get(key)]
