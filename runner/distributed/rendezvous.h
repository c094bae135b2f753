#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trainrun {

/// This process among those of the job, and where they meet.
struct Rendezvous {
  int64_t rank = 0;
  int64_t world_size = 1;
  int64_t local_rank = 0;  // among those of this machine
  std::string address = "127.0.0.1";
  int port = 0;
  std::string launcher;  // who says so: "trainrun", "torchrun", "Slurm", "Open MPI", "MPICH"
  std::string job = {};  // which of the launcher's jobs this is; empty where it does not say
};

/// The value of an environment variable; nothing where it is not set, or empty.
using Variables = std::function<std::optional<std::string>(const std::string& name)>;

/// What `variables` say: our own launcher's, torchrun's (RANK, WORLD_SIZE; Kubernetes' PyTorchJob sets them too), Open
/// MPI's, PMI's (MPICH, Intel MPI), Slurm's. Nothing where no launcher speaks; a batch script, a shell of salloc and a
/// Slurm step of one task are no ranks. The ranks meet at MASTER_ADDR and MASTER_PORT, else at `address` and `port`
/// (main_process_ip, main_process_port), else at what the launcher lets one work out: with Slurm the step's first node,
/// with MPI this machine where it has all ranks, and a port that follows from the job (job_port). Throws Error where
/// what is said makes no sense, or does not say where the ranks meet.
std::optional<Rendezvous> rendezvous_from(const Variables& variables, const std::optional<std::string>& address,
                                          std::optional<int64_t> port);

/// The same, of this process's environment.
std::optional<Rendezvous> rendezvous_from_environment(const std::optional<std::string>& address,
                                                      std::optional<int64_t> port);

/// The first host of a Slurm node list: "node003" of "node[003-010,12],login".
std::string first_host(const std::string& node_list);

/// A port from 10000 to 29999 (below those that the system hands out) that follows from a job's name. Slurm's
/// "JOB.STEP" gives 10000 + (100 JOB + STEP) mod 20000; anything else is hashed.
int job_port(const std::string& job);

}  // namespace trainrun
