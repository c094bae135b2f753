#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <string_view>

#include "runner/base/secrets.h"
#include "runner/loggers/appended_file.h"
#include "runner/loggers/loggers.h"
#include "runner/loggers/missed_lines.h"
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
    std::string line = level_text(message.level) + without_secrets({message.payload.data(), message.payload.size()});
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

/// log.txt. Where it cannot be written for a while, the console says so, and the file says how many lines it lacks.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  FileSink(const std::string& path, AppendedFile::Readers readers, bool quiet) : file_(path, readers), quiet_(quiet) {}
  ~FileSink() override { tell(missed_.ended()); }
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    try {
      file_.made_anew();
      file_.append(line_of(message));
    } catch (const FileError& error) {
      return tell(missed_.failed(error.what(), /*is_line=*/true));
    }
    const std::string text = missed_.succeeded();
    tell(text);
    if (!text.empty()) sink_it_({message.logger_name, spdlog::level::warn, "log.txt " + text});
  }
  void flush_() override {}

 private:
  std::string line_of(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    return without_secrets({text.data(), text.size()});
  }
  void tell(const std::string& text) const {
    if (text.empty() || quiet_) return;
    Terminal::standard().print(Terminal::Stream::kError, "warning: log.txt " + text + "\n");
  }

  AppendedFile file_;
  bool quiet_;
  MissedLines missed_;
};

spdlog::sink_ptr log_file;  // of start_log; null: none

}  // namespace

void write_error_to_log(const std::string& text) {
  if (!log_file) return;
  log_file->log({"trainrun", spdlog::level::err, text});
  log_file->flush();
}

void start_log(const std::string& path, bool quiet, bool verbose, bool is_private) {
  const auto detail = verbose ? spdlog::level::debug : spdlog::level::info;
  const auto console = std::make_shared<ConsoleSink>();
  console->set_level(quiet ? spdlog::level::err : detail);
  std::vector<spdlog::sink_ptr> sinks = {console};
  log_file.reset();
  if (!path.empty()) {
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<LevelFlag>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e [rank 0] %*%v");
    const auto readers = is_private ? AppendedFile::Readers::kOwner : AppendedFile::Readers::kAll;
    const auto file = std::make_shared<FileSink>(path, readers, quiet);
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
