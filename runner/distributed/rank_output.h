#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "registry/formats/files/file_io.h"

namespace trainrun {

/// What one rank says, on its way through the launcher: a pipe whose lines come out whole, each after "[rank 3] ".
class RankOutput {
 public:
  /// Lines go to the descriptor `to`. Throws Error where there can be no pipe.
  RankOutput(int64_t rank, int to);

  /// For the rank's stdout and stderr; closed across exec. The launcher closes it once the rank is started.
  int write_end() const { return write_end_.number(); }
  void close_write_end() { write_end_ = Descriptor(); }
  /// To wait for; -1 once the rank has closed its end.
  int read_end() const { return read_end_.number(); }

  /// Hands on some of what has come, as far as lines are complete. Does not wait. False: there was nothing.
  bool pass_on();
  /// Hands on the rest; completes the last line.
  void finish();

 private:
  void write_lines(std::string_view lines) const;

  std::string prefix_;
  int to_;
  Descriptor read_end_;
  Descriptor write_end_;
  std::string pending_;  // the beginning of a line
};

}  // namespace trainrun
