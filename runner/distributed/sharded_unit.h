#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/tensors/gradient_places.h"
#include "runner/base/torch_versions.h"
#include "runner/distributed/shard_layout.h"

namespace trainrun {

/// Layers of a ShardedModel that are gathered as one, and what is kept of them.
struct ShardedUnit {
  /// What this rank keeps of a parameter.
  struct Piece {
    at::Tensor tensor;  // [n], part of the unit's shard
    bool has_gradient = false;
    bool is_in_whole = false;  // its gradient, in the unit's `whole_gradient`
  };

  ShardedUnit(ShardUnit given, int64_t world_size)
      : name(given.name),
        layers(std::move(given.layers)),
        parameters(std::move(given.parameters)),
        layout(sizes_of(parameters), world_size) {}

  static std::vector<int64_t> sizes_of(const NamedTensors& parameters) {
    std::vector<int64_t> sizes;
    for (const auto& [name, parameter] : parameters) sizes.push_back(parameter.numel());
    return sizes;
  }
  /// Parameter `i` within `flat` [world_size * shard_size].
  at::Tensor view(const at::Tensor& flat, size_t i) const {
    const at::Tensor& parameter = parameters[i].second;
    return flat.narrow(0, layout.offsets[i], parameter.numel()).view(parameter.sizes());
  }

  std::string name;
  std::vector<std::string> layers;
  NamedTensors parameters;
  ShardLayout layout;
  at::Tensor shard;                          // [shard_size]: this rank's parameters
  at::Tensor whole;                          // [world_size * shard_size]: memory only while gathered
  bool changes_itself = false;               // its layers change their own parameters while they compute
  bool is_whole = false;                     // gathered, or on the way
  char* place = nullptr;                     // in memory that all ranks map, where `whole` may lie: SharedWeights
  c10::intrusive_ptr<c10d::Work> gathering;  // on the way
  std::vector<Piece> pieces;
  at::Tensor shard_gradient;             // [shard_size]: the sum of the window, as far as it is reduced
  at::Tensor next_gradient;              // [shard_size]: memory for it, from window to window
  at::Tensor whole_gradient;             // [world_size * shard_size]: while the backward pass fills it
  std::optional<GradientPlaces> places;  // in `whole_gradient`, in the first backward pass that fills it
  at::Tensor arriving;                   // [shard_size]: of a reduction on its way
  c10::intrusive_ptr<c10d::Work> reduction;
  std::vector<GradientNode> accumulators;  // kept: parameters only know them weakly
  size_t num_trainable = 0;
  size_t num_arrived = 0;  // gradients, in this backward pass
  bool is_reduced = false;
  ShardedUnit* next = nullptr;  // in the forward pass
  ShardedUnit* previous = nullptr;
};

}  // namespace trainrun
