#include "runner/distributed/data_parallel.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace trainrun {
namespace {

constexpr int64_t kBucketBytes = int64_t{25} << 20;    // as DistributedDataParallel's bucket_cap_mb
constexpr size_t kFirstBucketBytes = size_t{1} << 20;  // small: communication begins early
constexpr size_t kBroadcastBytes = size_t{250} << 20;

}  // namespace

struct DataParallel::State {
  Tensors buffers;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};

DataParallel::DataParallel(ProcessGroup& group, const Named& parameters, Tensors buffers)
    : group_(group), state_(std::make_unique<State>()) {
  state_->buffers = std::move(buffers);
  Tensors tensors;
  std::unordered_map<size_t, std::string> names;
  for (const auto& [name, tensor] : parameters) {
    names[tensors.size()] = name;
    tensors.push_back(tensor);
  }
  group_.guarded("the comparison of the ranks' models", [&] {
    const c10::AutoGradMode no_gradients(false);
    c10d::verify_params_across_processes(group_.handle(), tensors, {});
    Tensors all = tensors;
    all.insert(all.end(), state_->buffers.begin(), state_->buffers.end());
    c10d::broadcast_coalesced(group_.handle(), all, kBroadcastBytes, 0);
  });
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(tensors, {kFirstBucketBytes, kBucketBytes});
  std::reverse(buckets.begin(), buckets.end());  // gradients come from the last layer first
  state_->reducer = std::make_shared<c10d::Reducer>(
      tensors, buckets, group_.handle(), std::vector<bool>(tensors.size(), false), kBucketBytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true, names, kFirstBucketBytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
  state_->logger = std::make_shared<c10d::Logger>(state_->reducer);
  state_->reducer->set_logger(state_->logger);
  state_->logger->set_construction_data_and_log("Model", {}, -1, true, false, false);
}

DataParallel::~DataParallel() = default;

void DataParallel::prepare_forward(bool synchronize) {
  if (!synchronize) return;
  group_.guarded("a forward pass", [&] {
    state_->logger->set_runtime_stats_and_log();
    state_->reducer->prepare_for_forward();
    state_->reducer->rebuild_buckets();
  });
  share_buffers();
}

void DataParallel::share_buffers() {
  if (state_->buffers.empty()) return;
  group_.guarded("the buffers", [&] {
    const c10::AutoGradMode no_gradients(false);
    c10d::broadcast_coalesced(group_.handle(), state_->buffers, kBroadcastBytes, 0);
  });
}

void DataParallel::prepare_backward(bool synchronize) {
  if (synchronize) state_->reducer->prepare_for_backward({});
}

}  // namespace trainrun
