#include "runner/loggers/console.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <cmath>
#include <filesystem>

#include "runner/base/text.h"
#include "runner/loggers/terminal.h"

namespace trainrun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr size_t kShortestBar = 12;

std::string position(int64_t step, int64_t total) { return std::to_string(step) + "/" + std::to_string(total); }

/// {"eval/accuracy", 0.9802} -> "accuracy 98.02 %"; {"eval/loss/digit", 0.3} -> "loss/digit 0.3000"
std::string figure(const std::string& name, double value) {
  const std::string shown = name.substr(name.find('/') + 1);
  if (shown.ends_with("accuracy")) return shown + " " + decimal(100 * value, 2) + " %";
  return shown + " " + decimal(value);
}

/// Whether it is of one class of many ("eval/f1/3", "eval/confusion_matrix/3/5"): such figures are for the files.
bool is_of_one_class(const std::string& name) {
  const std::string last = name.substr(name.rfind('/') + 1);
  return !last.empty() && last.find_first_not_of("0123456789") == std::string::npos;
}

std::string figures(const Figures& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    if (!is_of_one_class(name)) text += (text.empty() ? "" : " ") + figure(name, value);
  }
  return text;
}

/// "42 s", and as `duration` from a minute on.
std::string time_left(double seconds) {
  return seconds < 59.5 ? std::to_string(std::llround(seconds)) + " s" : duration(seconds);
}

std::string rate(double samples_per_second) { return rate_text(samples_per_second) + " samples/s"; }

/// Samples in `steps` optimizer steps; exact over whole epochs, where the last step may be a short one.
double samples_in(int64_t steps, const RunInfo& info) {
  const auto batch = static_cast<double>(info.effective_batch_size);
  if (info.num_epochs == 0) return static_cast<double>(steps) * batch;
  const auto steps_per_epoch = std::ceil(static_cast<double>(info.total_steps) / static_cast<double>(info.num_epochs));
  const double epoch = std::min(static_cast<double>(info.train_samples), steps_per_epoch * batch);
  return static_cast<double>(steps) / steps_per_epoch * epoch;
}

class ConsoleLogger : public Logger {
 public:
  explicit ConsoleLogger(const LoggerInputs& inputs)
      : has_bar_(inputs.interactive && !inputs.quiet && Terminal::standard().has_status()) {}
  ConsoleLogger(const ConsoleLogger&) = delete;
  ConsoleLogger& operator=(const ConsoleLogger&) = delete;
  ~ConsoleLogger() override { remove_bar(); }
  /// Its lines stand between those that training logs, in their order, and above the bar.
  bool is_told_at_once() const override { return true; }

  void on_start(const RunInfo& info) override {
    info_ = info;
    start_ = Clock::now();
    for (const std::string& line : start_lines(info)) spdlog::info(line);
  }

  void on_progress(int64_t step, double loss) override {
    if (!has_bar_) return;
    const auto now = Clock::now();
    if (now < next_draw_) return;
    next_draw_ = now + kRedrawInterval;
    ProgressState state;
    state.step = step;
    state.total_steps = info_.total_steps;
    state.loss = loss;
    const double seconds_per_step = seconds_since_start(now) / static_cast<double>(step - info_.start_step);
    state.seconds_left = seconds_per_step * static_cast<double>(info_.total_steps - step);
    state.samples_per_second =
        rate_ > 0 ? rate_ : samples_in(step - info_.start_step, info_) / seconds_since_start(now);
    Terminal& terminal = Terminal::standard();
    terminal.set_status(progress_bar(state, terminal.width() - 1));
  }

  void on_step(const StepRecord& record) override {
    rate_ = record.samples_per_second;
    spdlog::info(step_line(record, info_));
  }

  void on_evaluation(const EvaluationRecord& record) override { spdlog::info(evaluation_line(record, info_)); }

  void on_checkpoint(const CheckpointRecord& record) override {
    weights_ = record.path + "/model.safetensors";
    spdlog::info(checkpoint_line(record, info_));
  }

  void on_end(const EndRecord& record) override {
    remove_bar();
    const int64_t steps = record.step - info_.start_step;
    std::string text = "in " + duration(record.seconds);
    if (steps > 0) text += ", " + rate(samples_in(steps, info_) / seconds_since_start(Clock::now()));
    if (!record.metrics.empty()) text += "; " + figures(record.metrics);
    if (record.reason.empty()) {
      spdlog::info("done {} steps {}", grouped(record.step), text);
    } else if (record.reason.starts_with("error")) {
      // What the error was, the program says last, once, and log.txt has it.
      spdlog::error("stopped at step {} {}", position(record.step, info_.total_steps), text);
    } else {
      spdlog::info("stopped by {} at step {} {}; the same command resumes it", record.reason,
                   position(record.step, info_.total_steps), text);
    }
    say_where_weights_are();
  }

 private:
  double seconds_since_start(Clock::time_point now) const {
    return std::chrono::duration<double>(now - start_).count();
  }

  void remove_bar() {
    if (has_bar_) Terminal::standard().set_status("");
  }

  void say_where_weights_are() const {
    const std::string best = info_.output_dir + "/checkpoints/best/model.safetensors";
    std::error_code unreadable;
    if (std::filesystem::exists(best, unreadable)) spdlog::info("best weights {}", best);
    if (!weights_.empty()) spdlog::info("weights {}", weights_);
  }

  bool has_bar_;
  RunInfo info_;
  Clock::time_point start_;
  Clock::time_point next_draw_;
  double rate_ = 0;      // samples a second, of the last line
  std::string weights_;  // of the last checkpoint
};

struct Console {
  static void describe(Fields<Console>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs& inputs) const { return std::make_unique<ConsoleLogger>(inputs); }
};

}  // namespace

std::vector<std::string> start_lines(const RunInfo& info) {
  std::string what = info.name + ": " + grouped(info.num_parameters) + " parameters, " + grouped(info.train_samples) +
                     " training samples";
  if (info.eval_samples) what += ", " + grouped(*info.eval_samples) + " evaluation samples";
  std::string how = grouped(info.total_steps) + (info.total_steps == 1 ? " step" : " steps");
  if (info.num_epochs > 0) how += " in " + grouped(info.num_epochs) + (info.num_epochs == 1 ? " epoch" : " epochs");
  how += ", effective batch " + grouped(info.effective_batch_size) + ", device " + info.device + ", output in " +
         info.output_dir;
  std::vector<std::string> lines = {what, how};
  if (info.start_step > 0) lines.push_back("resumed at step " + position(info.start_step, info.total_steps));
  return lines;
}

std::string step_line(const StepRecord& record, const RunInfo& info) {
  std::string line = "step " + position(record.step, info.total_steps) + " loss " + decimal(record.loss);
  if (!record.losses.empty()) line += " " + figures(record.losses);
  line += " avg " + decimal(record.loss_avg) + " lr " + scientific(record.lr);
  if (record.grad_norm) line += " grad_norm " + decimal(*record.grad_norm);
  if (record.skipped_steps > 0) line += " skipped " + grouped(record.skipped_steps);
  return line + " " + rate(record.samples_per_second);
}

std::string evaluation_line(const EvaluationRecord& record, const RunInfo& info) {
  return "eval step " + position(record.step, info.total_steps) + " " + figures(record.metrics);
}

std::string checkpoint_line(const CheckpointRecord& record, const RunInfo& info) {
  return "checkpoint step " + position(record.step, info.total_steps) + " " + record.path;
}

std::string progress_bar(const ProgressState& state, size_t width) {
  const double done = static_cast<double>(state.step) / static_cast<double>(std::max<int64_t>(1, state.total_steps));
  const std::string percent = std::to_string(100 * state.step / std::max<int64_t>(1, state.total_steps)) + " %";
  const std::string left = "ETA " + time_left(state.seconds_left);
  const std::string count = position(state.step, state.total_steps);
  const std::string loss = "loss " + decimal(state.loss);
  const std::string speed = rate(state.samples_per_second);
  const std::vector<std::vector<std::string>> choices = {{percent, count, loss, speed, left},
                                                         {percent, count, loss, left},
                                                         {percent, count, left},
                                                         {percent, left},
                                                         {percent}};
  for (const auto& choice : choices) {
    std::string text;
    for (const std::string& part : choice) text += " " + part;
    if (text.size() + kShortestBar > width) continue;
    const size_t inside = std::min<size_t>(width - text.size() - 2, 40);
    const auto filled = static_cast<size_t>(done * static_cast<double>(inside));
    std::string bar(filled, '=');
    if (filled < inside) bar += ">" + std::string(inside - filled - 1, ' ');
    return "[" + bar + "]" + text;
  }
  return percent.substr(0, width);
}

void add_console(LoggerRegistry& loggers) {
  loggers.add<Console>("console",
                       "lines on the console and in log.txt; a progress bar if standard output is a terminal");
}

}  // namespace trainrun
