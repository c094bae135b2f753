// Predictions as a Parquet file, whose types follow from the first rows.
#include <algorithm>

#include "registry/data/tables/arrow_library.h"
#include "registry/formats/files/file_io.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/language/error.h"
#include "runner/predict/prediction_writer.h"

namespace trainrun {
namespace {

using nlohmann::json;
using Kind = ParquetColumn::Kind;
using Texts = std::vector<std::string>;

Kind kind_of(at::ScalarType dtype, const std::string& name) {
  switch (dtype) {
    case at::kDouble:
      return Kind::kNumber;
    case at::kFloat:
      return Kind::kSingle;
    case at::kLong:
      return Kind::kInteger;
    case at::kBool:
      return Kind::kBoolean;
    default:
      throw Error("predict: '" + name + "' holds numbers of type " + at::toString(dtype) +
                  ", which cannot be written as Parquet");
  }
}

Kind kind_of(const json& value) {
  if (value.is_boolean()) return Kind::kBoolean;
  if (value.is_number_integer()) return Kind::kInteger;
  return value.is_number() ? Kind::kNumber : Kind::kText;
}

/// Of values of any kind: numbers where all are, else texts. Where all are missing, texts.
Kind kind_of(const std::vector<json>& values) {
  std::optional<Kind> kind;
  for (const json& value : values) {
    if (value.is_null()) continue;
    const Kind own = kind_of(value);
    const auto both = [&](Kind a, Kind b) { return (*kind == a && own == b) || (*kind == b && own == a); };
    if (!kind || *kind == own) {
      kind = own;
    } else {
      kind = both(Kind::kInteger, Kind::kNumber) ? Kind::kNumber : Kind::kText;
    }
  }
  return kind.value_or(Kind::kText);
}

ParquetColumn column_of(const ResultColumn& column) {
  ParquetColumn own{column.name};
  if (const auto* numbers = std::get_if<at::Tensor>(&column.values)) {
    own.kind = kind_of(numbers->scalar_type(), column.name);
    own.width = numbers->dim() > 1 ? numbers->numel() / std::max<int64_t>(numbers->size(0), 1) : 0;
    if (numbers->dim() <= 2) return own;
    throw Error("predict: '" + column.name + "' is " + shape_text(numbers->sizes().slice(1)) +
                " for each sample, which is no row of a table; write --format npz --output FILE.npz");
  }
  if (const auto* values = std::get_if<std::vector<json>>(&column.values)) own.kind = kind_of(*values);
  return own;
}

/// The values of a column of any kind, as the file has them.
struct AsTyped {
  Texts texts;
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  std::vector<uint8_t> booleans;
  std::vector<uint8_t> are_there;
};

class ParquetWriter : public PredictionWriter {
 public:
  explicit ParquetWriter(std::string path) : path_(std::move(path)) {
    if (path_.empty()) throw Error("predict: a Parquet file needs a name; write --output FILE.parquet");
    const std::string folder = folder_of(path_);
    if (!folder.empty()) create_folders(folder);
  }

  void write(const ResultColumns& given) override {
    const ResultColumns columns = contiguous(given);
    if (!file_) {
      for (const ResultColumn& column : columns) columns_.push_back(column_of(column));
      file_ = create_parquet_file(path_, columns_);
    }
    std::vector<AsTyped> typed(columns.size());
    std::vector<ParquetValues> values(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) values[i] = values_of(columns[i], columns_.at(i), typed[i]);
    file_->write(values, columns.at(0).size());
  }
  void finish() override {
    if (file_) file_->finish();
  }

 private:
  static std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? "" : path.substr(0, slash);
  }

  static ParquetValues values_of(const ResultColumn& column, const ParquetColumn& as, AsTyped& typed) {
    if (const auto* numbers = std::get_if<at::Tensor>(&column.values)) return {{}, numbers->const_data_ptr(), {}};
    if (const auto* texts = std::get_if<Texts>(&column.values)) return {*texts, nullptr, {}};
    for (const json& value : std::get<std::vector<json>>(column.values)) add(value, as, typed);
    ParquetValues values{typed.texts, nullptr, typed.are_there};
    if (as.kind == Kind::kInteger) values.numbers = typed.integers.data();
    if (as.kind == Kind::kNumber) values.numbers = typed.numbers.data();
    if (as.kind == Kind::kBoolean) values.numbers = typed.booleans.data();
    return values;
  }
  static void add(const json& value, const ParquetColumn& as, AsTyped& typed) {
    const bool is_there = !value.is_null();
    typed.are_there.push_back(is_there ? 1 : 0);
    const Kind own = is_there ? kind_of(value) : as.kind;
    const bool fits = own == as.kind || as.kind == Kind::kText || (as.kind == Kind::kNumber && own == Kind::kInteger);
    if (!fits) {
      throw Error("predict: the column '" + as.name + "' holds " + value.dump() +
                  ", and values of another type in the rows before; write --format jsonl");
    }
    switch (as.kind) {
      case Kind::kInteger:
        return typed.integers.push_back(is_there ? value.get<int64_t>() : 0);
      case Kind::kNumber:
      case Kind::kSingle:
        return typed.numbers.push_back(is_there ? value.get<double>() : 0);
      case Kind::kBoolean:
        return typed.booleans.push_back(is_there && value.get<bool>() ? 1 : 0);
      case Kind::kText:
        typed.texts.push_back(value.is_string() ? value.get<std::string>() : is_there ? value.dump() : "");
    }
  }

  std::string path_;
  std::vector<ParquetColumn> columns_;
  std::unique_ptr<ParquetFile> file_;  // null: nothing has been written
};

}  // namespace

std::unique_ptr<PredictionWriter> parquet_writer(const std::string& path) {
  return std::make_unique<ParquetWriter>(path);
}

}  // namespace trainrun
