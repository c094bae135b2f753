#include "runner/distributed/rendezvous.h"

#include <cstdlib>

#include "registry/error.h"
#include "registry/value.h"

namespace trainrun {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<int64_t> number(const char* name) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  const auto value = parse_integer(*text);
  if (!value || *value < 0) throw Error(std::string(name) + " is '" + *text + "', expected a number");
  return value;
}

/// The variables of one launcher.
struct Names {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
};

constexpr Names kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},  // Kubernetes' PyTorchJob and our own launcher, too
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

}  // namespace

std::optional<Rendezvous> rendezvous_from_environment(const std::optional<std::string>& address,
                                                      std::optional<int64_t> port) {
  for (const Names& names : kLaunchers) {
    const auto rank = number(names.rank);
    const auto world_size = number(names.world_size);
    if (!rank || !world_size) continue;
    Rendezvous found;
    found.launcher = variable("TRAINRUN_LAUNCHED") ? "trainrun" : names.launcher;
    found.rank = *rank;
    found.world_size = *world_size;
    found.local_rank = number(names.local_rank).value_or(0);
    if (found.world_size < 1 || found.rank >= found.world_size) {
      throw Error(std::string(names.rank) + " is " + std::to_string(found.rank) + " of " +
                  std::to_string(found.world_size));
    }
    if (found.world_size == 1) return found;
    const auto meet = address ? address : variable("MASTER_ADDR");
    const auto door = port ? port : number("MASTER_PORT");
    if (!meet || !door) {
      throw Error(found.launcher + " started " + std::to_string(found.world_size) +
                  " processes, but does not say where they meet; write main_process_ip and main_process_port into the "
                  "recipe, or set MASTER_ADDR and MASTER_PORT");
    }
    found.address = *meet;
    found.port = static_cast<int>(*door);
    return found;
  }
  return std::nullopt;
}

}  // namespace trainrun
