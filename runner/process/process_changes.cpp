// The page of everything that trainrun changes of its whole process.
#include "runner/process/process_changes.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>

#include "registry/graph/recomputation.h"
#include "registry/graph/shape_mode.h"
#include "registry/kernels/bernoulli.h"
#include "registry/tensors/rare_kernels.h"
#include "runner/process/block_allocator.h"
#include "runner/process/huge_pages.h"
#include "runner/process/matrix_products.h"
#include "runner/process/numeric_addresses.h"
#include "runner/process/passive_waiting.h"
#include "runner/process/start_pages.h"

namespace trainrun {
namespace {

std::string open_standard_streams() {
  constexpr std::array kStreams = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  for (const int stream : kStreams) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", O_RDWR) < 0) std::abort();  // it gets the lowest number that is free: this one
  }
  return "";
}

std::string keep_memory() {
  constexpr int kAtOnce = 64 << 20;
  return keep_freed_memory(kAtOnce) ? "" : "glibc refuses the threshold";
}

std::string stop_holding_back_kernels() {
  return end_holding_back_kernels() > 0 ? "" : "this program registers all of them as it starts";
}

std::string keep_large_blocks() {
  reuse_large_blocks(kLargeTensor);
  return "";
}

std::string allow_many_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return std::strerror(errno);
  files.rlim_cur = files.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &files) == 0 ? "" : std::strerror(errno);
}

template <void (*kChange)()>
std::string installed() {
  kChange();
  return "";
}

/// What `install` said, of the changes that were installed.
std::map<std::string_view, std::string>& outcomes() {
  static std::map<std::string_view, std::string> outcomes;
  return outcomes;
}

void install(bool all) {
  for (const ProcessChange& change : process_changes()) {
    if (!change.install || !(all || change.serves_libraries) || outcomes().contains(change.name)) continue;
    outcomes()[change.name] = change.install();
  }
}

}  // namespace

const std::vector<ProcessChange>& process_changes() {
  static const std::vector<ProcessChange> changes = {
      {"passive waiting",
       "OMP_WAIT_POLICY and GOMP_SPINCOUNT, which OpenMP finds by the program's own getenv: idle threads sleep after "
       "16,000 "
       "turns, or after 1,000 while a thread that watches sees that others want the CPUs",
       "OpenMP's threads otherwise turn in a loop for milliseconds, and take the CPUs from those they wait for", "",
       keep_waiting_passively},
      {"standard streams", "standard input, output and error that are closed are opened on /dev/null",
       "the next file, a lock or a checkpoint, would get that number, and what is printed would go into it", "",
       open_standard_streams},
      {"kept memory", "mallopt: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD",
       "glibc would hand the memory of every step back to the system and fetch it again for the next", "", keep_memory},
      {"huge pages", "madvise(MADV_HUGEPAGE) of the heap's first 192 MB, before the libraries' constructors run",
       "LibTorch registers its operators in 57 MB of small objects, each page of which would be a fault", "",
       huge_pages_outcome},
      {"rare kernels",
       "LibTorch's kernels for tracing, functionalization, vmap, named, nested and quantized tensors are registered "
       "when a plugin, TorchScript or an export first needs them",
       "they are a third of LibTorch's 20,000 kernels; without them a start takes a quarter less time", "",
       stop_holding_back_kernels},
      {"start's pages", "madvise(MADV_DONTNEED) of LibTorch's code and tables, once they have registered its operators",
       "most of the 60 MB that this takes is not read again", "", give_back_start_pages},
      {"open files", "RLIMIT_NOFILE is raised as far as the system allows",
       "each rank has a connection to every other one", "", allow_many_connections},
      {"hosts' names", "getnameinfo gives a host's number in place of its name",
       "LibTorch asks a name server about each rank that connects, and ranks wait for seconds where it does not answer",
       "", name_hosts_by_number},
      {"MKL's processor", "what mkl_serv_intel_cpu_true() says to MKL",
       "on AMD's processors MKL otherwise keeps to AVX2, even if they have AVX-512", "", use_all_of_amd, true},
      {"products of few rows", "kernels::linear computes them itself, not by LibTorch's operator",
       "MKL takes twice as long where a batch is small and a layer large", "", use_own_products},
      {"half products", "LibTorch's kernel for products of bfloat16 and float16, gemm_stub of the CPU",
       "where a processor has no instructions for them, LibTorch takes ten to a hundred times as long", "",
       use_float32_for_halves, true},
      {"bernoulli_", "LibTorch's operator aten::bernoulli_.float of the CPU",
       "LibTorch asks its generator twice for each number, which is most of the time of a dropout", "",
       installed<kernels::use_quick_bernoulli>, true},
      {"shape mode", "a kernel for all of LibTorch's operators, under a dispatch key that nothing else uses",
       "models are planned without memory and data", "", installed<install_shape_mode>, true},
      {"autograd engine", "LibTorch's engine of backward passes, which is asked what is kept for them",
       "model.checkpoint_activations", "", installed<install_recomputation>, true},
      {"large tensors",
       "LibTorch's allocator of the CPU, for tensors of 8 MiB and more (of 1 MiB in a run with sharding)",
       "small tensors would settle in the holes that large ones leave on the heap, which would grow with every batch",
       "", keep_large_blocks},
      {"determinism", "LibTorch's deterministic algorithms, and CUBLAS_WORKSPACE_CONFIG",
       "some algorithms add up in any order", "in a run with deterministic: true"},
      {"threads", "LibTorch's number of threads", "small models are quicker with one", "in a run, by num_threads"},
      {"TF32", "whether LibTorch lets GPUs round float32 in products and convolutions", "the recipe decides",
       "in a run on a GPU, by tf32"},
      {"signals", "the handlers of SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGPIPE and, in a launcher, SIGCHLD",
       "a run stops in order, or saves and goes on", "in a run"},
      {"signals of threads", "the signal mask of threads that write logs and checkpoints",
       "signals come to the training thread", "in a run"},
      {"parent's death", "the signal that the system sends to a rank whose launcher dies", "no rank is left behind",
       "in ranks that a launcher starts"},
      {"cores", "the CPUs that a rank may use", "ranks of a machine would wander between each other's cores",
       "in ranks, by distributed.pin_cores"},
      {"log", "spdlog's default logger", "messages go to the console and to log.txt", "in a run"},
  };
  return changes;
}

void install_process_changes() { install(true); }

void install_library_changes() { install(false); }

std::string status_of(const ProcessChange& change) {
  if (!change.install) return change.when;
  const auto outcome = outcomes().find(change.name);
  if (outcome == outcomes().end()) return "not installed by this program";
  return outcome->second.empty() ? "installed" : "not installed: " + outcome->second;
}

}  // namespace trainrun
