#include "runner/observers/jsonl.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "registry/codec.h"
#include "registry/files/file_io.h"

namespace trainrun {
namespace {

/// An object on one line whose keys stay in the order they are added.
class Line {
 public:
  void add(const std::string& key, int64_t number) { add_text(key, std::to_string(number)); }
  void add(const std::string& key, double number) {
    add_text(key, std::isfinite(number) ? detail::number_text(number) : "null");
  }
  void add(const std::string& key, const std::string& text) { add_text(key, nlohmann::json(text).dump()); }
  std::string text() const { return "{" + members_ + "}"; }

 private:
  void add_text(const std::string& key, const std::string& value) {
    if (!members_.empty()) members_ += ", ";
    members_ += nlohmann::json(key).dump() + ": " + value;
  }
  std::string members_;
};

/// What every line begins with.
template <class Record>
Line begin_line(const Record& record, const std::string& split) {
  Line line;
  line.add("step", record.step);
  line.add("epoch", record.epoch);
  line.add("time", std::round(record.seconds * 1000) / 1000);
  line.add("split", split);
  return line;
}

class JsonlLogger : public Logger {
 public:
  explicit JsonlLogger(const LoggerInputs& inputs) : path_(inputs.output_dir + "/metrics.jsonl"), file_(open()) {
    if (file_.number() < 0) throw FileError(path_, "open", errno);
  }

  void on_step(const StepRecord& record) override { write(jsonl_line(record)); }
  void on_evaluation(const EvaluationRecord& record) override { write(jsonl_line(record)); }

 private:
  Descriptor open() const { return Descriptor(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666)); }

  /// Where the file was removed with its folder, and the folder has been made anew, goes on in a new one.
  void open_again_if_removed() {
    struct stat status{};
    if (::fstat(file_.number(), &status) < 0 || status.st_nlink > 0) return;
    Descriptor file = open();
    if (file.number() >= 0) file_ = std::move(file);
  }

  void write(std::string line) {
    open_again_if_removed();
    line += '\n';
    std::string_view rest = line;
    while (!rest.empty()) {  // the kernel takes a line at once, unless a signal or a full disk comes between
      const ssize_t written = ::write(file_.number(), rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw FileError(path_, "write", errno);
      rest.remove_prefix(static_cast<size_t>(written));
    }
  }

  std::string path_;
  Descriptor file_;
};

struct Jsonl {
  static void describe(Fields<Jsonl>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs& inputs) const { return std::make_unique<JsonlLogger>(inputs); }
};

}  // namespace

std::string jsonl_line(const StepRecord& record) {
  Line line = begin_line(record, "train");
  line.add("train/loss", record.loss);
  for (const auto& [name, value] : record.losses) line.add(name, value);
  line.add("train/lr", record.lr);
  line.add("train/samples_per_second", std::round(record.samples_per_second));
  line.add("train/loss_avg", record.loss_avg);
  if (record.grad_norm) line.add("train/grad_norm", *record.grad_norm);
  if (record.loss_scale) {
    line.add("train/loss_scale", *record.loss_scale);
    line.add("train/skipped_steps", static_cast<double>(record.skipped_steps));
  }
  return line.text();
}

std::string jsonl_line(const EvaluationRecord& record) {
  Line line = begin_line(record, "eval");
  for (const auto& [name, value] : record.metrics) line.add(name, value);
  return line.text();
}

void add_jsonl(LoggerRegistry& loggers) {
  loggers.add<Jsonl>("jsonl", "every figure as one JSON object a line, in metrics.jsonl");
}

}  // namespace trainrun
