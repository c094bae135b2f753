#pragma once

#include <ATen/Parallel.h>

namespace trainrun::test {

/// ATen's number of threads while this lives.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  Threads(Threads&&) = delete;
  Threads& operator=(Threads&&) = delete;

 private:
  int before_;
};

}  // namespace trainrun::test
