#include "runner/loggers/missed_lines.h"

#include <utility>

#include "runner/base/text.h"

namespace trainrun {

std::string MissedLines::count() const {
  return missed_ == 1 ? "1 line is missing" : grouped(missed_) + " lines are missing";
}

std::string MissedLines::failed(const std::string& why, bool is_line) {
  if (is_line) ++missed_;
  if (std::exchange(is_failing_, true)) return "";
  return "cannot write; until it can, its lines are dropped and counted, and training continues: " + why;
}

std::string MissedLines::succeeded() {
  if (!std::exchange(is_failing_, false)) return "";
  std::string text = "can write again; " + count();
  missed_ = 0;
  return text;
}

std::string MissedLines::ended() {
  return std::exchange(is_failing_, false) && missed_ > 0 ? "could not write to the end; " + count() : "";
}

}  // namespace trainrun
