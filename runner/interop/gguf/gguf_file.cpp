#include "runner/interop/gguf/gguf_file.h"

#include <ATen/ops/empty.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "registry/formats/files/file_io.h"

namespace trainrun {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are written as they lie in memory");

constexpr uint32_t kVersion = 3;
constexpr uint64_t kAlignment = 32;
// Types of values, by their numbers in the format.
constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9;

template <class T>
void append(std::string& bytes, T number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void append_text(std::string& bytes, const std::string& text) {
  append<uint64_t>(bytes, text.size());
  bytes += text;
}
void append_padding(std::string& bytes) { bytes.append((kAlignment - bytes.size() % kAlignment) % kAlignment, '\0'); }

/// A value after its type.
struct ValueWriter {
  std::string& bytes;

  void operator()(uint32_t number) const { append(bytes, kUint32), append(bytes, number); }
  void operator()(int32_t number) const { append(bytes, kInt32), append(bytes, number); }
  void operator()(float number) const { append(bytes, kFloat32), append(bytes, number); }
  void operator()(bool flag) const { append(bytes, kBool), append<uint8_t>(bytes, flag ? 1 : 0); }
  void operator()(const std::string& text) const { append(bytes, kString), append_text(bytes, text); }
  void operator()(const std::vector<std::string>& texts) const {
    begin_array(kString, texts.size());
    for (const std::string& text : texts) append_text(bytes, text);
  }
  void operator()(const std::vector<int32_t>& numbers) const { append_all(kInt32, numbers); }
  void operator()(const std::vector<float>& numbers) const { append_all(kFloat32, numbers); }

 private:
  void begin_array(uint32_t type, size_t count) const {
    append(bytes, kArray), append(bytes, type), append<uint64_t>(bytes, count);
  }
  template <class T>
  void append_all(uint32_t type, const std::vector<T>& numbers) const {
    begin_array(type, numbers.size());
    for (const T number : numbers) append(bytes, number);
  }
};

std::string bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void append_q8_block(std::string& bytes, const float* numbers) {
  float largest = 0;
  for (int64_t i = 0; i < kQ8Block; ++i) largest = std::max(largest, std::abs(numbers[i]));
  const float scale = largest / 127.0F;
  const float inverse = scale == 0 ? 0.0F : 1.0F / scale;
  append(bytes, c10::Half(scale).x);
  for (int64_t i = 0; i < kQ8Block; ++i) append(bytes, static_cast<int8_t>(std::round(numbers[i] * inverse)));
}

}  // namespace

uint64_t gguf_bytes(GgufType type, int64_t count) {
  const auto numbers = static_cast<uint64_t>(count);
  switch (type) {
    case GgufType::kF32:
      return 4 * numbers;
    case GgufType::kQ8:
      return numbers / kQ8Block * (2 + kQ8Block);
    default:
      return 2 * numbers;
  }
}

std::string gguf_data(const at::Tensor& tensor, GgufType type) {
  const at::Tensor numbers = tensor.detach().to(at::kCPU).contiguous();
  if (type == GgufType::kF32) return bytes_of(numbers.to(at::kFloat));
  if (type == GgufType::kF16) return bytes_of(numbers.to(at::kHalf));
  if (type == GgufType::kBf16) return bytes_of(numbers.to(at::kBFloat16));
  const at::Tensor wide = numbers.to(at::kFloat);
  const auto* const from = wide.const_data_ptr<float>();
  std::string bytes;
  bytes.reserve(gguf_bytes(type, wide.numel()));
  for (int64_t i = 0; i + kQ8Block <= wide.numel(); i += kQ8Block) append_q8_block(bytes, from + i);
  return bytes;
}

void GgufFile::write(const std::string& path) const {
  std::string header = "GGUF";
  append(header, kVersion);
  append<uint64_t>(header, tensors.size());
  append<uint64_t>(header, values.size());
  for (const auto& [name, value] : values) {
    append_text(header, name);
    std::visit(ValueWriter{header}, value);
  }
  uint64_t offset = 0;
  for (const Entry& entry : tensors) {
    append_text(header, entry.name);
    append(header, static_cast<uint32_t>(entry.tensor.dim()));
    for (int64_t i = entry.tensor.dim() - 1; i >= 0; --i) append<uint64_t>(header, entry.tensor.size(i));
    append(header, static_cast<uint32_t>(entry.type));
    append(header, offset);
    const uint64_t bytes = gguf_bytes(entry.type, entry.tensor.numel());
    offset += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  append_padding(header);
  write_file_atomically(path, [&](FileWriter& file) {
    file.write(header);
    for (const Entry& entry : tensors) {
      std::string data = gguf_data(entry.tensor, entry.type);
      append_padding(data);
      file.write(data);
    }
  });
}

}  // namespace trainrun
