// Predictions as a NumPy archive: an array for each column, texts as arrays of characters.
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cstring>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/zip_writer.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/language/error.h"
#include "registry/language/utf8.h"
#include "runner/predict/prediction_writer.h"

namespace trainrun {
namespace {

using nlohmann::json;

/// The code points of UTF-8; a byte that is none stands as U+FFFD.
std::u32string code_points(const std::string& text) {
  std::u32string points;
  for (size_t i = 0; i < text.size();) {
    const uint32_t point = next_code_point(text, i);
    points += point == kInvalidCodePoint ? U'\uFFFD' : static_cast<char32_t>(point);
    if (point == kInvalidCodePoint) ++i;
  }
  return points;
}

/// "<f8", as NumPy calls it.
std::string descriptor_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return "<f8";
    case at::kFloat:
      return "<f4";
    case at::kLong:
      return "<i8";
    case at::kBool:
      return "|b1";
    default:
      throw Error(std::string("predict: numbers of type ") + at::toString(dtype) + " cannot be written as .npz");
  }
}

/// The beginning of a .npy file, version 1.0.
std::string npy_header(const std::string& descriptor, const std::vector<int64_t>& shape) {
  constexpr size_t kAlign = 64;
  constexpr size_t kBefore = 10;
  std::string sizes;
  for (const int64_t size : shape) sizes += std::to_string(size) + ",";
  std::string text = "{'descr': '" + descriptor + "', 'fortran_order': False, 'shape': (" + sizes + "), }";
  text.append(kAlign - (kBefore + text.size() + 1) % kAlign, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  append_little(header, static_cast<uint16_t>(text.size()));
  return header + text;
}

/// A column, as it comes piece by piece.
struct Collected {
  std::string name;
  std::vector<at::Tensor> numbers;
  std::vector<std::u32string> texts;
};

class NpzWriter : public PredictionWriter {
 public:
  explicit NpzWriter(std::string path) : path_(std::move(path)) {
    if (path_.empty()) throw Error("predict: an .npz file needs a name; write --output FILE.npz");
  }

  void write(const ResultColumns& columns) override {
    columns_.resize(columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      columns_[i].name = columns[i].name;
      if (const auto* numbers = std::get_if<at::Tensor>(&columns[i].values)) {
        add_rows(columns_[i], *numbers);
      } else if (const auto* texts = std::get_if<std::vector<std::string>>(&columns[i].values)) {
        for (const std::string& text : *texts) columns_[i].texts.push_back(code_points(text));
      } else {
        for (const json& value : std::get<std::vector<json>>(columns[i].values)) {
          const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
          columns_[i].texts.push_back(code_points(value.is_null() ? "" : text));
        }
      }
    }
  }

  void finish() override {
    write_file_atomically(path_, [&](FileWriter& file) {
      ZipWriter archive(file);
      for (const Collected& column : columns_) add(archive, column);
      archive.finish();
    });
  }

 private:
  static void add_rows(Collected& column, const at::Tensor& numbers) {
    if (!column.numbers.empty() && column.numbers[0].sizes().slice(1) != numbers.sizes().slice(1)) {
      throw Error("predict: '" + column.name + "' is " + shape_text(column.numbers[0].sizes().slice(1)) +
                  " for each sample of the first batch and " + shape_text(numbers.sizes().slice(1)) +
                  " in a later one, and an array has one shape; if the texts are of unequal length, write padding: "
                  "max_length in the data set");
    }
    column.numbers.push_back(numbers.contiguous());
  }

  static void add(ZipWriter& archive, const Collected& column) {
    std::string content;
    std::string header;
    if (!column.numbers.empty()) {
      const at::Tensor all = at::cat(column.numbers);
      header = npy_header(descriptor_of(all.scalar_type()), all.sizes().vec());
      content.assign(static_cast<const char*>(all.const_data_ptr()), all.nbytes());
    } else {
      size_t longest = 1;
      for (const std::u32string& text : column.texts) longest = std::max(longest, text.size());
      header = npy_header("<U" + std::to_string(longest), {static_cast<int64_t>(column.texts.size())});
      content.assign(column.texts.size() * longest * sizeof(char32_t), '\0');
      for (size_t i = 0; i < column.texts.size(); ++i) {
        std::memcpy(content.data() + i * longest * sizeof(char32_t), column.texts[i].data(),
                    column.texts[i].size() * sizeof(char32_t));
      }
    }
    archive.add(column.name + ".npy", {header, content});
  }

  std::string path_;
  std::vector<Collected> columns_;
};

}  // namespace

std::unique_ptr<PredictionWriter> npz_writer(const std::string& path) { return std::make_unique<NpzWriter>(path); }

}  // namespace trainrun
