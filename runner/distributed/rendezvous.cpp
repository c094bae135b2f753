#include "runner/distributed/rendezvous.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>

#include "registry/language/error.h"
#include "registry/language/value.h"

namespace trainrun {
namespace {

constexpr int kFirstJobPort = 10000;
constexpr uint64_t kJobPorts = 20000;
constexpr int64_t kFirstSpecialStep = 0xfffffff0;  // Slurm's steps of batch scripts, shells, prologs are above

/// The environment, with what is wanted of it.
class VariableReader {
 public:
  explicit VariableReader(const Variables& variables) : variables_(variables) {}

  std::optional<std::string> text(const std::string& name) const { return variables_(name); }

  std::optional<int64_t> number(const std::string& name) const {
    const auto text = variables_(name);
    if (!text) return std::nullopt;
    const auto value = parse_integer(*text);
    if (!value || *value < 0) throw Error(name + " is '" + *text + "', expected a number");
    return value;
  }

  /// The first of them that is set.
  std::optional<std::string> text_of(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (auto value = variables_(name)) return value;
    }
    return std::nullopt;
  }

 private:
  const Variables& variables_;
};

/// What one launcher says.
struct Launched {
  Rendezvous rendezvous;
  std::optional<std::string> address;  // where the ranks meet, as far as it can be worked out
};

/// Checked: rank `rank` of `world_size`, if both are set.
std::optional<Launched> launched(const VariableReader& reader, const char* launcher, const char* rank,
                                 const char* world_size, const char* local_rank) {
  const auto own = reader.number(rank);
  const auto size = reader.number(world_size);
  if (!own || !size) return std::nullopt;
  if (*size < 1 || *own >= *size) {
    throw Error(std::string(rank) + " is " + std::to_string(*own) + " of " + std::to_string(*size));
  }
  Launched found;
  found.rendezvous.launcher = launcher;
  found.rendezvous.rank = *own;
  found.rendezvous.world_size = *size;
  found.rendezvous.local_rank = reader.number(local_rank).value_or(0);
  return found;
}

/// Whether this machine has all ranks.
bool all_are_here(const VariableReader& reader, const Launched& found, const char* local_size) {
  return reader.number(local_size) == found.rendezvous.world_size;
}

/// The nearest process above this one that has no PMI_RANK: it has started the ranks, so they agree on it. Empty where
/// it cannot be known.
std::string starter_of_ranks() {
  for (pid_t process = ::getppid(); process > 1;) {
    const std::string folder = "/proc/" + std::to_string(process);
    std::ifstream file(folder + "/environ", std::ios::binary);
    if (!file) return "";
    const std::string environment((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const bool is_rank = ('\0' + environment).find(std::string("\0PMI_RANK=", 10)) != std::string::npos;
    if (!is_rank) return std::to_string(process);
    std::ifstream stat(folder + "/stat");
    const std::string line((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
    const size_t name_end = line.rfind(')');  // "PID (NAME) STATE PARENT …"
    if (name_end == std::string::npos || name_end + 4 >= line.size()) return "";
    process = static_cast<pid_t>(std::strtol(line.c_str() + name_end + 4, nullptr, 10));
  }
  return "";
}

std::optional<Launched> from_torchrun(const VariableReader& reader) {
  auto found =
      launched(reader, reader.text("TRAINRUN_LAUNCHED") ? "trainrun" : "torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK");
  if (found) found->rendezvous.job = reader.text("TORCHELASTIC_RUN_ID").value_or("");
  return found;
}

std::optional<Launched> from_open_mpi(const VariableReader& reader) {
  auto found =
      launched(reader, "Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK");
  if (!found) return found;
  found->rendezvous.job = reader.text_of({"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}).value_or("");
  if (all_are_here(reader, *found, "OMPI_COMM_WORLD_LOCAL_SIZE")) found->address = "127.0.0.1";
  return found;
}

std::optional<Launched> from_pmi(const VariableReader& reader) {
  auto found = launched(reader, "MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID");
  if (!found) return found;
  const auto job = reader.text("PMI_JOBID");
  found->rendezvous.job = job ? *job : starter_of_ranks();
  if (all_are_here(reader, *found, "MPI_LOCALNRANKS")) found->address = "127.0.0.1";
  return found;
}

std::optional<Launched> from_slurm(const VariableReader& reader) {
  // A batch script has SLURM_PROCID without a step, the shell that salloc opens a step with a special number. A step
  // of one task is most often a shell, too (srun --pty bash), which may start ranks of its own.
  const auto step = reader.number("SLURM_STEP_ID");
  if (!step || *step >= kFirstSpecialStep) return std::nullopt;
  auto found = launched(reader, "Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID");
  if (!found || found->rendezvous.world_size == 1) return std::nullopt;
  if (const auto job = reader.number("SLURM_JOB_ID")) {
    found->rendezvous.job = std::to_string(*job) + "." + std::to_string(*step);
  }
  const auto nodes = reader.text_of({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (reader.number("SLURM_STEP_NUM_NODES") == 1) {
    found->address = "127.0.0.1";
  } else if (nodes) {
    found->address = first_host(*nodes);
  }
  return found;
}

std::optional<Launched> from_any(const VariableReader& reader) {
  if (auto found = from_torchrun(reader)) return found;  // also where our launcher runs under another
  if (auto found = from_open_mpi(reader)) return found;  // mpirun in a Slurm job, whose variables are its daemons'
  const bool is_hydra = reader.text("MPI_LOCALRANKID").has_value();  // and not srun --mpi=pmi2
  if (is_hydra) {
    if (auto found = from_pmi(reader)) return found;
  }
  if (auto found = from_slurm(reader)) return found;
  return from_pmi(reader);
}

}  // namespace

std::string first_host(const std::string& node_list) {
  std::string host;
  for (size_t i = 0; i < node_list.size() && node_list[i] != ','; ++i) {
    if (node_list[i] != '[') {
      host += node_list[i];
      continue;
    }
    const size_t end = node_list.find(']', i);
    const std::string numbers = node_list.substr(i + 1, end == std::string::npos ? end : end - i - 1);
    host += numbers.substr(0, numbers.find_first_of("-,"));
    if (end == std::string::npos) break;
    i = end;
  }
  return host;
}

int job_port(const std::string& job) {
  const size_t dot = job.find('.');
  const auto number = parse_integer(job.substr(0, dot));
  const auto step = dot == std::string::npos ? std::nullopt : parse_integer(job.substr(dot + 1));
  uint64_t hash = 0;
  if (number && step) {
    hash = 100 * static_cast<uint64_t>(*number) + static_cast<uint64_t>(*step);
  } else {
    hash = 14695981039346656037U;  // FNV-1a
    for (const char letter : job) hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  }
  return kFirstJobPort + static_cast<int>(hash % kJobPorts);
}

std::optional<Rendezvous> rendezvous_from(const Variables& variables, const std::optional<std::string>& address,
                                          std::optional<int64_t> port) {
  const VariableReader reader(variables);
  const auto found = from_any(reader);
  if (!found) return std::nullopt;
  Rendezvous rendezvous = found->rendezvous;
  if (rendezvous.world_size == 1) return rendezvous;
  auto meet = reader.text("MASTER_ADDR");
  auto door = reader.number("MASTER_PORT");
  if (!meet) meet = address ? address : found->address;
  if (!door) door = port;
  if (!door && !rendezvous.job.empty() && rendezvous.launcher != "torchrun") door = job_port(rendezvous.job);
  if (!meet || !door) {
    throw Error(rendezvous.launcher + " started " + std::to_string(rendezvous.world_size) +
                " processes, but does not say where they meet; write main_process_ip and main_process_port into the "
                "recipe, or set MASTER_ADDR and MASTER_PORT: rank 0's machine, and a port that is free there");
  }
  constexpr int64_t kLastPort = 65535;
  if (*door < 1 || *door > kLastPort) throw Error("MASTER_PORT is " + std::to_string(*door) + ", expected 1 to 65535");
  rendezvous.address = *meet;
  rendezvous.port = static_cast<int>(*door);
  return rendezvous;
}

std::optional<Rendezvous> rendezvous_from_environment(const std::optional<std::string>& address,
                                                      std::optional<int64_t> port) {
  const Variables variables = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value && *value ? std::optional<std::string>(value) : std::nullopt;
  };
  return rendezvous_from(variables, address, port);
}

}  // namespace trainrun
