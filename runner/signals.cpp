#include "runner/signals.h"

#include <csignal>

namespace trainrun {
namespace {

volatile std::sig_atomic_t signal_received = 0;

void note_signal(int number) {
  signal_received = number;
  std::signal(number, SIG_DFL);
}

}  // namespace

StopSignals::StopSignals() {
  signal_received = 0;
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
}

StopSignals::~StopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

int StopSignals::received() { return signal_received; }

}  // namespace trainrun
