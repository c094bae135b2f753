#include "registry/catalog.h"
#include "registry/datasets/csv_reader.h"
#include "registry/datasets/table.h"

namespace trainrun {
namespace {

struct Csv : TableOptions {
  std::string delimiter = ",";
  bool header = true;
  TextEncoding encoding = TextEncoding::kUtf8;

  static void describe(Fields<Csv>& f) {
    TableOptions::describe_into(f);
    f.optional("delimiter", &Csv::delimiter).doc("the one character between columns: \",\", \";\", \"\\t\"");
    f.optional("header", &Csv::header)
        .doc("the first line names the columns; if false they are named by their number, \"0\" the first");
    f.optional("encoding", &Csv::encoding).doc(kEncodingHelp);
    f.rule({.all = {the("delimiter").matches(R"(^[^"\n\r]$)")},
            .at = "delimiter",
            .message = "must be one character, neither a quotation mark nor a line end"});
  }
  void check(Checker& checker) const { check_options(checker); }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

class CsvTable : public TableReader {
 public:
  explicit CsvTable(const Csv& options) : reader_(options.path, options.delimiter[0], options.encoding) {
    if (!reader_.next(record_)) throw DataError(options.path + ": is empty");
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
      throw DataError(reader_.place() + ": " + std::to_string(record_.size()) + " columns, the first line has " +
                      std::to_string(names_.size()));
    }
    row.resize(record_.size());
    for (size_t i = 0; i < record_.size(); ++i) {
      row[i].kind = Cell::Kind::kText;
      row[i].text.swap(record_[i]);  // both keep their memory, row after row
    }
    return true;
  }

  int64_t row_number() const override { return reader_.line(); }

 private:
  CsvReader reader_;
  std::vector<std::string> names_;
  std::vector<std::string> record_;
  bool first_is_data_ = false;
};

class CsvSource : public TableSource {
 public:
  explicit CsvSource(Csv options) : options_(std::move(options)) {}
  std::unique_ptr<TableReader> open() const override { return std::make_unique<CsvTable>(options_); }
  std::string place(int64_t row_number) const override { return options_.path + ":" + std::to_string(row_number); }

 private:
  Csv options_;
};

std::unique_ptr<Dataset> Csv::build(const DatasetInputs&) const {
  return make_table(*this, std::make_unique<CsvSource>(*this));
}

}  // namespace

void add_csv(DatasetRegistry& datasets) {
  datasets.add<Csv>("CSV", "rows of a table, as text or .gz: columns as features, one column as label");
}

}  // namespace trainrun
