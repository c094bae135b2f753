#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace trainrun {

/// How a tensor's numbers are written. Source: ggml.h, `enum ggml_type`, whose numbers these are.
enum class GgufType : uint32_t { kF32 = 0, kF16 = 1, kQ8 = 8, kBf16 = 30 };
constexpr int64_t kQ8Block = 32;  // numbers of a row that share a scale

using GgufValue = std::variant<uint32_t, int32_t, float, bool, std::string, std::vector<std::string>,
                               std::vector<int32_t>, std::vector<float>>;

/// A file that llama.cpp and its kin read: values by name, then tensors. Source: ggml's docs/gguf.md, version 3.
struct GgufFile {
  struct Entry {
    std::string name;
    at::Tensor tensor;  // of float32, bfloat16 or float16; contiguous or not
    GgufType type;
  };
  std::vector<std::pair<std::string, GgufValue>> values;
  std::vector<Entry> tensors;

  void set(const std::string& name, GgufValue value) { values.emplace_back(name, std::move(value)); }

  /// Throws FileError. Tensors are converted one after the other, so that one copy of one tensor is held at a time.
  void write(const std::string& path) const;
};

/// How many bytes so many numbers take, of which each row is a multiple of what shares a scale.
uint64_t gguf_bytes(GgufType type, int64_t count);

/// The numbers as they lie in the file. Q8_0: blocks of 32, each a scale of float16 (the largest number / 127) and 32
/// bytes, rounded half away from zero, as llama.cpp's reference quantization has it.
std::string gguf_data(const at::Tensor& tensor, GgufType type);

}  // namespace trainrun
