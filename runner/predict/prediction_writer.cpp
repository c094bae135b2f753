#include "runner/predict/prediction_writer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "registry/formats/files/csv_text.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::json;
using Texts = std::vector<std::string>;
using Values = std::vector<json>;

std::string json_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

template <class T>
void append_float(std::string& text, T number, const char* not_finite) {
  if (!std::isfinite(number)) {
    text += not_finite ? not_finite : std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
    return;
  }
  std::array<char, 32> digits{};
  char* const end = digits.data() + digits.size();
  const bool fits = std::abs(number) <= std::numeric_limits<float>::max();
  text.append(digits.data(), fits ? std::to_chars(digits.data(), end, static_cast<float>(number)).ptr
                                  : std::to_chars(digits.data(), end, number).ptr);
}

class CsvLines : public LineMaker {
 public:
  std::string head(const ResultColumns& columns) override {
    Texts names;
    for (const ResultColumn& column : columns) {
      const auto* numbers = std::get_if<at::Tensor>(&column.values);
      if (!numbers || numbers->dim() == 1) {
        names.push_back(column.name);
        continue;
      }
      if (numbers->dim() > 2) {
        throw Error("predict: '" + column.name + "' is " + shape_text(numbers->sizes().slice(1)) +
                    " for each sample, which is no row of a table; write --format npz --output FILE.npz");
      }
      for (int64_t i = 0; i < numbers->size(1); ++i) names.push_back(column.name + "[" + std::to_string(i) + "]");
    }
    return csv_record(names);
  }
  void append(std::string& text, const ResultColumns& columns, int64_t row) override {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) text += ',';
      append(text, columns[i], row);
    }
    text += '\n';
  }

 private:
  static void append(std::string& text, const ResultColumn& column, int64_t row) {
    const auto at = static_cast<size_t>(row);
    if (const auto* numbers = std::get_if<at::Tensor>(&column.values)) {
      const int64_t width = numbers->dim() == 1 ? 1 : numbers->size(1);
      for (int64_t i = 0; i < width; ++i) {
        if (i > 0) text += ',';
        append_number(text, *numbers, row * width + i, nullptr);
      }
    } else if (const auto* texts = std::get_if<Texts>(&column.values)) {
      text += csv_field((*texts)[at]);
    } else {
      const json& value = std::get<Values>(column.values)[at];
      if (value.is_string()) {
        text += csv_field(value.get_ref<const std::string&>());
      } else if (!value.is_null()) {
        text += csv_field(json_text(value));
      }
    }
  }
};

class JsonLines : public LineMaker {
 public:
  std::string head(const ResultColumns&) override { return ""; }
  void append(std::string& text, const ResultColumns& columns, int64_t row) override {
    std::string group;
    text += '{';
    for (size_t i = 0; i < columns.size(); ++i) {
      const ResultColumn& column = columns[i];
      const bool goes_on = !group.empty() && group == column.group;
      if (!group.empty() && !goes_on) text += '}';
      if (i > 0) text += ", ";
      if (!column.group.empty() && !goes_on) text += json_text(column.group) + ": {";
      group = column.group;
      text += json_text(group.empty() ? column.name : column.key) + ": ";
      append(text, column, row);
    }
    text += group.empty() ? "}\n" : "}}\n";
  }

 private:
  static void append(std::string& text, const ResultColumn& column, int64_t row) {
    const auto at = static_cast<size_t>(row);
    if (const auto* numbers = std::get_if<at::Tensor>(&column.values)) {
      append(text, *numbers, numbers->dim() == 1 ? row : row * numbers->stride(0), 1);
    } else if (const auto* texts = std::get_if<Texts>(&column.values)) {
      text += json_text((*texts)[at]);
    } else {
      text += json_text(std::get<Values>(column.values)[at]);
    }
  }
  /// What dimension `dim` and those after it hold from element `first` on.
  static void append(std::string& text, const at::Tensor& numbers, int64_t first, int64_t dim) {
    if (dim == numbers.dim()) return append_number(text, numbers, first, "null");
    text += '[';
    for (int64_t i = 0; i < numbers.size(dim); ++i) {
      if (i > 0) text += ", ";
      append(text, numbers, first + i * numbers.stride(dim), dim + 1);
    }
    text += ']';
  }
};

class LineWriter : public PredictionWriter {
 public:
  LineWriter(std::unique_ptr<LineMaker> lines, const std::string& path, const json& identity)
      : lines_(std::move(lines)) {
    if (!path.empty()) file_ = std::make_unique<ResumableFile>(path, identity);
    has_head_ = file_ && file_->begin().num_written > 0;
  }
  void write(const ResultColumns& columns) override {
    const ResultColumns rows = contiguous(columns);
    std::string text;
    const std::string head = lines_->head(rows);
    if (!has_head_) text = head;
    has_head_ = true;
    const int64_t count = rows.at(0).size();
    for (int64_t row = 0; row < count; ++row) lines_->append(text, rows, row);
    if (file_) {
      file_->write(text);
    } else {
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
  }
  void mark(const PredictionPoint& point) override {
    if (file_) file_->mark(point);
  }
  PredictionPoint begin() const override { return file_ ? file_->begin() : PredictionPoint(); }
  std::string note() const override { return file_ ? file_->note() : ""; }
  std::vector<std::string> notes() const override { return lines_->notes(); }
  void finish() override {
    if (file_) file_->finish();
  }

 private:
  std::unique_ptr<LineMaker> lines_;
  std::unique_ptr<ResumableFile> file_;  // null: standard output
  bool has_head_ = false;
};

}  // namespace

void append_number(std::string& text, const at::Tensor& numbers, int64_t i, const char* not_finite) {
  switch (numbers.scalar_type()) {
    case at::kDouble:
      return append_float(text, numbers.const_data_ptr<double>()[i], not_finite);
    case at::kFloat:
      return append_float(text, numbers.const_data_ptr<float>()[i], not_finite);
    case at::kBool:
      text += numbers.const_data_ptr<bool>()[i] ? "true" : "false";
      return;
    case at::kLong:
      text += std::to_string(numbers.const_data_ptr<int64_t>()[i]);
      return;
    default:
      throw Error(std::string("predict: numbers of type ") + at::toString(numbers.scalar_type()) +
                  " cannot be written");
  }
}

ResultColumns contiguous(const ResultColumns& columns) {
  ResultColumns result = columns;
  for (ResultColumn& column : result) {
    if (auto* numbers = std::get_if<at::Tensor>(&column.values)) *numbers = numbers->contiguous();
  }
  return result;
}

std::unique_ptr<LineMaker> csv_lines() { return std::make_unique<CsvLines>(); }

std::unique_ptr<PredictionWriter> open_prediction_writer(const std::string& format, const std::string& path,
                                                         const json& identity) {
  if (format == "npz") return npz_writer(path);
  if (format == "parquet") return parquet_writer(path);
  if (format == "jsonl") return std::make_unique<LineWriter>(std::make_unique<JsonLines>(), path, identity);
  if (format == "conll") return std::make_unique<LineWriter>(conll_lines(), path, identity);
  return std::make_unique<LineWriter>(csv_lines(), path, identity);
}

}  // namespace trainrun
