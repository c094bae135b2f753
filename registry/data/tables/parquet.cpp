#include <mutex>

#include "registry/data/path_patterns.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/tables/table.h"
#include "registry/data/tables/table_files.h"
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

class ArrowSource : public TableSource {
 public:
  explicit ArrowSource(std::string path) : path_(std::move(path)) {}

  std::unique_ptr<TableReader> open() const override {
    const auto open_one = [](const std::string& path) { return open_arrow_table(path, ObjectColumns::kRefused); };
    return open_in_turn(paths(), open_one, empty_);
  }

  std::string place(int64_t row_number) const override {
    const auto [file, row] = row_in_files(row_number);
    return paths().at(file) + ":" + std::to_string(row);
  }

  TableKind kind() const override { return TableKind::kArrow; }
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    return std::make_unique<ArrowSource>(path);
  }
  std::vector<std::string> notes() const override {
    const std::string note = empty_->note(paths().size());
    return note.empty() ? std::vector<std::string>() : std::vector<std::string>{path_ + ": " + note};
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
  std::shared_ptr<EmptyFiles> empty_ = std::make_shared<EmptyFiles>();
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
