#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "registry/tensors/named_tensors.h"

namespace trainrun {

/// An adapter in the layout of the Python package peft: adapter_config.json, and the tensors of
/// adapter_model.safetensors, or of adapter_model.bin, read as data. What is wrong is a DataError that names file and
/// key.
class PeftFolder {
 public:
  explicit PeftFolder(const std::string& path);

  const std::string& path() const { return path_; }
  /// Under the names that they have below the base model ("model.layers.0.self_attn.q_proj.lora_A.weight").
  const NamedTensors& tensors() const { return tensors_; }

  double number(const std::string& key, double fallback) const;
  bool flag(const std::string& key, bool fallback) const;
  /// Throws unless the configuration has one of `allowed` under `key`, or nothing; `why` says what is not done here.
  void require(const std::string& key, const std::vector<nlohmann::json>& allowed, const std::string& why) const;
  /// Throws unless its peft_type is this one; `component` is what a recipe calls that.
  void require_type(const std::string& peft_type, const std::string& component) const;
  /// "FOLDER/adapter_config.json: KEY: WHAT"
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

 private:
  nlohmann::json in_file(const std::string& key) const;

  std::string path_;
  nlohmann::json config_;
  NamedTensors tensors_;
};

}  // namespace trainrun
