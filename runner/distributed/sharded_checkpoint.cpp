#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <map>
#include <sstream>

#include "registry/language/error.h"
#include "runner/distributed/sharded_model.h"
#include "runner/distributed/sharded_unit.h"

// How a ShardedModel's weights and state become those of one process, for checkpoints, and the other way round.

namespace trainrun {

NamedTensors ShardedModel::gather_model(const NamedTensors& state_dict) {
  const c10::AutoGradMode no_gradients(false);
  std::map<const at::TensorImpl*, at::Tensor> copies;
  for (const auto& unit : units_) {
    gather(*unit);
    for (const auto& [name, parameter] : unit->parameters) {
      if (group_.is_main()) copies[parameter.unsafeGetTensorImpl()] = parameter.detach().clone();
    }
    release(*unit);
  }
  NamedTensors result;
  for (const auto& [name, tensor] : state_dict) {
    const auto copy = copies.find(tensor.unsafeGetTensorImpl());
    result.emplace_back(name, copy == copies.end() ? tensor : copy->second);
  }
  return result;
}

/// The ranks' pieces of something that has a parameter's shape, put together on rank 0.
at::Tensor ShardedModel::collect(const Unit& unit, size_t parameter, const at::Tensor& piece) {
  const at::Tensor& shaped = unit.parameters[parameter].second;
  if (!group_.is_main()) {
    if (piece.numel() > 0) group_.send_to_main(piece, "a checkpoint");
    return piece;
  }
  const at::Tensor shaped_whole = at::empty(shaped.sizes(), piece.options());
  const at::Tensor whole = shaped_whole.view({-1});
  for (int64_t rank = 0; rank < group_.world_size(); ++rank) {
    const auto [begin, length] = unit.layout.piece(parameter, shaped.numel(), rank);
    if (length == 0) continue;
    const at::Tensor part = whole.narrow(0, begin, length);
    if (rank == group_.rank()) {
      part.copy_(piece);
    } else {
      group_.receive_from(rank, part, "a checkpoint");
    }
  }
  return shaped_whole;
}

NamedTensors ShardedModel::gather_state(const NamedTensors& of_rank) {
  const c10::AutoGradMode no_gradients(false);
  std::map<std::string, at::Tensor> own;
  std::string names;  // with dtype, and whether there is one number for a whole parameter
  for (const auto& [name, tensor] : of_rank) {
    own.emplace(name, tensor);
    names += name + " " + std::to_string(static_cast<int>(tensor.scalar_type())) + (tensor.dim() > 0 ? " 0\n" : " 1\n");
  }
  // A rank that keeps nothing of a parameter may have no state for it.
  std::vector<std::string> order;
  std::map<std::string, std::pair<at::ScalarType, bool>> known;
  for (const std::string& text : group_.gather_texts(names, "a checkpoint")) {
    std::istringstream lines(text);
    std::string name;
    int dtype = 0;
    bool is_number = false;
    while (lines >> name >> dtype >> is_number) {
      if (known.try_emplace(name, static_cast<at::ScalarType>(dtype), is_number).second) order.push_back(name);
    }
  }
  NamedTensors result;
  for (const std::string& name : order) {
    const auto [dtype, is_number] = known.at(name);
    const auto [unit, i] = find(name.substr(0, name.rfind('.')));
    if (!unit) throw Error("sharding: the state " + name + " belongs to no parameter");
    const auto kept = own.find(name);
    const at::TensorOptions options = unit->shard.options().dtype(dtype);
    if (!is_number) {
      result.emplace_back(name, collect(*unit, i, kept == own.end() ? at::empty({0}, options) : kept->second));
      continue;
    }
    int64_t owner = 0;  // the first that keeps a piece of the parameter
    while (unit->layout.piece(i, unit->parameters[i].second.numel(), owner).second == 0) ++owner;
    const at::Tensor value = kept == own.end() ? at::zeros({}, options) : kept->second.clone();
    if (owner != 0 && group_.rank() == owner) group_.send_to_main(value, "a checkpoint");
    if (owner != 0 && group_.is_main()) group_.receive_from(owner, value, "a checkpoint");
    result.emplace_back(name, value);
  }
  return result;
}

NamedTensors ShardedModel::own_state(const NamedTensors& whole) {
  NamedTensors result;
  for (const auto& [name, tensor] : whole) {
    const auto [unit, i] = find(name.substr(0, name.rfind('.')));
    if (!unit || tensor.dim() == 0) {
      result.emplace_back(name, tensor);
      continue;
    }
    const at::Tensor& parameter = unit->parameters[i].second;
    if (tensor.sizes() != parameter.sizes()) {
      throw Error("the checkpoint's optimizer has " + name + " as " + at::str(tensor.sizes()) + ", the parameter is " +
                  at::str(parameter.sizes()));
    }
    const auto [begin, length] = unit->layout.piece(i, parameter.numel(), group_.rank());
    result.emplace_back(name, tensor.reshape(-1).narrow(0, begin, length));
  }
  return result;
}

}  // namespace trainrun
