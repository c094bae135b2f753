#pragma once

#include <memory>
#include <string>

#include "registry/kinds/logger.h"
#include "registry/tensors/component_error.h"
#include "runner/loggers/loggers.h"
#include "tests/support.h"
#include "tests/temporary_folder.h"

namespace trainrun::test {

inline StepRecord at_step(int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 0.5;
  return record;
}

inline ComponentName named(const std::string& type) {
  return {{std::make_shared<std::string>("r.yaml"), 7, 3}, "logging.report_to[1]", type};
}

inline int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// What is logged while one lives.
class Log {
 public:
  Log() { start_log(folder_ / "log.txt", true, false); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  ~Log() { start_log("", true, false); }
  std::string text() const { return content_of(folder_ / "log.txt"); }

 private:
  TemporaryFolder folder_;
};

}  // namespace trainrun::test
