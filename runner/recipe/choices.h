#pragma once

#include "registry/language/codec.h"

namespace trainrun {

// What a recipe chooses among, by name; the words are those of Words.

/// How several processes share the job; Accelerate's names.
enum class DistributedType { kNo, kMultiCpu, kMultiGpu, kFsdp };
template <>
struct Words<DistributedType> {
  static constexpr std::array kWords = {"NO", "MULTI_CPU", "MULTI_GPU", "FSDP"};
};

/// What the layers compute in.
enum class MixedPrecision { kNo, kBf16, kFp16, kFp8 };
template <>
struct Words<MixedPrecision> {
  static constexpr std::array kWords = {"no", "bf16", "fp16", "fp8"};
};

/// What each rank keeps a part of only; PyTorch's names.
enum class ShardingStrategy { kFullShard, kShardGradOp, kNoShard };
template <>
struct Words<ShardingStrategy> {
  static constexpr std::array kWords = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"};
};

/// How the learning rate grows with the number of batches that make a step.
enum class LrScaling { kLinear, kSqrt };
template <>
struct Words<LrScaling> {
  static constexpr std::array kWords = {"linear", "sqrt"};
};

/// Which algorithm computes convolutions on the CPU.
enum class Convolutions { kFast, kDirect };
template <>
struct Words<Convolutions> {
  static constexpr std::array kWords = {"fast", "direct"};
};

/// Where to compute: `auto`, `cpu`, `cuda`, or `cuda:1` for the second GPU.
struct DeviceChoice {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  std::optional<int64_t> number;  // of a GPU

  bool is_auto() const { return kind == Kind::kAuto; }
  bool is_cpu() const { return kind == Kind::kCpu; }
  bool is_cuda() const { return kind == Kind::kCuda; }
  /// As a recipe writes it.
  std::string text() const;
  /// Nothing where `text` is none of these.
  static std::optional<DeviceChoice> parse(const std::string& text);
};
template <>
struct Codec<DeviceChoice> {
  static std::optional<DeviceChoice> read(const Value& value, Reader& reader);
  static nlohmann::json schema(SchemaContext&) { return {{"type", "string"}}; }
  static nlohmann::json write(const DeviceChoice& choice) { return choice.text(); }
  static std::string type_name() { return "string"; }
};

}  // namespace trainrun
