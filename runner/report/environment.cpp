#include "runner/report/environment.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "registry/kernels/cpu_path.h"
#include "registry/language/error.h"
#include "runner/base/text.h"
#include "runner/device/control_group.h"
#include "runner/device/device.h"
#include "runner/device/machine.h"
#include "runner/device/threads.h"
#include "runner/process/matrix_products.h"
#include "runner/process/process_changes.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using NamedLines = std::vector<std::pair<std::string, std::string>>;

std::string first_line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\"");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\"") + 1 - begin);
}

/// What follows `key` and a ':' or '=' in the first line of a file that begins with it, or "".
std::string entry(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t sign = line.find_first_of(":=");
    if (sign != std::string::npos && trimmed(line.substr(0, sign)) == key) return trimmed(line.substr(sign + 1));
  }
  return "";
}

/// The lines of `text` that hold one of the `words`, in one.
std::string lines_with(const std::string& text, const std::vector<std::string>& words) {
  std::istringstream lines(text);
  std::vector<std::string> found;
  for (std::string line; std::getline(lines, line);) {
    const bool wanted = std::any_of(words.begin(), words.end(),
                                    [&](const std::string& word) { return line.find(word) != std::string::npos; });
    if (wanted) found.push_back(trimmed(line.substr(line.find_first_not_of(" -\t"))));
  }
  return join(found, "; ");
}

std::string vector_extensions() {
  std::vector<std::string> found;
  __builtin_cpu_init();
  // The names must be literals.
#define TRAINRUN_CHECK(name) \
  if (__builtin_cpu_supports(name)) found.emplace_back(name)
  TRAINRUN_CHECK("sse4.2");
  TRAINRUN_CHECK("avx");
  TRAINRUN_CHECK("avx2");
  TRAINRUN_CHECK("fma");
  TRAINRUN_CHECK("avx512f");
  TRAINRUN_CHECK("avx512bw");
  TRAINRUN_CHECK("avx512vl");
  TRAINRUN_CHECK("avx512vnni");
  TRAINRUN_CHECK("avx512bf16");
#undef TRAINRUN_CHECK
  const std::string flags = " " + entry("/proc/cpuinfo", "flags") + " ";
  for (const char* name : {"amx_bf16", "amx_int8", "avx512_fp16"}) {
    if (flags.find(" " + std::string(name) + " ") != std::string::npos) found.emplace_back(name);
  }
  return join(found, " ");
}

std::string kilobytes(const std::string& text) { return bytes_text(std::strtod(text.c_str(), nullptr) * 1024); }

/// The limits that the control group (a container's, a job's of Slurm) sets: of memory and of CPU time.
std::string limits_text() {
  const ControlGroupLimits limits = control_group_limits();
  return "memory " + (limits.memory ? bytes_text(static_cast<double>(*limits.memory)) : "unlimited") + ", CPUs " +
         (limits.cpus ? decimal(*limits.cpus, 2) : "unlimited");
}

std::string container() {
  if (fs::exists("/.dockerenv")) return "Docker";
  if (fs::exists("/run/.containerenv")) return "Podman";
  if (std::getenv("SINGULARITY_NAME") || std::getenv("APPTAINER_NAME")) return "Apptainer";
  if (std::getenv("KUBERNETES_SERVICE_HOST")) return "Kubernetes";
  return "none seen";
}

std::string gpus() {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", none)) {
    found.push_back(entry(gpu.path() / "information", "Model"));
  }
  if (found.empty()) return fs::exists("/dev/nvidia0") ? "an NVIDIA device, no driver information" : "none found";
  return join(found) + "; driver " + trimmed(first_line_of("/proc/driver/nvidia/version"));
}

void add_software(NamedLines& facts) {
  facts.emplace_back("trainrun", TRAINRUN_VERSION);
  facts.emplace_back("LibTorch", TORCH_VERSION);
#if defined(__clang__)
  facts.emplace_back("compiler", __VERSION__);
#else
  facts.emplace_back("compiler", std::string("GCC ") + __VERSION__);
#endif
  facts.emplace_back("glibc", gnu_get_libc_version());
  facts.emplace_back("libraries", lines_with(at::show_config(), {"oneAPI", "MKL-DNN", "oneDNN", "OpenMP 2"}));
  utsname system{};
  uname(&system);
  facts.emplace_back("system",
                     entry("/etc/os-release", "PRETTY_NAME") + ", Linux " + system.release + " " + system.machine);
}

/// What computes on GPUs, where there are some.
void add_gpus(NamedLines& facts) {
  if (!sees_gpu()) return;
  const OpenedAccelerator& opened = open_accelerator();
  facts.emplace_back("CUDA", opened.accelerator ? opened.accelerator->versions() : opened.missing);
  for (int64_t i = 0; i < opened.num_gpus(); ++i) {
    const Accelerator::Gpu gpu = opened.accelerator->describe(i);
    facts.emplace_back("cuda:" + std::to_string(i), gpu.name + ", " + bytes_text(static_cast<double>(gpu.memory)) +
                                                        ", compute capability " + gpu.compute_capability);
  }
}

/// How threads wait in a run, which sets what is not set here (runner/process/passive_waiting.cpp), and what that does now.
std::string waiting_text() {
  const bool is_set = std::getenv("OMP_WAIT_POLICY") || std::getenv("GOMP_SPINCOUNT");
  if (!is_set)
    return "wait passively in a run, after some tenths of a millisecond, or sooner while others want the CPUs; "
           "OMP_WAIT_POLICY and GOMP_SPINCOUNT are not set";
  const Waiting waiting = thread_waiting();
  const std::string hint = waiting_hint(waiting.is_busy, at::get_num_threads(), num_runnable(), usable_cpus());
  return "wait " + waiting.text + (hint.empty() ? "" : "; " + hint);
}

void add_hardware(NamedLines& facts) {
  facts.emplace_back("CPU", processor_name());
  facts.emplace_back("CPUs", std::to_string(sysconf(_SC_NPROCESSORS_ONLN)) + " online, " +
                                 std::to_string(usable_cpus()) + " usable by this process");
  facts.emplace_back("vector extensions", vector_extensions());
  facts.emplace_back("LibTorch's kernels", at::get_cpu_capability());
  facts.emplace_back("trainrun's kernels", kernels::name_of(kernels::best_cpu_path()));
  facts.emplace_back("matrix products", matrix_products_text());
  facts.emplace_back("threads", std::to_string(at::get_num_threads()) + " within an operation, " +
                                    std::to_string(at::get_num_interop_threads()) + " between operations");
  facts.emplace_back("waiting threads", waiting_text());
  facts.emplace_back("memory", kilobytes(entry("/proc/meminfo", "MemTotal")) + ", " +
                                   kilobytes(entry("/proc/meminfo", "MemAvailable")) + " available");
  facts.emplace_back("GPU", gpus());
  add_gpus(facts);
  facts.emplace_back("container", container());
  facts.emplace_back("limits", limits_text());
}

void add_variables(NamedLines& facts) {
  std::vector<std::string> set;
  for (const char* name : {"OMP_NUM_THREADS",
                           "OMP_WAIT_POLICY",
                           "GOMP_SPINCOUNT",
                           "MKL_NUM_THREADS",
                           "OMP_PROC_BIND",
                           "KMP_AFFINITY",
                           "GOMP_CPU_AFFINITY",
                           "LD_PRELOAD",
                           "LD_LIBRARY_PATH",
                           "ATEN_CPU_CAPABILITY",
                           "ONEDNN_MAX_CPU_ISA",
                           "TRAINRUN_PLAIN_MKL",
                           "TRAINRUN_GLOO",
                           "CUDA_VISIBLE_DEVICES",
                           "MALLOC_CONF",
                           "TRAINRUN_LIBTORCH",
                           "TRAINRUN_DATA",
                           "NO_COLOR",
                           "TERM",
                           "LANG"}) {
    if (const char* value = std::getenv(name)) set.push_back(std::string(name) + "=" + value);
  }
  facts.emplace_back("variables", join(set, " "));
}

}  // namespace

NamedLines describe_environment() {
  if (sees_gpu()) open_accelerator();  // before LibTorch is asked anything: see prepare_device
  NamedLines facts;
  add_software(facts);
  add_hardware(facts);
  add_variables(facts);
  for (const ProcessChange& change : process_changes()) {
    facts.emplace_back(std::string("process: ") + change.name, status_of(change) + "; " + change.what);
  }
  return facts;
}

}  // namespace trainrun
