#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace trainrun {

/// Records the operations of some steps of a run, of rank 0's training thread and of the threads that compute gradients, by
/// LibTorch's own profiler, for Perfetto and Chrome's tracing page. Nothing is computed differently.
class LiveProfile {
 public:
  ~LiveProfile();
  bool is_on() const { return left_ > 0; }
  /// From now on, for so many steps. `on_written` is told of the file, or of what went wrong.
  void begin(int64_t steps, std::string path, std::function<void(bool is_done, const std::string& text)> on_written);
  /// A step is finished.
  void after_step();

 private:
  int64_t left_ = 0;
  int64_t steps_ = 0;
  std::string path_;
  std::function<void(bool, const std::string&)> on_written_;
};

}  // namespace trainrun
