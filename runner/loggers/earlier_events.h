#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trainrun {

/// An event of an event file, as far as it is looked at.
struct EarlierEvent {
  int64_t step = 0;
  bool is_restart = false;   // hides what came before, of its step and later ones
  bool has_picture = false;  // as its first value
  std::string tag;           // of its first value; "" where it has none
};

/// Throws protozero's exceptions where `message` is not an `Event`.
EarlierEvent read_event(std::string_view message);

/// The messages with values of `step` that TensorBoard shows of the event files at `paths`, which are read in this order.
/// A file counts up to its first record that is not whole. Throws DataError where one cannot be read.
std::vector<std::string> shown_events(const std::vector<std::string>& paths, int64_t step);

}  // namespace trainrun
