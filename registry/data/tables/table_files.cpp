#include "registry/data/tables/table_files.h"

#include <algorithm>

#include "registry/data/path_patterns.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

constexpr int kRowBits = 40;

class FilesInOrder : public TableReader {
 public:
  using Open = std::function<std::unique_ptr<TableReader>(const std::string& path)>;

  FilesInOrder(std::vector<std::string> paths, Open open, std::shared_ptr<EmptyFiles> empty)
      : paths_(std::move(paths)), open_(std::move(open)), empty_(std::move(empty)) {
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
      if (!has_rows_ && empty_) empty_->add(paths_[file_]);
      if (file_ + 1 == paths_.size()) return false;
      ++file_;
      open_file();
      find_columns();
    }
    has_rows_ = true;
    if (is_alike_) return true;
    row.resize(names_.size());
    for (size_t i = 0; i < wanted_.size(); ++i) std::swap(row[wanted_[i]], row_[places_[i]]);
    return true;
  }

  int64_t row_number() const override { return (static_cast<int64_t>(file_) << kRowBits) + reader_->row_number(); }

 private:
  void open_file() {
    reader_ = open_(paths_[file_]);
    has_rows_ = false;
  }

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
  Open open_;
  std::shared_ptr<EmptyFiles> empty_;
  size_t file_ = 0;
  bool has_rows_ = false;                // this file has some
  std::unique_ptr<TableReader> reader_;  // of this file
  std::vector<std::string> names_;       // of the first one's columns
  std::vector<size_t> wanted_;           // of them
  bool is_alike_ = true;                 // this file has them in the same places
  std::vector<size_t> places_;           // else they are here
  std::vector<Cell> row_;
};

}  // namespace

void EmptyFiles::add(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (std::ranges::find(paths_, path) == paths_.end()) paths_.push_back(path);
}

std::string EmptyFiles::note(size_t num_files) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return note_on_empty_files(paths_, num_files, "rows");
}

std::unique_ptr<TableReader> open_in_turn(std::vector<std::string> paths, FilesInOrder::Open open,
                                          std::shared_ptr<EmptyFiles> empty) {
  return std::make_unique<FilesInOrder>(std::move(paths), std::move(open), std::move(empty));
}

std::pair<size_t, int64_t> row_in_files(int64_t row_number) {
  return {static_cast<size_t>(row_number >> kRowBits), row_number & ((int64_t{1} << kRowBits) - 1)};
}

}  // namespace trainrun
