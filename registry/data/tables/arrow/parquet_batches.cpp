#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <algorithm>

#include "registry/data/tables/arrow/batches.h"

namespace trainrun {
namespace {

constexpr const char* kOtherRows = "its columns do not have as many rows as the file's footer says";
constexpr int64_t kRowsAtOnce = 2048;
constexpr int64_t kBytesAtOnce = int64_t{1} << 16;  // of each column's compressed pages

class ParquetBatches : public Batches {
 public:
  ParquetBatches(std::string path, std::shared_ptr<arrow::io::ReadableFile> file) : path_(std::move(path)) {
    parquet::ReaderProperties pages;
    pages.enable_buffered_stream();  // else a column of a row group is read at once
    pages.set_buffer_size(kBytesAtOnce);
    pages.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties values(/*use_threads=*/false);
    values.set_batch_size(kRowsAtOnce);
    values.set_pre_buffer(false);
    guarded(path_, [&] {
      parquet::arrow::FileReaderBuilder builder;
      require(builder.Open(std::move(file), pages), path_);
      reader_ = value_of(builder.properties(values)->Build(), path_);
      require(reader_->GetSchema(&schema_), path_);
      const auto footer = reader_->parquet_reader()->metadata();
      uint64_t rows = 0;  // of damaged numbers, too
      for (int group = 0; group < footer->num_row_groups(); ++group)
        rows += static_cast<uint64_t>(footer->RowGroup(group)->num_rows());
      if (rows != static_cast<uint64_t>(footer->num_rows())) {
        fail(path_, "its row groups together do not have the number of rows that the file's footer gives");
      }
    });
  }

  const arrow::Schema& schema() const override { return *schema_; }

  void select(const std::vector<int>& places) override {
    guarded(path_, [&] {
      const parquet::SchemaDescriptor& leaves = *reader_->parquet_reader()->metadata()->schema();
      leaves_.clear();
      for (int leaf = 0; leaf < leaves.num_columns(); ++leaf) {
        const int place = leaves.group_node()->FieldIndex(*leaves.GetColumnRoot(leaf));
        if (std::binary_search(places.begin(), places.end(), place)) leaves_.push_back(leaf);
      }
    });
    num_columns_ = places.size();
  }

  std::shared_ptr<arrow::RecordBatch> next() override {
    while (group_ || begin_group()) {
      auto batch = guarded(place(), [&] {
        auto read = value_of(group_->Next(), place());
        if (read) require(read->ValidateFull(), place());
        return read;
      });
      const int64_t count = batch ? batch->num_rows() : 0;
      rows_left_ -= count;
      if (rows_left_ < 0 || (!batch && rows_left_ > 0)) fail(place(), kOtherRows);
      if (batch) {
        if (static_cast<size_t>(batch->num_columns()) != num_columns_) fail(place(), "lacks columns");
        return batch;
      }
      group_.reset();
      ++number_;
    }
    return nullptr;
  }

 private:
  std::string place() const { return path_ + ": row group " + std::to_string(number_) + " (the first is 0)"; }

  bool begin_group() {
    if (number_ >= reader_->num_row_groups()) return false;
    guarded(place(), [&] {
      const auto group = reader_->parquet_reader()->metadata()->RowGroup(number_);
      rows_left_ = group->num_rows();
      for (const int leaf : leaves_) {  // what lies in lists may be any number of values
        const bool is_flat = group->schema()->Column(leaf)->max_repetition_level() == 0;
        if (is_flat && group->ColumnChunk(leaf)->num_values() != rows_left_) fail(place(), kOtherRows);
      }
      group_ = value_of(reader_->GetRecordBatchReader({number_}, leaves_), place());
    });
    return true;
  }

  std::string path_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<int> leaves_;  // Parquet's columns that those selected consist of
  size_t num_columns_ = 0;
  int number_ = 0;  // of the row group
  int64_t rows_left_ = 0;
  std::unique_ptr<arrow::RecordBatchReader> group_;
};

}  // namespace

std::unique_ptr<Batches> parquet_batches(const std::string& path, std::shared_ptr<arrow::io::ReadableFile> file) {
  return std::make_unique<ParquetBatches>(path, std::move(file));
}

}  // namespace trainrun
