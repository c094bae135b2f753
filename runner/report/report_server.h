#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runner/control/request_socket.h"
#include "runner/report/run_report.h"

namespace trainrun {

/// Serves the page of runs that may still go on, at 127.0.0.1 alone, and to nobody who calls that by another name (as a
/// page of another site would whose name was made to point here). The page asks for newer figures.
class ReportServer {
 public:
  /// `read` gives the runs as they are now. `port`: 0 for one that is free. Throws Error where it cannot be had.
  ReportServer(int port, std::function<RunReport()> read);
  int port() const { return port_; }

 private:
  std::string answer(const std::string& request) const;

  std::function<RunReport()> read_;
  int port_ = 0;
  std::unique_ptr<RequestSocket> requests_;  // last: its thread uses the others
};

}  // namespace trainrun
