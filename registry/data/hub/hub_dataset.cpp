#include <map>
#include <mutex>

#include "registry/data/hub/hub_files.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/tables/table.h"
#include "registry/data/tables/table_files.h"
#include "registry/data/tables/table_sources.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

/// The files, found once for all copies of the recipe's component.
class HubFilesOnce {
 public:
  const HubFiles& get(const HubQuery& query) {
    const std::lock_guard lock(mutex_);
    if (!files_) files_ = hub_files(query);
    return *files_;
  }

 private:
  std::mutex mutex_;
  std::optional<HubFiles> files_;
};

struct HubDataset : TableOptions {
  std::optional<std::string> of_split;
  std::optional<std::string> config;
  std::optional<std::string> revision;
  std::optional<std::string> files;
  std::shared_ptr<HubFilesOnce> found = std::make_shared<HubFilesOnce>();

  static void describe(Fields<HubDataset>& f);
  void check(Checker& checker) const {
    if (revision && path.find('@') != std::string::npos) checker.fail("revision", "path also gives a revision");
    if (config && files)
      checker.fail("config",
                   "cannot be given together with files: it names an entry of the card, which is not read where files "
                   "are given");
    check_options(checker);
  }
  HubQuery query() const { return {{of_split, config, files}, path, revision}; }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

void HubDataset::describe(Fields<HubDataset>& f) {
  TableOptions::describe_whole_into(
      f, "org/name or org/name@revision; or a folder of files that are laid out as in such a repository");
  f.optional("split", &HubDataset::of_split)
      .doc(
          "the name of a split of the data set: train, validation, test, …; null: train. To use only a part of its "
          "rows, wrap it in type: Split");
  f.optional("config", &HubDataset::config)
      .doc("which of the data set's tables to read; null: its only one, or its default");
  f.optional("revision", &HubDataset::revision)
      .not_empty("expected a branch, a tag or a commit")
      .doc("a branch, a tag or a commit; null: main");
  f.optional("files", &HubDataset::files)
      .not_empty("expected a path or a pattern")
      .doc(
          "only these files of the repository, whatever its card lists: a path, or a pattern such as 'data/*.parquet' "
          "or '**/part-?.csv'; all of them are read where split is null");
}

/// Of one file.
std::unique_ptr<TableSource> source_of(const HubDataset& options, const std::string& path) {
  TableOptions own = options;
  own.path = path;
  constexpr char kComma = ',';
  const std::optional<std::string>& said = options.found->get(options.query()).split.delimiter;
  switch (hub_file_kind(path).value()) {
    case HubFileKind::kParquet:
      break;
    case HubFileKind::kCsv:
      return csv_source(own, said ? (*said)[0] : kComma);
    case HubFileKind::kTsv:
      return csv_source(own, said ? (*said)[0] : '\t');
    case HubFileKind::kJsonl:
      return jsonl_source(own);
  }
  return arrow_source(path);
}

class HubSource : public TableSource {
 public:
  explicit HubSource(HubDataset options) : options_(std::move(options)) {}

  std::unique_ptr<TableReader> open() const override {
    const auto open_one = [this](const std::string& path) { return source_of(options_, path)->open(); };
    return open_in_turn(found().paths, open_one, empty_);
  }

  std::string place(int64_t row_number) const override {
    const auto [file, row] = row_in_files(row_number);
    return found().paths.at(file) + ":" + std::to_string(row);
  }

  TableKind kind() const override { return TableKind::kOfHub; }
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    return source_of_file(*this, path, options_.labels()[0]);
  }

  std::vector<std::string> class_names(const std::string& column) const override {
    const HubFiles& files = found();
    const std::lock_guard lock(mutex_);
    const auto known = names_.find(column);
    if (known != names_.end()) return known->second;
    std::vector<std::string>& names = names_[column];
    const std::string& first = files.paths.front();
    if (hub_file_kind(first) == HubFileKind::kParquet) {
      names = class_names_in_metadata(arrow_metadata(first, "huggingface"), column, first);
    }
    if (names.empty()) names = files.card.class_names(files.split.config, column);
    return names;
  }

  std::vector<std::string> notes() const override {
    const HubFiles& files = found();
    std::vector<std::string> notes;
    if (!files.split.unread.empty()) {
      notes.push_back(files.card_path + ": what it says of the config " + files.split.config + " in " +
                      join(files.split.unread) + " is not heeded");
    }
    if (const std::string note = empty_->note(files.paths.size()); !note.empty()) {
      notes.push_back(options_.path + ": " + note);
    }
    if (!files.is_listed) {
      notes.push_back(options_.path + ": the split " + files.split.split + " is read from " +
                      std::to_string(files.paths.size()) +
                      " file(s) that the cache has; whether the hub has more was "
                      "not asked");
    }
    return notes;
  }

 private:
  const HubFiles& found() const { return options_.found->get(options_.query()); }

  HubDataset options_;
  std::shared_ptr<EmptyFiles> empty_ = std::make_shared<EmptyFiles>();
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::vector<std::string>> names_;  // of the classes of columns asked for
};

std::unique_ptr<Dataset> HubDataset::build(const DatasetInputs& inputs) const {
  return make_table(*this, std::make_unique<HubSource>(*this), inputs);
}

}  // namespace

void add_hub_dataset(DatasetRegistry& datasets) {
  datasets.add<HubDataset>(
      "HubDataset",
      "rows of a data set on Hugging Face's hub, by its name: its Parquet, CSV or JSON lines files, "
      "kept in the cache that Hugging Face's libraries share");
}

}  // namespace trainrun
