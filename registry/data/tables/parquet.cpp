#include <algorithm>
#include <mutex>

#include "registry/data/path_patterns.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/tables/table.h"
#include "registry/data/tables/table_sources.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

struct Parquet : TableOptions {
  static void describe(Fields<Parquet>& f) {
    TableOptions::describe_into(f,
                                "a Parquet file, or one of Arrow's (.feather, .arrow); or several, which follow each "
                                "other: rows-*.parquet, rows-{0000..0009}.parquet");
  }
  void check(Checker& checker) const { check_options(checker); }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

// A row's number is that of its file and its own: they take no memory, and need no file to be counted.
constexpr int kRowBits = 40;

/// Files one after another, with the columns of the first, in whatever order.
class ArrowFiles : public TableReader {
 public:
  explicit ArrowFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {
    open_file();
    names_ = reader_->names();
  }

  const std::vector<std::string>& names() const override { return names_; }

  void read_only(const std::vector<size_t>& places) override {
    wanted_ = places;
    reader_->read_only(places);
  }

  bool next(std::vector<Cell>& row) override {
    while (!reader_->next(is_alike_ ? row : row_)) {
      if (file_ + 1 == paths_.size()) return false;
      ++file_;
      open_file();
      find_columns();
    }
    if (is_alike_) return true;
    row.resize(names_.size());
    for (size_t i = 0; i < wanted_.size(); ++i) std::swap(row[wanted_[i]], row_[places_[i]]);
    return true;
  }

  int64_t row_number() const override { return (static_cast<int64_t>(file_) << kRowBits) + reader_->row_number(); }

 private:
  void open_file() { reader_ = open_arrow_table(paths_[file_], ObjectColumns::kRefused); }

  void find_columns() {
    if (wanted_.empty()) {
      for (size_t i = 0; i < names_.size(); ++i) wanted_.push_back(i);
    }
    const std::vector<std::string>& own = reader_->names();
    is_alike_ = own == names_;
    places_.clear();
    for (const size_t place : wanted_) {
      const auto found = std::find(own.begin(), own.end(), names_[place]);
      if (found == own.end()) {
        throw DataError(paths_[file_] + ": has no column '" + names_[place] + "', which " + paths_[0] + " has" +
                        suggestion(names_[place], own));
      }
      places_.push_back(static_cast<size_t>(found - own.begin()));
    }
    reader_->read_only(places_);
  }

  std::vector<std::string> paths_;
  size_t file_ = 0;
  std::unique_ptr<TableReader> reader_;  // of this file
  std::vector<std::string> names_;       // of the first one's columns
  std::vector<size_t> wanted_;           // of them
  bool is_alike_ = true;                 // this file has them in the same places
  std::vector<size_t> places_;           // else they are here
  std::vector<Cell> row_;
};

class ArrowSource : public TableSource {
 public:
  explicit ArrowSource(std::string path) : path_(std::move(path)) {}

  std::unique_ptr<TableReader> open() const override { return std::make_unique<ArrowFiles>(paths()); }

  std::string place(int64_t row_number) const override {
    const int64_t row = row_number & ((int64_t{1} << kRowBits) - 1);
    return paths().at(static_cast<size_t>(row_number >> kRowBits)) + ":" + std::to_string(row);
  }

  TableKind kind() const override { return TableKind::kArrow; }
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    return std::make_unique<ArrowSource>(path);
  }

 private:
  /// Looked for once, so that rows keep their places.
  const std::vector<std::string>& paths() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (paths_.empty()) paths_ = matching_paths({path_}, "Parquet");
    return paths_;
  }

  std::string path_;
  mutable std::mutex mutex_;
  mutable std::vector<std::string> paths_;
};

std::unique_ptr<Dataset> Parquet::build(const DatasetInputs& inputs) const {
  return make_table(*this, std::make_unique<ArrowSource>(path), inputs);
}

}  // namespace

std::unique_ptr<TableSource> arrow_source(const std::string& path) { return std::make_unique<ArrowSource>(path); }

void add_parquet(DatasetRegistry& datasets) {
  datasets.add<Parquet>("Parquet",
                        "rows of Parquet or Arrow files: columns as features, one as label; needs what tools/setup "
                        "--arrow fetches");
}

}  // namespace trainrun
