// Writes Parquet files.
#include <arrow/array/array_base.h>
#include <arrow/array/builder_binary.h>
#include <arrow/array/builder_nested.h>
#include <arrow/array/builder_primitive.h>
#include <arrow/io/file.h>
#include <arrow/record_batch.h>
#include <arrow/type.h>
#include <arrow/util/io_util.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <cerrno>

#include "registry/data/tables/arrow/batches.h"
#include "registry/formats/files/file_io.h"

namespace trainrun {
namespace {

constexpr int64_t kRowsOfGroup = 1 << 16;  // which is in memory until it is written

std::shared_ptr<arrow::DataType> type_of(ParquetColumn::Kind kind) {
  switch (kind) {
    case ParquetColumn::Kind::kInteger:
      return arrow::int64();
    case ParquetColumn::Kind::kNumber:
      return arrow::float64();
    case ParquetColumn::Kind::kSingle:
      return arrow::float32();
    case ParquetColumn::Kind::kBoolean:
      return arrow::boolean();
    case ParquetColumn::Kind::kText:
      break;
  }
  return arrow::utf8();
}

std::shared_ptr<arrow::DataType> type_of(const ParquetColumn& column) {
  auto type = type_of(column.kind);
  return column.width > 0 ? arrow::fixed_size_list(std::move(type), static_cast<int32_t>(column.width)) : type;
}

class ArrowParquetFile : public ParquetFile {
 public:
  ArrowParquetFile(std::string path, std::span<const ParquetColumn> columns)
      : path_(std::move(path)), columns_(columns.begin(), columns.end()) {
    arrow::FieldVector fields;
    for (const ParquetColumn& column : columns_) fields.push_back(arrow::field(column.name, type_of(column)));
    schema_ = arrow::schema(std::move(fields));
    file_ = done(arrow::io::FileOutputStream::Open(partial()));
    const auto properties = parquet::WriterProperties::Builder().max_row_group_length(kRowsOfGroup)->build();
    writer_ = done(parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(), file_, properties));
  }

  void write(std::span<const ParquetValues> values, int64_t rows) override {
    arrow::ArrayVector arrays;
    for (size_t i = 0; i < columns_.size(); ++i) arrays.push_back(array_of(columns_[i], values[i], rows));
    require_done(writer_->WriteRecordBatch(*arrow::RecordBatch::Make(schema_, rows, std::move(arrays))));
  }
  void finish() override {
    require_done(writer_->Close());
    require_done(file_->Close());
    rename_path(partial(), path_);
  }

 private:
  std::string partial() const { return path_ + ".partial"; }

  void require_done(const arrow::Status& status) const {
    if (status.ok()) return;
    const int fault = arrow::internal::ErrnoFromStatus(status);
    if (fault == 0) throw DataError(partial() + ": cannot be written: " + status.message());
    throw FileError(partial(), "write", fault);
  }
  template <class T>
  T done(arrow::Result<T> result) const {
    require_done(result.status());
    return std::move(result).ValueUnsafe();
  }

  template <class Builder, class Number>
  std::shared_ptr<arrow::Array> numbers_of(const ParquetColumn& column, const ParquetValues& values, int64_t rows) {
    const auto own = std::make_shared<Builder>();
    const auto* first = static_cast<const Number*>(values.numbers);
    const uint8_t* there = values.are_there.empty() ? nullptr : values.are_there.data();
    if (column.width > 0) {
      arrow::FixedSizeListBuilder lists(arrow::default_memory_pool(), own, static_cast<int32_t>(column.width));
      require_done(lists.AppendValues(rows));
      require_done(append(*own, first, rows * column.width, nullptr));
      return done(lists.Finish());
    }
    require_done(append(*own, first, rows, there));
    return done(own->Finish());
  }
  template <class Builder, class Number>
  static arrow::Status append(Builder& builder, const Number* first, int64_t count, const uint8_t* there) {
    if constexpr (std::is_same_v<Number, bool>) {
      static_assert(sizeof(bool) == sizeof(uint8_t));
      return builder.AppendValues(reinterpret_cast<const uint8_t*>(first), count, there);
    } else {
      return builder.AppendValues(first, count, there);
    }
  }
  std::shared_ptr<arrow::Array> texts_of(const ParquetValues& values) {
    arrow::StringBuilder builder;
    for (size_t i = 0; i < values.texts.size(); ++i) {
      const bool is_there = values.are_there.empty() || values.are_there[i] != 0;
      require_done(is_there ? builder.Append(values.texts[i]) : builder.AppendNull());
    }
    return done(builder.Finish());
  }
  std::shared_ptr<arrow::Array> array_of(const ParquetColumn& column, const ParquetValues& values, int64_t rows) {
    switch (column.kind) {
      case ParquetColumn::Kind::kInteger:
        return numbers_of<arrow::Int64Builder, int64_t>(column, values, rows);
      case ParquetColumn::Kind::kNumber:
        return numbers_of<arrow::DoubleBuilder, double>(column, values, rows);
      case ParquetColumn::Kind::kSingle:
        return numbers_of<arrow::FloatBuilder, float>(column, values, rows);
      case ParquetColumn::Kind::kBoolean:
        return numbers_of<arrow::BooleanBuilder, bool>(column, values, rows);
      case ParquetColumn::Kind::kText:
        break;
    }
    return texts_of(values);
  }

  std::string path_;
  std::vector<ParquetColumn> columns_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
};

}  // namespace

std::unique_ptr<ParquetFile> create_parquet(const std::string& path, std::span<const ParquetColumn> columns) {
  return std::make_unique<ArrowParquetFile>(path, columns);
}

}  // namespace trainrun
