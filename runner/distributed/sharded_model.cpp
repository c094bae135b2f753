#include "runner/distributed/sharded_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>

#include <algorithm>

#include "registry/tensors/storage.h"
#include "runner/base/torch_versions.h"
#include "runner/distributed/sharded_unit.h"
#include "runner/model/parameter_watch.h"

namespace trainrun {
namespace {

using torch::autograd::variable_list;

constexpr const char* kParameters = "parameters";
constexpr const char* kGradients = "gradients";

/// Calls back after a parameter's gradient is there.
class AfterGradient : public torch::autograd::FunctionPostHook {
 public:
  explicit AfterGradient(std::function<void()> call) : call_(std::move(call)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    call_();
    return outputs;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

ShardedModel::ShardedModel(ProcessGroup& group, const Graph& graph, Tensors buffers, const ShardingOptions& options)
    : group_(group), buffers_(std::move(buffers)), options_(options) {
  const c10::AutoGradMode no_gradients(false);
  Unit* last = nullptr;
  const auto changed = parameters_changed_by_layers(graph);
  for (ShardUnit& given : shard_units(graph, options.wrap)) {
    Unit& unit = *units_.emplace_back(std::make_unique<Unit>(std::move(given), group.world_size()));
    Tensors tensors;
    for (const auto& [name, parameter] : unit.parameters) {
      if (parameter.scalar_type() != unit.parameters[0].second.scalar_type()) {
        throw Error("sharding: layer " + unit.name + " has parameters of several dtypes");
      }
      if (parameter.dim() == 0) throw Error("sharding: " + name + " has no dimension along which to cut it");
      tensors.push_back(parameter);
      if (changed.contains(parameter.unsafeGetTensorImpl())) unit.changes_itself = true;
    }
    group_.broadcast(tensors, "initial weights");
    const at::TensorOptions like = tensors[0].options().requires_grad(false);
    unit.whole = at::empty({group.world_size() * unit.layout.shard_size}, like).zero_();
    unit.is_whole = true;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor view = unit.view(unit.whole, i);
      view.copy_(tensors[i]);
      tensors[i].set_data(view);
    }
    unit.shard = at::empty({unit.layout.shard_size}, like);
    unit.pieces.resize(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto [begin, length] = unit.layout.piece(i, tensors[i].numel(), group.rank());
      const int64_t start = length == 0 ? 0 : unit.layout.offsets[i] + begin - group.rank() * unit.layout.shard_size;
      unit.pieces[i].tensor = unit.shard.narrow(0, start, length);
      if (!tensors[i].requires_grad()) continue;
      unit.pieces[i].tensor.requires_grad_();
      ++unit.num_trainable;
      {
        const c10::AutoGradMode with_gradients(true);
        unit.accumulators.push_back(torch::autograd::impl::grad_accumulator(tensors[i]));
      }
      unit.accumulators.back()->add_post_hook(
          std::make_unique<AfterGradient>([this, &unit, i] { take_gradient(unit, i); }));
    }
    keep(unit);
    release(unit);
    if (!unit.name.empty()) {
      unit.previous = last;
      if (last) last->next = &unit;
      last = &unit;
    }
  }
  weights_ = SharedWeights::open(group, units_);
  for (const auto& item : graph.named_parameters()) {
    const auto found = find(item.key());
    if (found.first) order_.push_back(found);
  }
}

ShardedModel::~ShardedModel() = default;

std::pair<ShardedModel::Unit*, size_t> ShardedModel::find(const std::string& parameter) const {
  for (const auto& unit : units_) {
    for (size_t i = 0; i < unit->parameters.size(); ++i) {
      if (unit->parameters[i].first == parameter) return {unit.get(), i};
    }
  }
  return {nullptr, 0};
}

NamedTensors ShardedModel::parameters() const {
  NamedTensors result;
  for (const auto& [unit, i] : order_) result.emplace_back(unit->parameters[i].first, unit->pieces[i].tensor);
  return result;
}

void ShardedModel::start_gather(Unit& unit) {
  if (unit.is_whole) return;
  unit.is_whole = true;
  if (weights_ && weights_->map(unit)) return;
  take_memory(unit.whole);
  unit.gathering = group_.start_all_gather(unit.whole, unit.shard, kParameters);
}

void ShardedModel::gather(Unit& unit) {
  start_gather(unit);
  if (!unit.gathering) return;
  group_.finish(unit.gathering, kParameters);
  unit.gathering.reset();
}

void ShardedModel::release(Unit& unit) {
  if (!unit.is_whole) return;
  gather(unit);  // what is on its way must arrive first
  if (!weights_ || !weights_->unmap(unit)) give_memory_back(unit.whole);
  unit.is_whole = false;
}

/// The whole parameters become what this rank's shard holds.
void ShardedModel::keep(Unit& unit) {
  const c10::AutoGradMode no_gradients(false);
  const int64_t size = unit.layout.shard_size;
  unit.shard.copy_(unit.whole.narrow(0, group_.rank() * size, size));
}

std::vector<Bracket> ShardedModel::brackets() {
  std::vector<Bracket> brackets;
  for (const auto& owned : units_) {
    Unit& unit = *owned;
    for (const std::string& layer : unit.layers) {
      Bracket bracket;
      bracket.layer = layer;
      bracket.before = [this, &unit] { before_forward(unit); };
      if (!unit.name.empty()) {
        bracket.after = [this, &unit](Tensors& outputs) { after_forward(unit, outputs); };
      } else {
        const bool is_last = layer == unit.layers.back();
        bracket.after = [this, &unit, is_last](Tensors& outputs) {
          if (c10::GradMode::is_enabled()) {  // it is released after the backward pass
            if (unit.changes_itself) keep(unit);
            return;
          }
          copy_views(unit, outputs);
          if (is_last) release(unit);
        };
      }
      brackets.push_back(std::move(bracket));
    }
  }
  return brackets;
}

void ShardedModel::before_forward(Unit& unit) {
  gather(unit);
  if (options_.prefetch && unit.next) start_gather(*unit.next);
}

/// What a layer gives of its parameters' own memory (a class token, say) is read after that is given back.
void ShardedModel::copy_views(const Unit& unit, Tensors& outputs) {
  for (at::Tensor& output : outputs) {
    if (output.is_alias_of(unit.whole)) output = output.clone();
  }
}

void ShardedModel::after_forward(Unit& unit, Tensors& outputs) {
  const bool trains = c10::GradMode::is_enabled();
  const bool is_first_backward = !unit.next;  // which would gather it again at once
  const bool releases = !trains || (options_.stage == 3 && !is_first_backward);
  if (trains && unit.changes_itself) keep(unit);
  if (releases) copy_views(unit, outputs);
  if (trains) {
    for (const at::Tensor& output : outputs) {
      if (!output.requires_grad()) continue;
      output.register_hook([this, &unit](const at::Tensor&) { before_backward(unit); });
    }
  }
  if (releases) release(unit);
}

void ShardedModel::before_backward(Unit& unit) {
  if (unit.is_reduced) return;
  gather(unit);
  if (options_.prefetch && unit.previous && !unit.previous->is_reduced) start_gather(*unit.previous);
  begin_gradient(unit);
}

/// Makes room for a unit's gradients, where kernels may write them.
void ShardedModel::begin_gradient(Unit& unit) {
  if (unit.whole_gradient.defined() || unit.num_trainable == 0) return;
  const c10::AutoGradMode no_gradients(false);
  unit.whole_gradient = at::empty({unit.whole.numel()}, unit.shard.options());
  unit.places.emplace();
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    unit.pieces[i].is_in_whole = false;
    const at::Tensor& parameter = unit.parameters[i].second;
    if (parameter.requires_grad()) unit.places->add(parameter, unit.view(unit.whole_gradient, i));
  }
}

void ShardedModel::take_gradient(Unit& unit, size_t parameter) {
  const c10::AutoGradMode no_gradients(false);
  begin_gradient(unit);
  at::Tensor& gradient = unit.parameters[parameter].second.mutable_grad();
  const at::Tensor place = unit.view(unit.whole_gradient, parameter);
  if (unit.pieces[parameter].is_in_whole) {
    place.add_(gradient);
  } else if (gradient.data_ptr() != place.data_ptr()) {
    place.copy_(gradient);
  }
  gradient.reset();
  unit.pieces[parameter].has_gradient = unit.pieces[parameter].is_in_whole = true;
  if (++unit.num_arrived < unit.num_trainable) return;
  const bool is_needed = unit.num_trainable < unit.parameters.size();  // by layers before it: some are frozen
  if (!is_needed) release(unit);
  reduce(unit);
}

/// Begins to sum a unit's gradients; at most one unit's are on their way, which bounds the memory.
void ShardedModel::reduce(Unit& unit) {
  unit.is_reduced = true;
  unit.places.reset();
  if (options_.stage == 1 && !synchronizes_) return;
  finish_reduction();
  begin_gradient(unit);
  zero_rest(unit);
  unit.arriving = unit.next_gradient.defined() ? std::exchange(unit.next_gradient, {})
                                               : at::empty({unit.layout.shard_size}, unit.shard.options());
  unit.reduction = group_.start_reduce_scatter(unit.arriving, unit.whole_gradient, kGradients);
  reducing_ = &unit;
}

void ShardedModel::drop_gradient(Unit& unit) {
  unit.places.reset();
  unit.whole_gradient.reset();
  for (Unit::Piece& piece : unit.pieces) piece.is_in_whole = false;
}

/// Of a unit's gradients: what no parameter has, and the parameters that got none.
void ShardedModel::zero_rest(Unit& unit) {
  const c10::AutoGradMode no_gradients(false);
  int64_t end = 0;
  const auto zero_to = [&](int64_t next) {
    if (end < next) unit.whole_gradient.narrow(0, end, next - end).zero_();
  };
  for (size_t i = 0; i < unit.parameters.size(); ++i) {
    if (!unit.pieces[i].is_in_whole) continue;
    zero_to(unit.layout.offsets[i]);
    end = unit.layout.offsets[i] + unit.parameters[i].second.numel();
  }
  zero_to(unit.whole_gradient.numel());
}

void ShardedModel::finish_reduction() {
  if (!reducing_) return;
  const c10::AutoGradMode no_gradients(false);
  Unit& unit = *std::exchange(reducing_, nullptr);
  group_.finish(unit.reduction, kGradients);
  unit.reduction.reset();
  drop_gradient(unit);
  unit.arriving.div_(group_.world_size());
  if (unit.shard_gradient.defined()) {
    unit.shard_gradient.add_(unit.arriving);
    unit.arriving.reset();
  } else {
    unit.shard_gradient = std::move(unit.arriving);
  }
}

void ShardedModel::prepare_forward(bool synchronize) {
  if (std::exchange(window_begins_, false)) {
    for (const auto& unit : units_) {
      if (unit->shard_gradient.defined()) unit->next_gradient = std::exchange(unit->shard_gradient, {});
      drop_gradient(*unit);
      for (Unit::Piece& piece : unit->pieces) piece.has_gradient = false;
    }
  }
  if (weights_) weights_->begin_reading();
  if (synchronize) share_buffers();
}

void ShardedModel::prepare_backward(bool synchronize, const at::Tensor&) {
  synchronizes_ = synchronize;
  for (const auto& unit : units_) {
    unit->num_arrived = 0;
    unit->is_reduced = false;
  }
}

void ShardedModel::finish_backward(bool synchronize) {
  for (auto unit = units_.rbegin(); unit != units_.rend(); ++unit) {
    if (!(*unit)->is_reduced && (*unit)->num_trainable > 0) reduce(**unit);
    release(**unit);
  }
  finish_reduction();
  if (weights_) weights_->end_reading();
  if (!synchronize) return;
  window_begins_ = true;
  for (const auto& unit : units_) {
    for (Unit::Piece& piece : unit->pieces) {
      if (!piece.has_gradient || piece.tensor.numel() == 0) continue;
      piece.tensor.mutable_grad() = unit->shard_gradient.narrow(0, piece.tensor.storage_offset(), piece.tensor.numel());
    }
  }
}

void ShardedModel::share_buffers() {
  if (!buffers_.empty()) group_.broadcast(buffers_, "buffers");
}

class ShardedModel::WholeUnits : public ParallelModel::Whole {
 public:
  explicit WholeUnits(ShardedModel& model) : model_(model) {
    for (const auto& unit : model_.units_) model_.gather(*unit);
  }
  ~WholeUnits() override {
    for (const auto& unit : model_.units_) {
      model_.keep(*unit);
      model_.release(*unit);
    }
  }

 private:
  ShardedModel& model_;
};

std::unique_ptr<ParallelModel::Whole> ShardedModel::make_whole() { return std::make_unique<WholeUnits>(*this); }

}  // namespace trainrun
