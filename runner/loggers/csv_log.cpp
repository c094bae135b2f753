#include "runner/loggers/csv_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>

#include "registry/codec.h"
#include "registry/datasets/csv_reader.h"
#include "registry/files/file_io.h"
#include "runner/loggers/appended_file.h"

namespace trainrun {
namespace {

/// What every row begins with; the figures follow.
constexpr std::array kLeading = {"step", "epoch", "time", "split"};

/// "nan", "inf" and "-inf" are what readers of CSV take for what is not finite.
std::string cell_of(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return detail::number_text(number);
}

bool ends_with_line_end(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  return file && file.tellg() > 0 && file.seekg(-1, std::ios::end) && file.get() == '\n';
}

class CsvLogger : public Logger {
 public:
  explicit CsvLogger(const LoggerInputs& inputs) : file_(inputs.output_dir + "/metrics.csv") {}
  /// What a checkpoint was saved after is in the file when the checkpoint is there.
  bool is_told_at_once() const override { return true; }

  /// The rows that a resumed run writes again go, and a row that was being written when the run was killed.
  void on_start(const RunInfo& info) override {
    CsvReader reader(file_.path(), ',');
    if (!reader.next(columns_)) return;
    if (columns_.size() < kLeading.size() || !std::equal(kLeading.begin(), kLeading.end(), columns_.begin())) {
      throw Error(file_.path() + " does not begin with the columns step, epoch, time, split; move it away");
    }
    rewrite([&](const std::vector<std::string>& row) {
      const int64_t step = parse_integer(row[0]).value_or(INT64_MAX);
      const bool comes_again = info.evaluation_due && step == info.start_step && row[3] == "eval";
      return step <= info.start_step && !comes_again;
    });
  }

  void on_step(const StepRecord& record) override { write(record, "train", record.figures()); }
  void on_evaluation(const EvaluationRecord& record) override { write(record, "eval", record.metrics); }

 private:
  template <class Record>
  void write(const Record& record, const std::string& split, const Figures& figures) {
    add_columns(figures);
    std::vector<std::string> row(columns_.size());
    row[0] = std::to_string(record.step);
    row[1] = std::to_string(record.epoch);
    row[2] = cell_of(std::round(record.seconds * 1000) / 1000);
    row[3] = split;
    for (const auto& [name, value] : figures) row[column_of(name)] = cell_of(value);
    file_.append(csv_record(row));
  }

  /// Of a figure; the number of columns where it has none.
  size_t column_of(const std::string& figure) const {
    const auto first = columns_.begin() + kLeading.size();
    return static_cast<size_t>(std::find(first, columns_.end(), figure) - columns_.begin());
  }

  /// Figures that were not there before become columns of the rows that are there, too.
  void add_columns(const Figures& figures) {
    const size_t before = columns_.size();
    if (columns_.empty()) columns_.assign(kLeading.begin(), kLeading.end());
    for (const auto& [name, value] : figures) {
      if (column_of(name) == columns_.size()) columns_.push_back(name);
    }
    const bool is_new = file_.made_anew();
    if (is_new || columns_.size() != before) rewrite([](const std::vector<std::string>&) { return true; });
  }

  /// Writes the file anew, in one instant: the columns as they are now, and of its rows those that `keeps` says.
  void rewrite(const std::function<bool(const std::vector<std::string>&)>& keeps) {
    const bool is_whole = ends_with_line_end(file_.path());
    write_file_atomically(file_.path(), [&](FileWriter& out) {
      out.write(csv_record(columns_));
      CsvReader rows(file_.path(), ',');
      std::vector<std::string> row;
      std::vector<std::string> next;
      if (!rows.next(row)) return;
      const size_t columns_before = row.size();
      for (bool more = rows.next(row); more; std::swap(row, next)) {
        more = rows.next(next);
        if ((!more && !is_whole) || row.size() != columns_before || !keeps(row)) continue;
        row.resize(columns_.size());
        out.write(csv_record(row));
      }
    });
    file_.reopen();
  }

  AppendedFile file_;
  std::vector<std::string> columns_;  // of the file; none: it is empty
};

struct Csv {
  static void describe(Fields<Csv>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs& inputs) const { return std::make_unique<CsvLogger>(inputs); }
};

}  // namespace

std::string csv_record(const std::vector<std::string>& fields) {
  std::string record;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) record += ',';
    if (fields[i].find_first_of(",\"\r\n") == std::string::npos) {
      record += fields[i];
      continue;
    }
    record += '"';
    for (const char c : fields[i]) record += c == '"' ? std::string("\"\"") : std::string(1, c);
    record += '"';
  }
  return record + "\n";
}

void add_csv(LoggerRegistry& loggers) {
  loggers.add<Csv>(
      "CSV",
      "every figure in metrics.csv: a column for each figure, a row for each line of the log and each evaluation");
}

}  // namespace trainrun
