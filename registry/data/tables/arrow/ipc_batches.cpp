#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>

#include "registry/data/tables/arrow/batches.h"

namespace trainrun {
namespace {

class IpcBatches : public Batches {
 public:
  IpcBatches(std::string path, std::shared_ptr<arrow::io::ReadableFile> input, IpcFormat format)
      : path_(std::move(path)), input_(std::move(input)), format_(format) {
    open({});
    schema_ = file_ ? file_->schema() : stream_->schema();
  }

  const arrow::Schema& schema() const override { return *schema_; }

  void select(const std::vector<int>& places) override {
    open(places);
    num_columns_ = places.size();
  }

  std::shared_ptr<arrow::RecordBatch> next() override {
    if (file_ && number_ == file_->num_record_batches()) return nullptr;
    auto batch = guarded(place(), [&] {
      auto read = value_of(file_ ? file_->ReadRecordBatch(number_) : stream_->Next(), place());
      if (read) require(read->ValidateFull(), place());
      return read;
    });
    if (batch && static_cast<size_t>(batch->num_columns()) != num_columns_) fail(place(), "lacks columns");
    ++number_;
    return batch;
  }

 private:
  std::string place() const { return path_ + ": record batch " + std::to_string(number_) + " (the first is 0)"; }

  void open(const std::vector<int>& places) {
    arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.included_fields = places;
    guarded(path_, [&] {
      if (format_ == IpcFormat::kFile) {
        file_ = value_of(arrow::ipc::RecordBatchFileReader::Open(input_, options), path_);
      } else {
        require(input_->Seek(0), path_);
        stream_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(input_, options), path_);
      }
    });
  }

  std::string path_;
  std::shared_ptr<arrow::io::ReadableFile> input_;
  IpcFormat format_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_;
  std::shared_ptr<arrow::Schema> schema_;
  size_t num_columns_ = 0;
  int number_ = 0;  // of the record batch
};

}  // namespace

std::unique_ptr<Batches> ipc_batches(const std::string& path, std::shared_ptr<arrow::io::ReadableFile> file,
                                     IpcFormat format) {
  return std::make_unique<IpcBatches>(path, std::move(file), format);
}

}  // namespace trainrun
