#include "tools/network.h"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "registry/formats/web/hub_cache.h"
#include "registry/formats/web/network.h"
#include "runner/base/secrets.h"
#include "runner/base/text.h"

namespace trainrun {
namespace {

constexpr std::array kVerbsWithNetwork = {"run",  "launch",  "eval",    "predict", "generate", "export",
                                          "data", "profile", "lr-find", "report",  "sweep"};
constexpr int kWidth = 30;  // of the bar

std::string size_text(int64_t bytes) {
  constexpr double kMega = 1e6;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / kMega);
  return text;
}

std::string bar(const FetchProgress& progress) {
  const double part = progress.total > 0 ? static_cast<double>(progress.done) / static_cast<double>(progress.total) : 0;
  const int filled = static_cast<int>(part * kWidth);
  std::string text = "fetching " + progress.from + ": " + progress.file + " [";
  for (int i = 0; i < kWidth; ++i) text += i < filled ? '=' : ' ';
  return text + "] " + size_text(progress.done) + (progress.total > 0 ? " of " + size_text(progress.total) : "");
}

/// A bar that grows on a terminal; elsewhere a line for each file.
class FetchReport {
 public:
  explicit FetchReport(const Program& program) : program_(program), is_terminal_(isatty(STDERR_FILENO) == 1) {}

  void operator()(const FetchProgress& progress) {
    if (program_.quiet) return;
    const int percent = progress.total > 0 ? static_cast<int>(100 * progress.done / progress.total) : 0;
    if (is_terminal_ && (progress.finished || progress.file != file_ || percent != percent_)) {
      std::fprintf(stderr, "\r\033[K%s%s", bar(progress).c_str(), progress.finished ? "\n" : "");
    } else if (!is_terminal_ && progress.finished) {
      std::fprintf(stderr, "fetched %s: %s\n", progress.from.c_str(), progress.file.c_str());
    }
    file_ = progress.file;
    percent_ = percent;
  }

 private:
  const Program& program_;
  bool is_terminal_;
  std::string file_;
  int percent_ = -1;
};

}  // namespace

void add_network(CLI::App& app, Program& program) {
  for (const char* name : kVerbsWithNetwork) {
    app.get_subcommand(name)->preparse_callback([&program](size_t /*num_arguments*/) {
      hide_secret(hub_token(), "[the hub's token]");
      allow_network(FetchReport(program));
    });
  }
}

}  // namespace trainrun
