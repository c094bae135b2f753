#include "runner/distributed/data_parallel.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <numeric>
#include <unordered_map>

#include "registry/tensors/gradient_places.h"

namespace trainrun {
namespace {

constexpr size_t kFirstBucketBytes = size_t{1} << 20;

size_t bucket_bytes(int64_t bucket_cap_mb) { return static_cast<size_t>(bucket_cap_mb) << 20; }

/// Calls a CommHook for the Reducer; without one, gradients are sent as they are.
class HookBridge : public c10d::CommHookInterface {
 public:
  HookBridge(ProcessGroup& group, CommHook* hook, const bool& settled)
      : group_(group), hook_(hook), settled_(settled) {}

  FutureTensor runHook(c10d::GradBucket& given) override {
    if (!settled_) return finished(given.getBufferRef());
    if (!hook_) return group_.start_mean(given.getBufferRef(), given.isLast());
    GradientBucket bucket;
    bucket.index = static_cast<int64_t>(given.getIndex());
    bucket.values = given.getBuffer();
    bucket.gradients = given.getGradients();
    bucket.is_last = given.isLast();
    return hook_->reduce(bucket, group_);
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  ProcessGroup& group_;
  CommHook* hook_;
  const bool& settled_;  // before that, gradients are zeros on every rank
};

/// LibTorch notices only in the next step, and speaks of Python's arguments.
[[noreturn]] void explain_unused(const std::exception& error) {
  if (std::string(error.what()).find("Expected to have finished reduction") == std::string::npos) throw;
  throw Error(
      "some parameters took no part in the last step's loss, so their gradients were never ready; write distributed: "
      "{find_unused_parameters: true}");
}

/// The Reducer deals its buckets anew after the first backward pass, by the order in which gradients came. Sums over
/// more than two ranks depend on where a gradient lies, so a resumed run, whose first step would be in other buckets
/// than that of a run never stopped, would part from it in the last bit. Here one backward pass without a model comes
/// first: the order is that of the parameters, from the last, and stays.
void settle_buckets(c10d::Reducer& reducer, const Tensors& parameters) {
  if (parameters.empty()) return;
  const c10::AutoGradMode with_gradients(true);
  at::Tensor total = parameters[0].sum();
  for (size_t i = 1; i < parameters.size(); ++i) total = total + parameters[i].sum();
  reducer.prepare_for_backward({});
  (total * 0).backward();
  reducer.rebuild_buckets();
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad().reset();
}

}  // namespace

std::vector<std::vector<size_t>> gradient_buckets(const Tensors& parameters, int64_t bucket_cap_mb) {
  // Gradients come from the last layer first.
  const Tensors backwards(parameters.rbegin(), parameters.rend());
  std::vector<int64_t> indices(parameters.size());
  std::iota(indices.rbegin(), indices.rend(), 0);
  const std::vector<size_t> limits = {kFirstBucketBytes, bucket_bytes(bucket_cap_mb)};
  return std::get<0>(c10d::compute_bucket_assignment_by_size(backwards, limits, {}, indices));
}

struct DataParallel::State {
  Tensors buffers;
  std::unique_ptr<CommHook> hook;  // outlives the reducer
  bool find_unused = false;
  bool settled = false;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  GradientPlaces places;  // in the buckets
};

DataParallel::DataParallel(ProcessGroup& group, NamedTensors parameters, Tensors buffers,
                           const DataParallelOptions& options, std::unique_ptr<CommHook> hook)
    : group_(group), parameters_(std::move(parameters)), state_(std::make_unique<State>()) {
  state_->buffers = std::move(buffers);
  state_->hook = std::move(hook);
  state_->find_unused = options.find_unused_parameters;
  Tensors tensors;
  std::unordered_map<size_t, std::string> names;
  for (const auto& [name, tensor] : parameters_) {
    names[tensors.size()] = name;
    tensors.push_back(tensor);
  }
  group_.guarded("the comparison of the ranks' models", [&] {
    const c10::AutoGradMode no_gradients(false);
    c10d::verify_params_across_processes(group_.handle(), tensors, {});
  });
  Tensors all = tensors;
  all.insert(all.end(), state_->buffers.begin(), state_->buffers.end());
  group_.broadcast(all, "initial weights");
  state_->reducer = std::make_shared<c10d::Reducer>(
      tensors, gradient_buckets(tensors, options.bucket_cap_mb), group_.handle(),
      std::vector<bool>(tensors.size(), false), static_cast<int64_t>(bucket_bytes(options.bucket_cap_mb)),
      state_->find_unused, /*gradient_as_bucket_view=*/true, names, static_cast<int64_t>(kFirstBucketBytes),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
  state_->logger = std::make_shared<c10d::Logger>(state_->reducer);
  state_->reducer->set_logger(state_->logger);
  state_->logger->set_construction_data_and_log("Model", {}, -1, true, false, false);
  state_->reducer->register_comm_hook(std::make_unique<HookBridge>(group_, state_->hook.get(), state_->settled));
  if (!state_->find_unused) settle_buckets(*state_->reducer, tensors);
  state_->settled = true;
  share_buckets();
}

void DataParallel::share_buckets() {
  Tensors buckets;
  for (const c10d::GradBucket& bucket : state_->reducer->get_grad_buckets(/*return_zero_tensors=*/false)) {
    buckets.push_back(bucket.getBuffer());
    const Tensors parameters = bucket.getParameters();
    const Tensors gradients = bucket.getGradients();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (gradients[i].is_contiguous()) state_->places.add(parameters[i], gradients[i]);
    }
  }
  if (!state_->hook) group_.share_memory_of(buckets);  // a hook sends tensors of its own
}

DataParallel::~DataParallel() = default;

void DataParallel::prepare_forward(bool synchronize) {
  if (!synchronize) return;
  group_.guarded("a forward pass", [&] {
    try {
      state_->logger->set_runtime_stats_and_log();
      state_->reducer->prepare_for_forward();
      state_->reducer->rebuild_buckets();  // checks that the last step's are all reduced
    } catch (const std::exception& error) {
      explain_unused(error);
    }
  });
  share_buffers();
}

void DataParallel::share_buffers() {
  if (!state_->buffers.empty()) group_.broadcast(state_->buffers, "buffers");
}

void DataParallel::prepare_backward(bool synchronize, const at::Tensor& loss) {
  state_->places.release();
  if (!synchronize) return;
  Tensors outputs;
  if (state_->find_unused) outputs.push_back(loss);
  state_->reducer->prepare_for_backward(outputs);
}

NamedTensors DataParallel::hook_state() {
  NamedTensors all;
  if (!state_->hook) return all;
  for (const auto& [name, tensor] : state_->hook->state()) {
    all.emplace_back(name, group_.gather_rows(tensor.unsqueeze(0), "a checkpoint"));
  }
  return all;
}

void DataParallel::load_hook_state(const NamedTensors& state) {
  if (!state_->hook) return;
  NamedTensors own;
  for (const auto& [name, tensor] : state) own.emplace_back(name, tensor[group_.rank()]);
  state_->hook->load_state(own);
}

}  // namespace trainrun
