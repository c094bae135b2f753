#include "runner/loggers/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "runner/base/signals.h"

namespace trainrun {
namespace {

constexpr size_t kDefaultWidth = 80;

bool knows_colors(int file) {
  const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org: set, and not empty
  const char* terminal = std::getenv("TERM");
  if (no_color && *no_color) return false;
  return isatty(file) == 1 && terminal && std::string_view(terminal) != "dumb";
}

}  // namespace

/// A job does not end because its output was closed: what cannot be written is lost. After a failed write nothing more
/// is written to that stream, and the job saves, since it may be killed next.
void Terminal::write_all(int& file, std::string_view text) {
  while (!text.empty() && file >= 0) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == EPIPE || errno == EIO)) {  // EIO: a terminal that has hung up
      if (&file == &out_) StopSignals::request_save(SIGPIPE);
      file = -1;
    }
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

Terminal::Terminal(int out, int error)
    : out_(out), error_(error), out_colors_(knows_colors(out)), error_colors_(knows_colors(error)) {}

Terminal& Terminal::standard() {
  static Terminal terminal(STDOUT_FILENO, STDERR_FILENO);
  return terminal;
}

size_t Terminal::width() const {
  winsize size{};
  const bool known = ioctl(out_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kDefaultWidth;
}

/// Goes back to where the status line began and clears from there. It has become several lines where the window was
/// made narrower.
std::string Terminal::erase_status() const {
  if (status_.empty()) return "";
  const size_t lines_above = (status_.size() - 1) / width();
  return "\r" + (lines_above > 0 ? "\033[" + std::to_string(lines_above) + "A" : std::string()) + "\033[J";
}

void Terminal::print(Stream stream, const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stream == Stream::kOut) return write_all(out_, erase_status() + text + status_);
  write_all(out_, erase_status());
  write_all(error_, text);
  write_all(out_, status_);
}

void Terminal::set_status(std::string text) {
  if (!has_status()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  write_all(out_, erase_status() + text);
  status_ = std::move(text);
}

}  // namespace trainrun
