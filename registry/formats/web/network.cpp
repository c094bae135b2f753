#include "registry/formats/web/network.h"

#include <mutex>

namespace trainrun {
namespace {

struct Network {
  std::mutex mutex;
  bool allowed = false;
  std::function<void(const FetchProgress&)> report;
};

Network& network() {
  static Network of_process;
  return of_process;
}

}  // namespace

void allow_network(std::function<void(const FetchProgress&)> report) {
  const std::lock_guard lock(network().mutex);
  network().allowed = true;
  network().report = std::move(report);
}

bool network_is_allowed() {
  const std::lock_guard lock(network().mutex);
  return network().allowed;
}

void report_progress(const FetchProgress& progress) {
  const std::lock_guard lock(network().mutex);
  if (network().report) network().report(progress);
}

}  // namespace trainrun
