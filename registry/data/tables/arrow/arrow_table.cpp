#include <arrow/array.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>

#include "registry/data/tables/arrow/batches.h"
#include "registry/data/tables/arrow/cells.h"
#include "registry/formats/files/regular_file.h"
#include "registry/language/text_forms.h"

namespace trainrun {

void fail(const std::string& place, const std::string& fault) {
  if (fault.find("encrypt") != std::string::npos || fault.find("decrypt") != std::string::npos) {
    throw DataError(place + ": is encrypted, and there is no key to decrypt it with (" + fault + ")");
  }
  throw DataError(place + ": " + fault);
}

namespace {

std::unique_ptr<Batches> open_batches(const std::string& path) {
  constexpr size_t kLongestMark = 8;
  return guarded(path, [&]() -> std::unique_ptr<Batches> {
    Descriptor descriptor = open_regular_file(path);
    auto file = value_of(arrow::io::ReadableFile::Open(descriptor.number()), path);
    descriptor.release();  // the file closes it
    std::string mark(kLongestMark, '\0');
    mark.resize(static_cast<size_t>(value_of(file->ReadAt(0, kLongestMark, mark.data()), path)));
    if (mark.empty()) throw DataError(path + ": is empty");
    if (mark.starts_with("PAR1") || mark.starts_with("PARE")) return parquet_batches(path, std::move(file));
    if (mark.starts_with("ARROW1")) return ipc_batches(path, std::move(file), IpcFormat::kFile);
    if (mark.starts_with("\xFF\xFF\xFF\xFF")) return ipc_batches(path, std::move(file), IpcFormat::kStream);
    if (mark.starts_with("FEA1")) {
      throw DataError(path + ": is a Feather file of version 1, which is not supported; write it as version 2");
    }
    throw DataError(path + ": is neither a Parquet nor an Arrow file: it does not begin like one");
  });
}

class ArrowTable : public TableReader {
 public:
  ArrowTable(std::string path, ObjectColumns objects)
      : path_(std::move(path)), objects_(objects), batches_(open_batches(path_)) {
    for (const auto& field : batches_->schema().fields()) names_.push_back(field->name());
    if (names_.empty()) throw DataError(path_ + ": has no columns");
  }

  const std::vector<std::string>& names() const override { return names_; }

  void read_only(const std::vector<size_t>& places) override {
    places_ = places;
    std::sort(places_.begin(), places_.end());
    places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    for (const size_t place : places_) check_type(place);
    batches_->select(std::vector<int>(places_.begin(), places_.end()));
  }

  bool next(std::vector<Cell>& row) override {
    if (places_.empty()) read_all();
    while (!batch_ || at_ == batch_->num_rows()) {
      at_ = 0;
      batch_ = batches_->next();
      if (!batch_) return false;
      columns_ = batch_->columns();
    }
    row.resize(names_.size());
    ++number_;
    for (size_t i = 0; i < places_.size(); ++i) read_cell(*columns_[i], at_, row[places_[i]]);
    ++at_;
    return true;
  }

  int64_t row_number() const override { return number_; }

 private:
  void read_all() {
    std::vector<size_t> all(names_.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    read_only(all);
  }

  void check_type(size_t place) const {
    constexpr size_t kMostShown = 100;
    const arrow::DataType& type = *batches_->schema().field(static_cast<int>(place))->type();
    if (is_read(type, objects_)) return;
    throw DataError(
        path_ + ":" + names_[place] + ": holds values of the type " + shortened(type.ToString(), kMostShown) +
        ", which is not read; write what is needed of it as columns of plain values, or leave this column out, such as "
        "by listing the others in features");
  }

  std::string path_;
  ObjectColumns objects_;
  std::unique_ptr<Batches> batches_;
  std::vector<std::string> names_;
  std::vector<size_t> places_;  // of the columns that are read, ascending
  std::shared_ptr<arrow::RecordBatch> batch_;
  arrow::ArrayVector columns_;  // of the batch
  int64_t at_ = 0;              // the next row of the batch
  int64_t number_ = 0;
};

std::unique_ptr<TableReader> open_table(const std::string& path, ObjectColumns objects) {
  return std::make_unique<ArrowTable>(path, objects);
}

std::string metadata_of(const std::string& path, const std::string& key) {
  const std::unique_ptr<Batches> batches = open_batches(path);
  const auto metadata = batches->schema().metadata();
  const int place = metadata ? metadata->FindKey(key) : -1;
  return place < 0 ? "" : metadata->value(place);
}

}  // namespace
}  // namespace trainrun

extern "C" const trainrun::ArrowLibrary* trainrun_arrow_library() {
  static constexpr trainrun::ArrowLibrary kLibrary{&trainrun::open_table, &trainrun::create_parquet,
                                                   &trainrun::metadata_of};
  return &kLibrary;
}
