#include "registry/graph/recomputation.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <utility>

#include "registry/language/error.h"

// LibTorch asks its engine what becomes of each tensor that an operation saves for the backward pass. The engine below
// answers with hooks while the inside of a recomputed layer runs, as Python's engine does for torch.utils.checkpoint:
// the graph of gradients is the one that there would be anyway, without the tensors in it.

namespace trainrun {
namespace {

using torch::autograd::SavedVariableHooks;
using MakeHooks = std::function<std::unique_ptr<SavedVariableHooks>()>;

std::atomic<bool> is_engine_installed = false;
thread_local const MakeHooks* current_hooks = nullptr;

class HookingEngine : public torch::autograd::Engine {
 public:
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current_hooks ? (*current_hooks)() : nullptr;
  }
};

torch::autograd::Engine& hooking_engine() {
  static auto* engine = new HookingEngine();  // as LibTorch's own, it is not taken apart while its threads wait
  return *engine;
}

/// While one lives, on this thread: what operations save goes to the hooks that `make` makes.
class HookScope {
 public:
  explicit HookScope(MakeHooks make) : make_(std::move(make)), outside_(std::exchange(current_hooks, &make_)) {}
  ~HookScope() { current_hooks = outside_; }
  HookScope(const HookScope&) = delete;
  HookScope& operator=(const HookScope&) = delete;

 private:
  MakeHooks make_;
  const MakeHooks* outside_;
};

/// Whether operations of a kind of device compute in a lower precision, and in which.
struct AutocastMode {
  at::DeviceType device;
  bool enabled;
  at::ScalarType dtype;

  static AutocastMode of(at::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }
  void set() const {
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }
};

/// What a run of layers depends on besides its inputs and weights.
struct Circumstances {
  std::vector<std::pair<at::Generator, at::Tensor>> random;
  std::vector<AutocastMode> autocast;
  Tensors buffers;

  static Circumstances now(const std::vector<at::Device>& devices, const Tensors& buffers) {
    Circumstances found;
    for (const at::Device& device : devices) {
      at::Generator generator = at::globalContext().defaultGenerator(device);
      const std::lock_guard<std::mutex> lock(generator.mutex());
      found.random.emplace_back(generator, generator.get_state());
      found.autocast.push_back(AutocastMode::of(device.type()));
    }
    const c10::AutoGradMode no_gradients(false);
    for (const at::Tensor& buffer : buffers) found.buffers.push_back(buffer.detach().clone());
    return found;
  }

  void restore(const Tensors& into) const {
    for (const auto& [generator, state] : random) {
      at::Generator restored = generator;
      const std::lock_guard<std::mutex> lock(restored.mutex());
      restored.set_state(state);
    }
    for (const AutocastMode& mode : autocast) mode.set();
    const c10::AutoGradMode no_gradients(false);
    // By a tensor that shares no version with the buffer, since another place of a shared layer may have saved that.
    for (size_t i = 0; i < into.size(); ++i) into[i].variable_data().copy_(buffers[i]);
  }
};

/// While one lives: all is as it was `then`.
class Revisit {
 public:
  Revisit(const Circumstances& then, const std::vector<at::Device>& devices, const Tensors& buffers)
      : buffers_(buffers), now_(Circumstances::now(devices, buffers)) {
    then.restore(buffers_);
    at::autocast::increment_nesting();
  }
  ~Revisit() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();  // weights change between steps
    now_.restore(buffers_);
  }
  Revisit(const Revisit&) = delete;
  Revisit& operator=(const Revisit&) = delete;

 private:
  const Tensors& buffers_;
  Circumstances now_;
};

std::vector<at::Device> devices_of(const Tensors& inputs) {
  std::vector<at::Device> devices = {at::kCPU};
  for (const at::Tensor& input : inputs) {
    if (std::find(devices.begin(), devices.end(), input.device()) == devices.end()) devices.push_back(input.device());
  }
  return devices;
}

/// One run of the layers and, in the backward pass, the second run that recomputes what the first did not keep.
/// The hooks of the first run's tensors own it together.
class Passage : public std::enable_shared_from_this<Passage> {
 public:
  Passage(std::shared_ptr<const Plan> plan, const Tensors& inputs, const Tensors& buffers, bool copies_inputs)
      : plan_(std::move(plan)),
        buffers_(buffers),
        devices_(devices_of(inputs)),
        copies_inputs_(copies_inputs),
        then_(Circumstances::now(devices_, buffers)) {
    for (const at::Tensor& input : inputs) {
      at::Tensor kept = copies_inputs ? input.detach().clone() : input.detach();
      versions_.push_back(kept._version());
      inputs_.push_back(kept.requires_grad_(input.requires_grad()));
    }
  }

  /// The first run.
  Tensors run(const Tensors& inputs) {
    const HookScope scope([self = shared_from_this()] { return std::make_unique<Forgotten>(self); });
    return plan_->run(inputs);
  }

 private:
  /// Of a tensor that the first run saved.
  class Forgotten : public SavedVariableHooks {
   public:
    explicit Forgotten(std::shared_ptr<Passage> passage) : passage_(std::move(passage)) {}
    ~Forgotten() override {
      if (is_packed_) passage_->release(number_);
    }
    Forgotten(const Forgotten&) = delete;
    Forgotten& operator=(const Forgotten&) = delete;
    void call_pack_hook(const at::Tensor& tensor) override {
      number_ = passage_->forget(tensor);
      is_packed_ = true;
    }
    at::Tensor call_unpack_hook() override { return passage_->find(number_); }

   private:
    std::shared_ptr<Passage> passage_;
    size_t number_ = 0;
    bool is_packed_ = false;
  };

  /// Of the same tensor in the second run, whose own graph of gradients nobody follows.
  class Found : public SavedVariableHooks {
   public:
    explicit Found(Passage& passage) : passage_(passage) {}
    void call_pack_hook(const at::Tensor& tensor) override { passage_.keep(tensor); }
    at::Tensor call_unpack_hook() override { throw Error("a layer that is computed again has no backward pass"); }

   private:
    Passage& passage_;
  };

  struct Saved {
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    bool is_wanted = true;  // until the backward pass has used it
    at::Tensor tensor;      // once it is computed again
    uint32_t version = 0;   // of `tensor` when it was saved
  };

  size_t forget(const at::Tensor& tensor) {
    saved_.push_back({tensor.sizes().vec(), tensor.scalar_type(), true, {}, 0});
    return saved_.size() - 1;
  }

  at::Tensor find(size_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!std::exchange(is_computed_, true)) compute_again();
    const Saved& saved = saved_[number];
    if (saved.tensor._version() == saved.version) return saved.tensor;
    throw Error("a tensor that the backward pass needs was changed in place by a later layer");
  }

  void release(size_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    saved_[number].is_wanted = false;
    saved_[number].tensor.reset();
  }

  void keep(const at::Tensor& tensor) {
    if (num_kept_ >= saved_.size()) throw_differs();
    Saved& saved = saved_[num_kept_++];
    if (tensor.sizes() != saved.sizes || tensor.scalar_type() != saved.dtype) throw_differs();
    if (!saved.is_wanted) return;
    saved.tensor = tensor.detach();
    saved.version = saved.tensor._version();
  }

  void compute_again() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i]._version() == versions_[i]) continue;
      throw Error(
          "a layer that model.checkpoint_activations names cannot be computed again, since a later layer has changed "
          "its input in place; write inplace: false there");
    }
    {
      const c10::AutoGradMode with_gradients(true);
      const Revisit revisit(then_, devices_, buffers_);
      const HookScope scope([this] { return std::make_unique<Found>(*this); });
      Tensors inputs = inputs_;
      if (copies_inputs_) {  // what asks for a gradient may not be written into
        for (at::Tensor& input : inputs) input = input.clone();
      }
      plan_->run(inputs);
    }
    if (num_kept_ != saved_.size()) throw_differs();
    inputs_.clear();
    then_ = {};
  }

  [[noreturn]] static void throw_differs() {
    throw Error(
        "a layer that model.checkpoint_activations names did not compute the same again: what it saves for the "
        "backward pass differs from the first time");
  }

  std::shared_ptr<const Plan> plan_;
  const Tensors& buffers_;  // of the operation
  std::vector<at::Device> devices_;
  bool copies_inputs_;
  Circumstances then_;
  Tensors inputs_;
  std::vector<uint32_t> versions_;
  std::vector<Saved> saved_;  // in the order in which the first run saved them
  size_t num_kept_ = 0;       // by the second run, so far
  bool is_computed_ = false;
  std::mutex mutex_;
};

class Recomputed : public Operation {
 public:
  Recomputed(std::shared_ptr<const Plan> inside, Tensors buffers, bool changes_inputs)
      : inside_(std::move(inside)), buffers_(std::move(buffers)), changes_inputs_(changes_inputs) {
    if (!is_engine_installed) throw Error("the autograd engine is not installed; call install_library_changes first");
    for (const PlanStep& step : inside_->steps) {
      const Traits own = step.operation->traits();
      traits_.in_place |= own.in_place;
      traits_.view |= own.view;
      traits_.random |= own.random;
      traits_.spans_ranks |= own.spans_ranks;
    }
  }

  Tensors run(const Tensors& inputs) const override {
    if (!c10::GradMode::is_enabled()) return inside_->run(inputs);
    return std::make_shared<Passage>(inside_, inputs, buffers_, changes_inputs_)->run(inputs);
  }
  Traits traits() const override { return traits_; }

 private:
  std::shared_ptr<const Plan> inside_;
  Tensors buffers_;
  bool changes_inputs_;
  Traits traits_;
};

}  // namespace

void install_recomputation() {
  torch::autograd::set_default_engine_stub(hooking_engine);
  is_engine_installed = true;
}

std::shared_ptr<const Operation> recomputed(std::shared_ptr<const Plan> inside, Tensors buffers, bool changes_inputs) {
  return std::make_shared<Recomputed>(std::move(inside), std::move(buffers), changes_inputs);
}

}  // namespace trainrun
