#include <algorithm>
#include <mutex>

#include "registry/data/data_file.h"
#include "registry/data/tables/csv_reader.h"
#include "registry/data/tables/table.h"
#include "registry/data/tables/table_columns.h"
#include "registry/data/tables/table_sources.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

struct Csv : TableOptions {
  std::string delimiter = ",";
  bool header = true;
  TextEncoding encoding = TextEncoding::kUtf8;
  std::string decimal = ".";
  std::optional<std::string> thousands;

  static void describe(Fields<Csv>& f) {
    TableOptions::describe_into(f);
    f.optional("delimiter", &Csv::delimiter)
        .doc(
            "the one character between columns: \",\", \";\", \"\\t\"; or auto: whichever of , ; tab and | divides the "
            "first lines into equal numbers of columns");
    f.optional("header", &Csv::header)
        .doc("the first line names the columns; if false they are named by their number, \"0\" the first");
    f.optional("encoding", &Csv::encoding).doc(kEncodingHelp);
    f.rule({.all = {the("delimiter").matches(R"(^([^"\n\r]|auto)$)")},
            .at = "delimiter",
            .message = "must be one character, neither a quotation mark nor a line end; or auto"});
    f.optional("decimal", &Csv::decimal).one_of({".", ","}).doc("the decimal separator");
    f.optional("thousands", &Csv::thousands)
        .one_of({",", ".", " ", "'", "_"})
        .doc("the thousands separator, as in 1.234,5; null: none");
  }
  void check(Checker& checker) const {
    if (thousands == decimal) checker.fail("thousands", "is the decimal separator as well; the two must differ");
    check_options(checker);
  }
  /// Null: numbers are written as usual.
  std::optional<NumberFormat> number_format() const {
    if (decimal == "." && !thousands) return std::nullopt;
    return NumberFormat{decimal[0], thousands ? (*thousands)[0] : '\0'};
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// Where the line of names may rather be a comment.
std::string advice_on_comment(const std::vector<std::string>& names) {
  if (names.empty() || !names[0].starts_with('#')) return "";
  return "; the first line begins with '#' and is read as the names of the columns: if it is a comment, leave it "
         "out of the file";
}

class CsvTable : public TableReader {
 public:
  CsvTable(const Csv& options, char delimiter)
      : reader_(options.path, delimiter, options.encoding), format_(options.number_format()) {
    read_first_record(options.path);
    if (options.header) {
      names_ = record_;
    } else {
      for (size_t i = 0; i < record_.size(); ++i) names_.push_back(std::to_string(i));
      first_is_data_ = true;
    }
  }

  const std::vector<std::string>& names() const override { return names_; }

  bool next(std::vector<Cell>& row) override {
    if (!first_is_data_ && !reader_.next(record_)) return false;
    first_is_data_ = false;
    if (record_.size() != names_.size()) {
      const std::string advice = advice_on_comment(names_);
      const bool are_more = record_.size() > names_.size() && advice.empty();
      throw RowError(reader_.place() + ": " + std::to_string(record_.size()) + " columns, the first line has " +
                     std::to_string(names_.size()) + advice +
                     (are_more ? "; put a text that holds the delimiter in quotation marks" : ""));
    }
    row.resize(record_.size());
    for (size_t i = 0; i < record_.size(); ++i) {
      row[i].kind = Cell::Kind::kText;
      row[i].format = format_ ? &*format_ : nullptr;
      row[i].text.swap(record_[i]);  // both keep their memory, row after row
    }
    return true;
  }

  int64_t row_number() const override { return reader_.line(); }

 private:
  /// A file of another kind is said to be one, whatever is wrong with it as a text.
  void read_first_record(const std::string& path) {
    try {
      if (!reader_.next(record_)) throw DataError(path + ": is empty");
    } catch (const DataError&) {
      const std::string hint = other_kind_hint(path);
      if (hint.empty()) throw;
      throw DataError(path + ": cannot be read as lines of text" + hint);
    }
  }

  CsvReader reader_;
  std::optional<NumberFormat> format_;
  std::vector<std::string> names_;
  std::vector<std::string> record_;
  bool first_is_data_ = false;
};

class CsvSource : public TableSource {
 public:
  explicit CsvSource(Csv options) : options_(std::move(options)) {}
  std::unique_ptr<TableReader> open() const override { return std::make_unique<CsvTable>(options_, delimiter()); }
  std::string place(int64_t row_number) const override { return options_.path + ":" + std::to_string(row_number); }
  std::string column_advice(const std::string& wanted, const std::vector<std::string>& names) const override {
    if (std::string other = other_kind_hint(options_.path); !other.empty()) return other;
    if (const char delimiter = seeming_delimiter(names, wanted)) {
      return "; the columns seem to be separated by " + delimiter_text(delimiter) +
             ": write delimiter: " + delimiter_text(delimiter);
    }
    const auto is_number = [](const std::string& name) {
      Cell cell;
      cell.kind = Cell::Kind::kText;
      cell.text = name;
      return parse_cell_number(cell).has_value();
    };
    const bool is_data = options_.header && 2 * std::count_if(names.begin(), names.end(), is_number) >
                                                static_cast<std::ptrdiff_t>(names.size());
    if (is_data) {
      return "; the first line seems to hold data, not names: write header: false, which calls the columns '0' to '" +
             std::to_string(names.size() - 1) + "'";
    }
    const std::string comment = advice_on_comment(names);
    return comment.empty() ? "" : suggestion(wanted, names) + comment;
  }
  std::string format_advice(const std::string& format) const override { return "write " + format; }
  TableKind kind() const override { return TableKind::kCsv; }
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    Csv options = options_;
    options.path = path;
    auto file = std::make_unique<CsvSource>(std::move(options));
    file->known_ = known_;
    file->known_names_ = known_names_;
    return file;
  }
  nlohmann::json told() const override {
    if (options_.delimiter != "auto") return nullptr;
    if (known_ != '\0') return {{"delimiter", std::string(1, known_)}, {"names", known_names_}};
    return {{"delimiter", std::string(1, delimiter())}, {"names", open()->names()}};
  }
  void know(const nlohmann::json& told) override {
    if (options_.delimiter != "auto" || !told.contains("delimiter")) return;
    known_ = told["delimiter"].get<std::string>().at(0);
    known_names_ = told.at("names").get<std::vector<std::string>>();
  }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    if (options_.delimiter == "auto") {
      const bool is_other = known_ != '\0' && known_ != delimiter();
      notes.push_back(
          options_.path + ": its columns are separated by " + delimiter_text(delimiter()) +
          (is_other ? ", and not by " + delimiter_text(known_) + " as those of the training data are" : ""));
    }
    return notes;
  }

 private:
  /// What the file says, looked for once.
  char delimiter() const {
    if (options_.delimiter != "auto") return options_.delimiter[0];
    const std::lock_guard<std::mutex> lock(mutex_);
    if (found_ == '\0') {
      if (const std::string hint = other_kind_hint(options_.path); !hint.empty()) {
        throw DataError(options_.path + ": cannot be read as lines of text" + hint);
      }
      std::string candidates = ",;\t|";
      if (const auto format = options_.number_format()) {
        std::erase_if(candidates, [&](char mark) { return mark == format->decimal || mark == format->thousands; });
      }
      const bool fits = known_ != '\0' && divides_as_known();
      found_ = fits ? known_ : find_delimiter(options_.path, options_.encoding, candidates);
    }
    return found_;
  }
  /// Whether the training data's delimiter gives columns that these have.
  bool divides_as_known() const {
    std::vector<std::string> first;
    try {
      if (!CsvReader(options_.path, known_, options_.encoding).next(first)) return false;
    } catch (const NotDelimited&) {
      return false;
    }
    if (!options_.header) return first.size() == known_names_.size();
    return first.size() > 1 && std::any_of(first.begin(), first.end(), [&](const std::string& name) {
             return std::find(known_names_.begin(), known_names_.end(), name) != known_names_.end();
           });
  }

  Csv options_;
  mutable std::mutex mutex_;
  mutable char found_ = '\0';
  char known_ = '\0';                     // of the training data, where these are others
  std::vector<std::string> known_names_;  // of their columns
};

/// The line of names alone.
std::vector<std::string> header_of(const std::string& path, TextEncoding encoding) {
  TextLines lines(path, encoding);
  std::string line;
  if (!lines.next(line)) throw DataError(path + ": is empty");
  return {line.substr(0, line.find_last_not_of("\r\n") + 1)};
}

std::unique_ptr<Dataset> Csv::build(const DatasetInputs& inputs) const {
  return make_table(*this, std::make_unique<CsvSource>(*this), inputs);
}

}  // namespace

std::unique_ptr<TableSource> csv_source(const TableOptions& options, char delimiter) {
  Csv csv;
  static_cast<TableOptions&>(csv) = options;
  csv.delimiter = std::string(1, delimiter);
  return std::make_unique<CsvSource>(std::move(csv));
}

std::unique_ptr<TableSource> csv_source(const std::string& path, const std::string& column, TextEncoding encoding) {
  Csv options;
  options.path = path;
  options.encoding = encoding;
  const char delimiter = seeming_delimiter(header_of(path, encoding), column);
  if (delimiter != '\0') options.delimiter = std::string(1, delimiter);
  return std::make_unique<CsvSource>(std::move(options));
}

void add_csv(DatasetRegistry& datasets) {
  datasets.add<Csv>("CSV", "rows of a table, as text or .gz: columns as features, one column as label");
}

}  // namespace trainrun
