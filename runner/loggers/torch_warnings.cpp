#include "runner/loggers/torch_warnings.h"

#include <c10/util/Exception.h>
#include <spdlog/spdlog.h>

#include <set>
#include <string>
#include <utility>

#include "runner/loggers/terminal.h"

namespace trainrun {
namespace {

class ShownWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const c10::SourceLocation& place = warning.source_location();
    if (!shown_.emplace(place.file, place.line).second) return;
    const std::string text = "LibTorch: " + warning.msg();
    if (spdlog::default_logger_raw()->name() == "trainrun") return spdlog::warn("{}", text);  // start_log's
    Terminal::standard().print(Terminal::Stream::kError, "warning: " + text + "\n");
  }

 private:
  std::set<std::pair<std::string, uint32_t>> shown_;  // places in LibTorch's source
};

}  // namespace

void show_torch_warnings() {
  static ShownWarnings warnings;
  c10::WarningUtils::set_warning_handler(&warnings);
}

}  // namespace trainrun
