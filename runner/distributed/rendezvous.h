#pragma once

#include <cstdint>
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
};

/// What the environment says: our own launcher's variables, torchrun's (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT),
/// Slurm's, Open MPI's or PMI's (MPICH, Intel MPI). Nothing where no launcher speaks. Throws Error where what one says
/// makes no sense, or address and port are missing and `address`, `port` (main_process_ip, main_process_port) do not
/// give them.
std::optional<Rendezvous> rendezvous_from_environment(const std::optional<std::string>& address,
                                                      std::optional<int64_t> port);

}  // namespace trainrun
