#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace trainrun {

/// A file that is being fetched.
struct FetchProgress {
  std::string file;   // "model.safetensors"
  std::string from;   // "bert-base-cased"
  int64_t done = 0;   // bytes
  int64_t total = 0;  // bytes; 0: not known
  bool finished = false;
};

/// From now on, what recipes name and no cache has may be fetched; before, no component opens the network. `report` hears
/// of it, perhaps from several threads.
void allow_network(std::function<void(const FetchProgress&)> report);
bool network_is_allowed();
void report_progress(const FetchProgress& progress);

}  // namespace trainrun
