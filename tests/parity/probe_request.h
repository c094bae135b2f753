#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <string>

#include "registry/catalog.h"
#include "registry/tensors/files/safetensors.h"
#include "tests/parity/probe_spec.h"

namespace trainrun {

using TensorMap = std::map<std::string, at::Tensor>;

/// One request: what came with it, and what goes back.
class Request {
 public:
  Request(const Catalog& catalog, const nlohmann::json& fields) : catalog_(catalog), fields_(fields) {
    if (!fields.contains("tensors")) return;
    const SafetensorsContent content = read_safetensors(fields.at("tensors"));
    tensors_ = {content.tensors.begin(), content.tensors.end()};
  }

  const Catalog& catalog() const { return catalog_; }
  const nlohmann::json& fields() const { return fields_; }
  const nlohmann::json& operator[](const char* key) const { return fields_.at(key); }
  bool has(const char* key) const { return fields_.contains(key); }
  int64_t number(const char* key) const { return fields_.at(key).get<int64_t>(); }
  template <class T>
  T spec() const {
    return read_spec<T>(catalog_, fields_.at("spec"));
  }
  /// The tensors "input.NAME" by NAME, in the order of the names; on the request's device.
  TensorMap tensors(const std::string& prefix) const {
    TensorMap found;
    for (const auto& [name, tensor] : tensors_) {
      if (name.starts_with(prefix + ".")) found[name.substr(prefix.size() + 1)] = tensor.to(device());
    }
    return found;
  }
  /// Where components compute.
  at::Device device() const { return at::Device(fields_.value("device", "cpu")); }
  /// Sends a tensor, as it is now, back under "PREFIX.NAME".
  void give(const std::string& prefix, const std::string& name, const at::Tensor& tensor) {
    const bool wanted = !has("only") || std::ranges::count((*this)["only"], nlohmann::json(prefix)) > 0;
    if (tensor.defined() && wanted) results_.emplace_back(prefix + "." + name, tensor.detach().to(at::kCPU).clone());
  }
  void give(const std::string& prefix, const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) give(prefix, name, tensor);
  }
  void write_results() const {
    if (fields_.contains("results")) write_safetensors(fields_.at("results").get<std::string>(), results_);
  }

 private:
  const Catalog& catalog_;
  const nlohmann::json& fields_;
  TensorMap tensors_;
  NamedTensors results_;
};

}  // namespace trainrun
