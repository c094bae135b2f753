#include "runner/control/control.h"

#include <unistd.h>

#include <sstream>

#include "registry/language/error.h"
#include "registry/language/value.h"
#include "runner/base/signals.h"
#include "runner/device/free_memory.h"

namespace trainrun {
namespace {

constexpr const char* kCommands = "status, metrics, save, stop, profile STEPS, set KEY=VALUE …";

std::string answer_text(bool is_done, const std::string& text) {
  const nlohmann::ordered_json answer = {{"ok", is_done}, {"text", text}};
  return answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

constexpr const char* kPrometheus = "text/plain; version=0.0.4; charset=utf-8";

/// "optimizer.lr=1e-4" apart. A value may hold blanks within brackets or quotes only if it is the last.
std::vector<std::pair<std::string, std::string>> settings_in(std::istream& words) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == word.size()) {
      throw Error("'" + word + "' is not KEY=VALUE, such as optimizer.lr=1e-4");
    }
    settings.emplace_back(word.substr(0, equals), word.substr(equals + 1));
  }
  if (settings.empty()) throw Error("set needs KEY=VALUE, such as optimizer.lr=1e-4");
  return settings;
}

void require_end(std::istream& words, const std::string& name) {
  if (std::string more; words >> more) throw Error(name + " takes nothing more, found '" + more + "'");
}

}  // namespace

ControlCommand parse_command(const std::string& line) {
  using Kind = ControlCommand::Kind;
  std::istringstream words(line);
  std::string name;
  words >> name;
  ControlCommand command;
  if (name == "set") {
    command.kind = Kind::kSet;
    command.settings = settings_in(words);
    return command;
  }
  if (name == "profile") {
    constexpr int64_t kMostSteps = 1000;
    std::string number;
    words >> number;
    const auto steps = parse_integer(number);
    if (!steps || *steps < 1 || *steps > kMostSteps) {
      throw Error("profile needs a number of steps from 1 to 1000, found '" + number + "'");
    }
    command.kind = Kind::kProfile;
    command.steps = *steps;
  } else if (name == "save") {
    command.kind = Kind::kSave;
  } else if (name == "stop") {
    command.kind = Kind::kStop;
  } else if (name == "metrics") {
    command.kind = Kind::kMetrics;
  } else if (name != "status") {
    throw Error("unknown command '" + name + "'; there are " + kCommands);
  }
  require_end(words, name);
  return command;
}

Control::Control(const std::string& folder) : begin_(std::chrono::steady_clock::now()) {
  status_.output_dir = folder;
  status_.pid = ::getpid();
  socket_ = std::make_unique<ControlSocket>(
      folder + "/" + kControlSocket, [this](uint64_t client, const std::string& line) { return handle(client, line); });
}

Control::~Control() { socket_.reset(); }

void Control::on_start(const RunInfo& info) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.name = info.name;
  status_.state = "training";
  status_.step = status_.start_step = info.start_step;
  status_.total_steps = info.total_steps;
  begin_ = std::chrono::steady_clock::now();
}

void Control::on_progress(int64_t step, double loss) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.step = step;
  status_.loss = loss;
}

void Control::on_step(const StepRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.epoch = record.epoch;
  status_.samples_per_second = record.samples_per_second;
  status_.training = record.figures();
}

void Control::on_evaluation(const EvaluationRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.evaluation = record.metrics;
}

void Control::on_checkpoint(const CheckpointRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.saved_step = record.step;
}

void Control::on_end(const EndRecord& record) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.state = "ended";
  const std::string how = record.reason.empty() ? "the job is done" : "the run has ended (" + record.reason + ")";
  const std::string saved = status_.saved_step == record.step ? ", which is saved" : "";
  const std::string text = how + " after step " + std::to_string(record.step) + saved;
  for (const ControlCommand& command : commands_) socket_->answer(command.client, answer_text(false, text));
  commands_.clear();
  has_commands_ = false;
  const bool is_failed = record.reason.starts_with("error");
  answer_all(saving_, !is_failed && !saved.empty(), text);
  answer_all(stopping_, !is_failed, text);
}

std::vector<ControlCommand> Control::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  has_commands_ = false;
  return std::exchange(commands_, {});
}

void Control::answer(const ControlCommand& command, bool is_done, const std::string& text) {
  socket_->answer(command.client, answer_text(is_done, text));
}

void Control::answer_saves(bool is_done, const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  answer_all(saving_, is_done, text);
}

void Control::set_changes(nlohmann::json changes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  status_.changes = std::move(changes);
}

void Control::answer_all(std::vector<uint64_t>& clients, bool is_done, const std::string& text) {
  for (const uint64_t client : clients) socket_->answer(client, answer_text(is_done, text));
  clients.clear();
}

RunStatus Control::status() const {
  RunStatus status;
  std::chrono::steady_clock::time_point begin;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    status = status_;
    begin = begin_;
  }
  status.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (status.seconds > 0)
    status.steps_per_second = static_cast<double>(status.step - status.start_step) / status.seconds;
  status.memory = memory_of_process("VmRSS");
  return status;
}

std::optional<std::string> Control::handle(uint64_t client, const std::string& line) {
  using Kind = ControlCommand::Kind;
  if (line.starts_with("GET ")) {
    const bool is_metrics = line.starts_with("GET /metrics ");
    return is_metrics ? http_answer("200 OK", kPrometheus, prometheus_text(status()))
                      : http_answer("404 Not Found", "text/plain", "there is /metrics alone\n");
  }
  ControlCommand command;
  try {
    command = parse_command(line);
  } catch (const Error& error) {
    return answer_text(false, error.what());
  }
  command.client = client;
  if (command.kind == Kind::kStatus) return answer_text(true, to_json(status()).dump());
  if (command.kind == Kind::kMetrics) return answer_text(true, prometheus_text(status()));
  const std::lock_guard<std::mutex> lock(mutex_);
  if (status_.state == "ended") return answer_text(false, "the run has ended");
  if (command.kind == Kind::kSave) {
    saving_.push_back(client);
    StopSignals::request_save(StopSignals::kControl);
  } else if (command.kind == Kind::kStop) {
    stopping_.push_back(client);
    StopSignals::request_stop();
  } else {
    commands_.push_back(std::move(command));
    has_commands_ = true;
  }
  return std::nullopt;
}

}  // namespace trainrun
