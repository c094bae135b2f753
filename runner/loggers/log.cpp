#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>

#include <string_view>

#include "runner/loggers/loggers.h"
#include "runner/loggers/terminal.h"

namespace trainrun {
namespace {

std::string level_text(spdlog::level::level_enum level) {
  if (level == spdlog::level::warn) return "warning: ";
  return level >= spdlog::level::err ? "error: " : "";
}

/// How a line that begins with this word is set off on a terminal: an ANSI code, or "".
std::string color_of(std::string_view line) {
  const std::string_view word = line.substr(0, line.find(' '));
  if (word == "warning:" || word == "stopped") return "33";  // yellow
  if (word == "error:") return "31";                         // red
  if (word == "eval" || word == "done") return "32";         // green
  return word == "checkpoint" ? "2" : "";                    // dim
}

/// Informs on standard output, warns on standard error.
class ConsoleSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    Terminal& terminal = Terminal::standard();
    const auto stream = message.level >= spdlog::level::warn ? Terminal::Stream::kError : Terminal::Stream::kOut;
    std::string line = level_text(message.level) + std::string(message.payload.data(), message.payload.size());
    const std::string color = terminal.has_colors(stream) ? color_of(line) : "";
    if (!color.empty()) {
      const size_t word = std::min(line.find(' '), line.size());
      line = "\033[" + color + "m" + line.substr(0, word) + "\033[0m" + line.substr(word);
    }
    terminal.print(stream, line + "\n");
  }
  void flush_() override {}
};

/// %* in a pattern: "warning: ", "error: " or nothing.
class LevelFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& text) override {
    const std::string level = level_text(message.level);
    text.append(level.data(), level.data() + level.size());
  }
  std::unique_ptr<spdlog::custom_flag_formatter> clone() const override { return std::make_unique<LevelFlag>(); }
};

spdlog::sink_ptr log_file;  // of start_log; null: none

}  // namespace

void write_error_to_log(const std::string& text) {
  if (!log_file) return;
  log_file->log({"trainrun", spdlog::level::err, text});
  log_file->flush();
}

void start_log(const std::string& path, bool quiet, bool verbose) {
  const auto detail = verbose ? spdlog::level::debug : spdlog::level::info;
  const auto console = std::make_shared<ConsoleSink>();
  console->set_level(quiet ? spdlog::level::err : detail);
  std::vector<spdlog::sink_ptr> sinks = {console};
  log_file.reset();
  if (!path.empty()) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<LevelFlag>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e [rank 0] %*%v");
    const auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    file->set_formatter(std::move(formatter));
    file->set_level(detail);
    sinks.push_back(file);
    log_file = file;
  }
  const auto logger = std::make_shared<spdlog::logger>("trainrun", sinks.begin(), sinks.end());
  logger->set_level(detail);
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(logger);
}

}  // namespace trainrun
