#pragma once

namespace trainrun {

/// While one lives, SIGINT and SIGTERM are noted instead of ending the program; a second one ends it at once.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// The signal that came, or 0.
  static int received();
};

}  // namespace trainrun
