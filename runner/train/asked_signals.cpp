#include "runner/train/asked_signals.h"

#include <spdlog/spdlog.h>

#include <array>
#include <csignal>
#include <string>

#include "registry/language/error.h"
#include "runner/base/signals.h"
#include "runner/distributed/process_group.h"

namespace trainrun {
namespace {

constexpr std::array<int, kSignalNumbers> kSignals = {kSaveAndGoOn, SIGINT, SIGTERM};  // the greatest last

}  // namespace

int own_signal() {
  if (const int stop = StopSignals::received(); stop != 0) return stop;
  const int asked = StopSignals::take_save_request();
  if (asked == 0) return 0;
  if (asked == SIGPIPE) {
    spdlog::warn("standard output is closed; training continues, and log.txt still receives every line");
  } else {
    spdlog::info("{}: saves and continues", signal_name(asked));
  }
  return kSaveAndGoOn;
}

int agreed_signal(ProcessGroup& group) { return static_cast<int>(group.max(own_signal(), "signals")); }

void count_signal(int signal, const at::Tensor& counts) {
  if (signal == 0) return;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signal) return static_cast<void>(counts.select(0, static_cast<int64_t>(i)).fill_(1));
  }
  throw Error("signal " + std::to_string(signal) + " is none that ranks tell each other");
}

int greatest_signal(const at::Tensor& counts) {
  const auto* numbers = counts.const_data_ptr<double>();
  for (size_t i = kSignals.size(); i-- > 0;) {
    if (numbers[i] > 0) return kSignals[i];
  }
  return 0;
}

}  // namespace trainrun
