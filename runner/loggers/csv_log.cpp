#include "runner/loggers/csv_log.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <functional>
#include <optional>

#include "registry/data/tables/csv_reader.h"
#include "registry/formats/files/csv_text.h"
#include "registry/formats/files/file_io.h"
#include "registry/language/codec.h"
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

  void on_start(const RunInfo& info) override {
    start_ = info;
    begin();
  }

  void on_step(const StepRecord& record) override { write(record, "train", record.figures()); }
  void on_evaluation(const EvaluationRecord& record) override { write(record, "eval", record.metrics); }

 private:
  /// The rows that a resumed run writes again go, and a row that was being written when the run was killed. Where the
  /// disk does not let it, the next record tries again.
  void begin() {
    if (!start_) return;
    CsvReader reader(file_.path(), ',');
    const bool has_columns = reader.next(columns_);
    if (has_columns) keep_rows_until(*start_);
    start_.reset();
  }

  void keep_rows_until(const RunInfo& info) {
    if (columns_.size() < kLeading.size() || !std::equal(kLeading.begin(), kLeading.end(), columns_.begin())) {
      throw Error(file_.path() + " does not begin with the columns step, epoch, time, split; move it away");
    }
    rewrite(columns_, [&](const std::vector<std::string>& row) {
      const int64_t step = parse_integer(row[0]).value_or(INT64_MAX);
      const bool comes_again = info.evaluation_due && step == info.start_step && row[3] == "eval";
      return step <= info.start_step && !comes_again;
    });
  }

  template <class Record>
  void write(const Record& record, const std::string& split, const Figures& figures) {
    begin();
    add_columns(figures);
    std::vector<std::string> row(columns_.size());
    row[0] = std::to_string(record.step);
    row[1] = std::to_string(record.epoch);
    row[2] = cell_of(std::round(record.seconds * 1000) / 1000);
    row[3] = split;
    for (const auto& [name, value] : figures) row[column_of(name, columns_)] = cell_of(value);
    file_.append(csv_record(row));
  }

  /// Of a figure; the number of columns where it has none.
  static size_t column_of(const std::string& figure, const std::vector<std::string>& columns) {
    const auto first = columns.begin() + kLeading.size();
    return static_cast<size_t>(std::find(first, columns.end(), figure) - columns.begin());
  }

  /// Figures that were not there before become columns of the rows that are there, too.
  void add_columns(const Figures& figures) {
    std::vector<std::string> columns = columns_;
    if (columns.empty()) columns.assign(kLeading.begin(), kLeading.end());
    for (const auto& [name, value] : figures) {
      if (column_of(name, columns) == columns.size()) columns.push_back(name);
    }
    if (file_.made_anew()) lacks_columns_ = true;
    if (!lacks_columns_ && columns.size() == columns_.size()) return;
    rewrite(columns, [](const std::vector<std::string>&) { return true; });
    columns_ = std::move(columns);
    lacks_columns_ = false;
  }

  /// Writes the file anew, in one instant: with these columns, and of its rows those that `keeps` says.
  void rewrite(const std::vector<std::string>& columns,
               const std::function<bool(const std::vector<std::string>&)>& keeps) {
    const bool is_whole = ends_with_line_end(file_.path());
    write_file_atomically(file_.path(), [&](FileWriter& out) {
      out.write(csv_record(columns));
      CsvReader rows(file_.path(), ',');
      std::vector<std::string> row;
      std::vector<std::string> next;
      if (!rows.next(row)) return;
      const size_t columns_before = row.size();
      for (bool more = rows.next(row); more; std::swap(row, next)) {
        more = rows.next(next);
        if ((!more && !is_whole) || row.size() != columns_before || !keeps(row)) continue;
        row.resize(columns.size());
        out.write(csv_record(row));
      }
    });
    file_.reopen();
  }

  AppendedFile file_;
  std::vector<std::string> columns_;  // of the file; none: it is empty
  bool lacks_columns_ = false;        // the file was made anew, and its first line is still to come
  std::optional<RunInfo> start_;      // until its rows are those of a run that begins there
};

struct Csv {
  static void describe(Fields<Csv>&) {}
  std::unique_ptr<Logger> build(const LoggerInputs& inputs) const { return std::make_unique<CsvLogger>(inputs); }
};

}  // namespace

void add_csv(LoggerRegistry& loggers) {
  loggers.add<Csv>(
      "csv",
      "every figure in metrics.csv: a column for each figure, a row for each line of the log and each evaluation");
}

}  // namespace trainrun
