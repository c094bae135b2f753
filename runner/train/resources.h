#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "runner/train/job.h"

namespace trainrun {

/// Bytes of memory that a rank keeps between two steps.
struct HeldBytes {
  int64_t parameters = 0;  // whole, or this rank's part
  int64_t gradients = 0;
  int64_t optimizer_state = 0;
};

/// What a rank hands to one kind of collective for one purpose; bytes of its own tensors.
struct TrafficLine {
  std::string purpose;    // "gradients"
  std::string operation;  // "all_reduce"
  int64_t calls = 0;
  int64_t bytes = 0;
  bool operator==(const TrafficLine&) const = default;
};

/// What one rank held at the end of some steps, and had sent until then.
struct RankResources {
  int64_t rank = 0;
  int64_t steps = 0;
  HeldBytes held;
  std::vector<TrafficLine> traffic;  // by purpose; empty for one process
};

/// Of this process, between two steps.
HeldBytes held_bytes(Job& job);
std::vector<TrafficLine> traffic_of(const Job& job);
RankResources resources_of(Job& job, int64_t steps);

nlohmann::ordered_json to_json(const HeldBytes& held);
nlohmann::ordered_json to_json(const std::vector<TrafficLine>& traffic);
nlohmann::ordered_json to_json(const RankResources& resources);

/// One object a rank, in order. All ranks call it.
nlohmann::json resources_of_ranks(Job& job, int64_t steps);

}  // namespace trainrun
