#include "runner/loggers/jsonl.h"

#include <cmath>

#include "registry/language/codec.h"
#include "runner/loggers/appended_file.h"

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

template <class Record>
std::string line_of(const Record& record, const std::string& split, const Figures& figures) {
  Line line;
  line.add("step", record.step);
  line.add("epoch", record.epoch);
  line.add("time", std::round(record.seconds * 1000) / 1000);
  line.add("split", split);
  for (const auto& [name, value] : figures) line.add(name, value);
  return line.text();
}

class JsonlLogger : public Logger {
 public:
  explicit JsonlLogger(const LoggerInputs& inputs) : file_(inputs.output_dir + "/metrics.jsonl") {}
  /// What a checkpoint was saved after is in the file when the checkpoint is there.
  bool is_told_at_once() const override { return true; }
  void on_step(const StepRecord& record) override { write(jsonl_line(record)); }
  void on_evaluation(const EvaluationRecord& record) override { write(jsonl_line(record)); }

 private:
  void write(const std::string& line) {
    file_.made_anew();
    file_.append(line + "\n");
  }

  AppendedFile file_;
};

struct Jsonl {
  static void describe(Fields<Jsonl>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs& inputs) const { return std::make_unique<JsonlLogger>(inputs); }
};

}  // namespace

std::string jsonl_line(const StepRecord& record) { return line_of(record, "train", record.figures()); }

std::string jsonl_line(const EvaluationRecord& record) { return line_of(record, "eval", record.metrics); }

void add_jsonl(LoggerRegistry& loggers) {
  loggers.add<Jsonl>("jsonl",
                     "every figure in metrics.jsonl, one JSON object for each line of the log and each evaluation");
}

}  // namespace trainrun
