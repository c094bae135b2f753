"""Whatever changes the whole process stands on one page, runner/process/process_changes.cpp; nothing else makes such
calls."""

import pathlib
import re
import subprocess

from tests.program import CALLED

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALLS = re.compile(
    r"\b(mallopt|malloc_trim|setenv|putenv|unsetenv|clearenv|setlocale|umask|chdir|setrlimit|prctl|sched_setaffinity|"
    r"nice|setpriority|sigaction|sigprocmask|pthread_sigmask|std::signal|execve?|execvp|execvpe|at::set_num_threads|"
    r"at::set_num_interop_threads|omp_set_num_threads|SetCPUAllocator|SetAllocator|set_default_engine_stub|"
    r"setDeterministic\w*|setAllowTF32\w*|setFloat32\w*|setBenchmarkCuDNN|setUserEnabled\w*|set_default_dtype|"
    r"set_default_logger|set_terminate|set_new_handler|sync_with_stdio|curl_global_init|onig_initialize|"
    r"sqlite3_config)\s*\(|"
    r"\b(TORCH_LIBRARY\w*|torch::Library>?)\s*\(|\bstd::locale::global\b|"
    r"\bpreinit_array\b|__attribute__\(\(constructor")
PAGE = "runner/process/"
PROGRAMS_OF_THEIR_OWN = ("tools/bench/", "tools/starter/", "tools/tidy/")
# Who else makes such a call, and why; an entry of the page names each change that lasts.
ELSEWHERE = {
    "registry/graph/recomputation.cpp": ("set_default_engine_stub", "installed by the page"),
    "registry/graph/shape_mode.cpp": ("torch::Library", "installed by the page"),
    "registry/kernels/bernoulli.cpp": ("torch::Library", "installed by the page"),
    "registry/formats/web/transfer.cpp": ("curl_global_init", "libcurl asks for it before its first use"),
    "registry/language/regex.cpp": ("onig_initialize", "Oniguruma asks for it before its first use"),
    "runner/base/signals.cpp": ("sigaction", "on the page as signals"),
    "runner/base/own_process.cpp": ("prctl|sched_setaffinity|execve", "of a child of its own, before it begins anew"),
    "runner/data/data_loader.cpp": ("omp_set_num_threads", "of the calling thread alone"),
    "runner/distributed/launcher.cpp": ("sigaction|std::signal", "a launcher, as long as its ranks run"),
    "runner/distributed/rank_monitor.cpp": ("std::signal", "as the process ends"),
    "runner/sweep/trial_process.cpp": ("sigaction", "a sweep, as long as its trials run"),
    "runner/loggers/log.cpp": ("set_default_logger", "on the page as log"),
    "tools/main.cpp": ("preinit_array", "on the page as passive waiting, huge pages, rare kernels"),
    "tools/verb_bundle.cpp": ("std::signal", "as long as a bundle is written"),
    "tools/verb_run.cpp": ("prctl", "on the page as parent's death"),
}


def calls_in(root: pathlib.Path) -> list[str]:
    """Calls outside the page that ELSEWHERE does not name, as "file:line: call"."""
    found = []
    for folder in ("registry", "runner", "tools"):
        for path in sorted(p for p in (root / folder).rglob("*") if p.suffix in {".h", ".cpp", ".cu"}):
            name = str(path.relative_to(root))
            allowed = ELSEWHERE.get(name, ("nothing", ""))[0]
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                match = CALLS.search(line.split("//")[0])
                if match and not name.startswith((PAGE, *PROGRAMS_OF_THEIR_OWN)) and not re.search(allowed, match[0]):
                    found.append(f"{name}:{number}: {match[0]}")
    return found


def test_nothing_changes_the_whole_process_but_by_the_page():
    assert calls_in(ROOT) == []


def test_each_exception_is_one():
    for name, (calls, _) in ELSEWHERE.items():
        assert re.search(calls, (ROOT / name).read_text()), name


def test_a_call_elsewhere_is_found(tmp_path):
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry/layer.cpp").write_text(
        "// setenv(a, b, 0)\nvoid f() { ::setenv(a, b, 0); }\nTORCH_LIBRARY_IMPL(aten, CPU, m) {}\n")
    assert calls_in(tmp_path) == ["registry/layer.cpp:2: setenv(", "registry/layer.cpp:3: TORCH_LIBRARY_IMPL("]


def test_env_lists_every_change_and_those_of_the_start_are_installed():
    page = (ROOT / "runner/process/process_changes.cpp").read_text()
    page = page[page.index("process_changes() {"):]
    names = re.findall(r'^      \{"([^"]+)",', page, re.MULTILINE)
    assert len(names) > 10
    text = subprocess.run([CALLED, "env"], capture_output=True, text=True, check=True).stdout
    lines = {match[1]: match[2] for match in re.finditer(r"^process: (.+?)  +(.*)$", text, re.MULTILINE)}
    assert sorted(lines) == sorted(names)
    for name in ("standard streams", "kept memory", "open files", "bernoulli_", "shape mode", "autograd engine"):
        assert lines[name].startswith("installed; "), name
