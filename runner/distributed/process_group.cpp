#include "runner/distributed/process_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <spdlog/spdlog.h>
#include <torch/csrc/distributed/c10d/FakeProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "registry/tensors/component_error.h"
#include "registry/tensors/step_division.h"
#include "runner/base/torch_versions.h"
#include "runner/device/device.h"
#include "runner/distributed/meeting.h"
#include "runner/distributed/shared_backend.h"

namespace trainrun {

namespace {

constexpr std::chrono::seconds kMargin(2);  // after which a wait of Gloo that has not thrown is ended

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

std::chrono::seconds GroupTimeouts::of(Phase phase) const {
  switch (phase) {
    case Phase::kMeeting:
      return meeting;
    case Phase::kEvaluation:
      return evaluation;
    case Phase::kStart:
    case Phase::kCheckpoint:
      return checkpoint;
    case Phase::kStep:
      break;
  }
  return step;
}

void ProcessGroup::guard(const std::string& what, const std::function<void()>& body,
                         std::optional<RankMonitor::Duration> limit) {
  if (is_alone()) return body();
  std::optional<RankMonitor::Wait> wait;
  if (monitor_) wait.emplace(*monitor_, what, limit);
  try {
    body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const std::string reason = " (" + text.substr(0, text.find('\n')) + ")";
    if (!monitor_) throw DistributedError("rank " + std::to_string(rank()) + " failed in " + what + reason);
    if (shared_) shared_->memory().give_up();
    const std::string lost = monitor_->give_up();
    throw DistributedError(monitor_->where(what) + lost + reason);
  }
}

void ProcessGroup::guarded(const std::string& what, const std::function<void()>& body) {
  guard(what, body, std::nullopt);
}

void ProcessGroup::wait_for_others(const std::string& what, const std::function<void()>& body) {
  guard(what, body, timeouts_.of(phase_) + kMargin);
}

void ProcessGroup::set_step(int64_t step) {
  if (monitor_) monitor_->set_step(step);
}

Phase ProcessGroup::set_phase(Phase phase) {
  if (monitor_) monitor_->set_phase(phase);
  if (gloo_) gloo_->setTimeout(timeouts_.of(phase));
  if (shared_) shared_->memory().set_timeout(timeouts_.of(phase));
  return std::exchange(phase_, phase);
}

ProcessGroup::ProcessGroup() = default;

ProcessGroup::ProcessGroup(const Rendezvous& rendezvous, const GroupTimeouts& timeouts, Backend backend)
    : rendezvous_(rendezvous), timeouts_(timeouts), backend_(backend) {
  connect();
  set_phase(Phase::kStart);
}

void ProcessGroup::connect() {
  const auto rank = static_cast<int>(rendezvous_.rank);
  const auto size = static_cast<int>(rendezvous_.world_size);
  if (is_fake()) {
    store_ = c10::make_intrusive<c10d::HashStore>();
    group_ = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, size);
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                       c10d::FakeProcessGroup::_create_internal(rank, size));
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
    return;
  }
  const Meeting meeting = meet(rendezvous_, timeouts_.meeting);
  store_ = meeting.store;
  monitor_ = std::make_unique<RankMonitor>(store_, rank, size, timeouts_.step, meeting.keeper);
  wait_for_others("the rendezvous at " + rendezvous_.address + ":" + std::to_string(rendezvous_.port),
                  [&] { connect_gloo(meeting.address); });
  wait_for_others("the ranks' common memory", [&] { connect_shared_memory(); });
}

/// What the ranks of one machine exchange need not go through Gloo's sockets.
void ProcessGroup::connect_shared_memory() {
  const std::string objection = variable("TRAINRUN_GLOO").empty() ? "" : "TRAINRUN_GLOO is set";
  auto memory = SharedMemory::open(store_, static_cast<int>(rank()), static_cast<int>(world_size()), objection,
                                   timeouts_.meeting, why_not_shared_);
  if (!memory) return;
  memory->set_lost([this] { return monitor_->has_failed(); });
  shared_ = c10::make_intrusive<SharedBackend>(std::move(memory), gloo_);
  group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, shared_);
  group_->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
}

void ProcessGroup::connect_gloo(const std::string& address) {
  const auto rank = static_cast<int>(rendezvous_.rank);
  const auto size = static_cast<int>(rendezvous_.world_size);
  const auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeouts_.meeting);
  std::istringstream interfaces(variable("GLOO_SOCKET_IFNAME"));  // as in PyTorch: separated by commas
  for (std::string name; std::getline(interfaces, name, ',');) {
    gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (gloo_options->devices.empty()) {
    gloo_options->devices.push_back(address.empty() ? c10d::ProcessGroupGloo::createDefaultDevice()
                                                    : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  }
  gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store_), rank,
                                                      size, gloo_options);
  group_ = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, size);
  group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo_);
  group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
}

void ProcessGroup::add_device(const Accelerator& accelerator, at::Device device, std::chrono::seconds timeout) {
  guarded("the connection by NCCL", [&] {
    nccl_ = accelerator.connect(store_, static_cast<int>(rank()), static_cast<int>(world_size()), device, timeout);
  });
  group_->setBoundDeviceId(device);
  group_->setBackend(device.type(), c10d::ProcessGroup::BackendType::NCCL, nccl_);
}

ProcessGroup::~ProcessGroup() {
  if (nccl_) nccl_->abort();  // nothing is under way any more, or a rank is lost and would be waited for
}

void ProcessGroup::count(const std::string& operation, const std::string& what, const at::Tensor& tensor) {
  const std::lock_guard lock(traffic_mutex_);
  Traffic& traffic = traffic_[{operation, what}];
  ++traffic.calls;
  traffic.bytes += static_cast<int64_t>(tensor.nbytes());
}

std::map<std::pair<std::string, std::string>, Traffic> ProcessGroup::traffic() const {
  const std::lock_guard lock(traffic_mutex_);
  return traffic_;
}

void ProcessGroup::sum(const std::vector<at::Tensor>& tensors, const std::string& what) {
  if (is_alone()) return;
  wait_for_others(what, [&] {
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> one = {tensor};
      count("all_reduce", what, tensor);
      group_->allreduce(one)->wait();
    }
  });
}

void ProcessGroup::sum(const at::Tensor& tensor) {
  if (is_alone()) return;
  std::vector<at::Tensor> one = {tensor};
  count("all_reduce", "layers and hooks", tensor);
  wait_for_others("layers and hooks", [&] { group_->allreduce(one)->wait(); });
}

FutureTensor ProcessGroup::start_sum(const at::Tensor& tensor) {
  if (is_alone()) return finished(tensor);
  std::vector<at::Tensor> one = {tensor};
  count("all_reduce", "gradients", tensor);
  if (shared_ && tensor.is_cpu()) {  // nobody but this thread would complete a future
    group_->allreduce(one)->wait();
    return finished(tensor);
  }
  return group_->allreduce(one)->getFuture()->then(
      [tensor](c10::ivalue::Future& done) -> c10::IValue {
        if (done.hasError()) std::rethrow_exception(done.exception_ptr());
        return tensor;
      },
      c10::TensorType::get());
}

FutureTensor ProcessGroup::start_mean(const at::Tensor& gradients, bool is_last) {
  if (!shared_ || !gradients.is_cpu()) return start_sum(gradients.div_(world_size()));
  count("all_reduce", "gradients", gradients);
  return shared_->start_mean(gradients, is_last);
}

void ProcessGroup::share_memory_of(const std::vector<at::Tensor>& tensors) {
  const auto is_elsewhere = [](const at::Tensor& tensor) { return !tensor.is_cpu(); };
  if (!shared_ || std::any_of(tensors.begin(), tensors.end(), is_elsewhere)) return;
  wait_for_others("the memory of gradients", [&] {
    const std::string reason = shared_->memory().move_to_common(tensors);
    if (!reason.empty() && is_main()) spdlog::warn("gradients are copied on their way between ranks: {}", reason);
  });
}

std::shared_ptr<SharedSegment> ProcessGroup::map_common(size_t bytes, const std::string& what) {
  if (!shared_) return nullptr;
  std::string reason;
  std::shared_ptr<SharedSegment> segment;
  wait_for_others("the memory of " + what, [&] { segment = shared_->memory().map_common(bytes, reason); });
  if (!segment && is_main()) spdlog::warn("{} are copied on their way between ranks: {}", what, reason);
  return segment;
}

std::unique_ptr<StepDivision> ProcessGroup::divide(const DivisibleStep& step) {
  if (!shared_) return nullptr;
  auto division = std::make_unique<StepDivision>();
  division->rank = rank();
  division->ranks = world_size();
  std::string reason;
  wait_for_others("the memory of the optimizer's state", [&] {
    division->memory =
        shared_->memory().move_to_one(step.state, static_cast<size_t>(step.exchange_bytes), division->exchange, reason);
  });
  if (!division->memory) {
    if (is_main()) spdlog::warn("each rank makes the whole of the optimizer's step: {}", reason);
    return nullptr;
  }
  division->wait_for_all = [this] {
    wait_for_others("the optimizer's step", [&] { shared_->memory().finish(shared_->memory().start_barrier()); });
  };
  return division;
}

int64_t ProcessGroup::max(int64_t number, const std::string& what) {
  if (is_alone()) return number;
  std::vector<at::Tensor> one = {at::full({1}, number, at::kLong)};
  count("all_reduce", what, one[0]);
  wait_for_others(what, [&] {
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group_->allreduce(one, options)->wait();
  });
  return one[0].item<int64_t>();
}

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors, const std::string& what) {
  if (is_alone()) return;
  const c10::AutoGradMode no_gradients(false);
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (const at::Tensor& tensor : tensors) by_dtype[tensor.scalar_type()].push_back(tensor);
  wait_for_others(what, [&] {
    for (const auto& [dtype, alike] : by_dtype) {
      std::vector<at::Tensor> flat;
      for (const at::Tensor& tensor : alike) flat.push_back(tensor.detach().reshape(-1));
      std::vector<at::Tensor> one = {at::cat(flat)};
      count("broadcast", what, one[0]);
      group_->broadcast(one)->wait();
      if (is_main()) continue;
      int64_t offset = 0;
      for (const at::Tensor& tensor : alike) {
        tensor.detach().copy_(one[0].narrow(0, offset, tensor.numel()).view(tensor.sizes()));
        offset += tensor.numel();
      }
    }
  });
}

at::Tensor ProcessGroup::gather_rows(const at::Tensor& rows, const std::string& what) {
  if (is_alone()) return rows;
  std::vector<at::Tensor> parts;
  wait_for_others(what, [&] {
    at::Tensor counts = at::zeros({world_size()}, at::kLong);
    counts[rank()] = rows.size(0);
    std::vector<at::Tensor> one = {counts};
    count("all_reduce", what, counts);
    group_->allreduce(one)->wait();
    const int64_t most = counts.max().item<int64_t>();  // Gloo wants one shape of all: padded, and cut off again
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes[0] = most;
    std::vector<at::Tensor> padded = {at::zeros(sizes, rows.options())};
    padded[0].narrow(0, 0, rows.size(0)).copy_(rows);
    std::vector<std::vector<at::Tensor>> all(1);
    for (int64_t r = 0; r < world_size(); ++r) all[0].push_back(at::empty(sizes, rows.options()));
    count("all_gather", what, padded[0]);
    group_->allgather(all, padded)->wait();
    for (int64_t r = 0; r < world_size(); ++r) {
      parts.push_back(all[0][static_cast<size_t>(r)].narrow(0, 0, counts[r].item<int64_t>()));
    }
  });
  return at::cat(parts);
}

c10::intrusive_ptr<c10d::Work> ProcessGroup::start_all_gather(const at::Tensor& whole, const at::Tensor& part,
                                                              const std::string& what) {
  at::Tensor output = whole;
  at::Tensor input = part;
  count("all_gather", what, part);
  c10::intrusive_ptr<c10d::Work> work;
  wait_for_others(what, [&] { work = all_gather_single(*group_, output, input); });
  return work;
}

c10::intrusive_ptr<c10d::Work> ProcessGroup::start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                                                                  const std::string& what) {
  at::Tensor output = part;
  at::Tensor input = whole;
  count("reduce_scatter", what, whole);
  if (is_fake()) output.copy_(whole.narrow(0, rank() * part.numel(), part.numel()));  // c10d's fake leaves it as it is
  c10::intrusive_ptr<c10d::Work> work;
  wait_for_others(what, [&] { work = reduce_scatter_single(*group_, output, input); });
  return work;
}

void ProcessGroup::finish(const c10::intrusive_ptr<c10d::Work>& work, const std::string& what) {
  wait_for_others(what, [&] { work->wait(); });
}

void ProcessGroup::send_to_main(const at::Tensor& tensor, const std::string& what) {
  std::vector<at::Tensor> one = {tensor};
  count("send", what, tensor);
  wait_for_others(what, [&] { group_->send(one, 0, 0)->wait(); });
}

void ProcessGroup::receive_from(int64_t rank, const at::Tensor& tensor, const std::string& what) {
  std::vector<at::Tensor> one = {tensor};
  wait_for_others(what, [&] { group_->recv(one, static_cast<int>(rank), 0)->wait(); });
}

namespace {

at::Tensor tensor_of_text(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  return bytes;
}

}  // namespace

std::string ProcessGroup::share_text(const std::string& text, const std::string& what) {
  return gather_texts(is_main() ? text : "", what)[0];
}

std::vector<std::string> ProcessGroup::gather_texts(const std::string& text, const std::string& what) {
  if (is_alone()) return {text};
  const at::Tensor lengths = gather_rows(at::full({1}, static_cast<int64_t>(text.size()), at::kLong), what);
  const at::Tensor bytes = gather_rows(tensor_of_text(text), what);
  const auto* data = reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>());
  std::vector<std::string> texts;
  for (int64_t r = 0; r < lengths.size(0); ++r) {
    const auto length = static_cast<size_t>(lengths[r].item<int64_t>());
    texts.emplace_back(data, length);
    data += length;
  }
  return texts;
}

void ProcessGroup::leave() {
  if (is_alone()) return;
  if (monitor_) monitor_->stop();
  try {
    group_->barrier()->wait();
  } catch (const std::exception& error) {
    spdlog::debug("the other ranks were not waited for: {}", error_text(error));
  }
}

void ProcessGroup::barrier(const std::string& what) {
  if (is_alone()) return;
  wait_for_others(what, [&] { group_->barrier()->wait(); });
}

}  // namespace trainrun
