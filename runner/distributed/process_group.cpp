#include "runner/distributed/process_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/FakeProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "registry/value.h"
#include "runner/device.h"
#include "runner/distributed/meeting.h"

namespace trainrun {

namespace {

constexpr std::chrono::milliseconds kBeat(500);

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string key_of(int64_t rank) { return "heart/" + std::to_string(rank); }

/// What a rank last noted.
struct Heartbeat {
  int64_t number = -1;
  int64_t come_to = 0;
  int64_t step = 0;
};

Heartbeat read_heartbeat(c10d::Store& store, int64_t rank) {
  Heartbeat beat;
  if (!store.check({key_of(rank)})) return beat;
  const std::vector<uint8_t> noted = store.get(key_of(rank));
  std::istringstream text(std::string(noted.begin(), noted.end()));
  text >> beat.number >> beat.come_to >> beat.step;
  return beat;
}

}  // namespace

void ProcessGroup::guarded(const std::string& what, const std::function<void()>& body) {
  ++come_to_;
  try {
    body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw DistributedError("rank " + std::to_string(rank()) + " lost the others at step " + std::to_string(step_ + 1) +
                           ", " + what + lagging() + " (" + text.substr(0, text.find('\n')) + ")");
  }
}

void ProcessGroup::beat() {
  std::unique_lock lock(mutex_);
  for (int64_t number = 0; !ends_; ++number) {
    const std::string text = std::to_string(number) + " " + std::to_string(come_to_) + " " + std::to_string(step_);
    lock.unlock();
    try {
      store_->set(key_of(rank()), std::vector<uint8_t>(text.begin(), text.end()));
    } catch (const std::exception&) {
      return;  // the store is gone: whoever needs it will say so
    }
    lock.lock();
    end_.wait_for(lock, kBeat, [&] { return ends_; });
  }
}

/// Who does not answer, and who has not come as far as this rank: ": rank 1 has not answered since step 12".
std::string ProcessGroup::lagging() {
  std::vector<std::string> found;
  try {
    if (!store_) return "";
    std::vector<Heartbeat> before;
    for (int64_t other = 0; other < world_size(); ++other) before.push_back(read_heartbeat(*store_, other));
    std::this_thread::sleep_for(3 * kBeat);
    for (int64_t other = 0; other < world_size(); ++other) {
      if (other == rank()) continue;
      const Heartbeat beat = read_heartbeat(*store_, other);
      const std::string who = "rank " + std::to_string(other);
      if (beat.number < 0) {
        found.push_back(who + " has not come");
      } else if (beat.number == before[static_cast<size_t>(other)].number) {
        found.push_back(who + " has not answered since step " + std::to_string(beat.step + 1));
      } else if (beat.come_to < come_to_) {
        found.push_back(who + " is behind, at step " + std::to_string(beat.step + 1));
      }
    }
  } catch (const std::exception&) {
    found.emplace_back("the store is lost as well");
  }
  return found.empty() ? "" : ": " + join(found);
}

ProcessGroup::ProcessGroup(const Rendezvous& rendezvous, std::chrono::seconds timeout, Backend backend)
    : rendezvous_(rendezvous), backend_(backend) {
  guarded("the rendezvous at " + rendezvous.address + ":" + std::to_string(rendezvous.port), [&] { connect(timeout); });
  if (!is_fake()) heart_ = std::thread([this] { beat(); });
}

void ProcessGroup::connect(std::chrono::seconds timeout) {
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
  const Meeting meeting = meet(rendezvous_, timeout);
  store_ = meeting.store;
  const auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
  std::istringstream interfaces(variable("GLOO_SOCKET_IFNAME"));  // as in PyTorch: separated by commas
  for (std::string name; std::getline(interfaces, name, ',');) {
    gloo_options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(name));
  }
  if (gloo_options->devices.empty()) {
    gloo_options->devices.push_back(meeting.address.empty()
                                        ? c10d::ProcessGroupGloo::createDefaultDevice()
                                        : c10d::ProcessGroupGloo::createDeviceForHostname(meeting.address));
  }
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store_),
                                                                rank, size, gloo_options);
  group_ = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, size);
  group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
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
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  end_.notify_all();
  if (heart_.joinable()) heart_.join();
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
  guarded(what, [&] {
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> one = {tensor};
      count("all_reduce", what, tensor);
      group_->allreduce(one)->wait();
    }
  });
}

void ProcessGroup::sum(const at::Tensor& tensor) {  // within a forward or backward pass, which is guarded
  std::vector<at::Tensor> one = {tensor};
  count("all_reduce", "layers and hooks", tensor);
  group_->allreduce(one)->wait();
}

FutureTensor ProcessGroup::start_sum(const at::Tensor& tensor) {
  std::vector<at::Tensor> one = {tensor};
  count("all_reduce", "gradients", tensor);
  return group_->allreduce(one)->getFuture()->then(
      [tensor](c10::ivalue::Future& done) -> c10::IValue {
        if (done.hasError()) std::rethrow_exception(done.exception_ptr());
        return tensor;
      },
      c10::TensorType::get());
}

int64_t ProcessGroup::max(int64_t number, const std::string& what) {
  std::vector<at::Tensor> one = {at::full({1}, number, at::kLong)};
  count("all_reduce", what, one[0]);
  guarded(what, [&] {
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group_->allreduce(one, options)->wait();
  });
  return one[0].item<int64_t>();
}

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors, const std::string& what) {
  const c10::AutoGradMode no_gradients(false);
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (const at::Tensor& tensor : tensors) by_dtype[tensor.scalar_type()].push_back(tensor);
  guarded(what, [&] {
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
  std::vector<at::Tensor> parts;
  guarded(what, [&] {
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
  guarded(what, [&] { work = group_->_allgather_base(output, input); });
  return work;
}

c10::intrusive_ptr<c10d::Work> ProcessGroup::start_reduce_scatter(const at::Tensor& part, const at::Tensor& whole,
                                                                  const std::string& what) {
  at::Tensor output = part;
  at::Tensor input = whole;
  count("reduce_scatter", what, whole);
  if (is_fake()) output.copy_(whole.narrow(0, rank() * part.numel(), part.numel()));  // c10d's fake leaves it as it is
  c10::intrusive_ptr<c10d::Work> work;
  guarded(what, [&] { work = group_->_reduce_scatter_base(output, input); });
  return work;
}

void ProcessGroup::finish(const c10::intrusive_ptr<c10d::Work>& work, const std::string& what) {
  guarded(what, [&] { work->wait(); });
}

void ProcessGroup::send_to_main(const at::Tensor& tensor, const std::string& what) {
  std::vector<at::Tensor> one = {tensor};
  count("send", what, tensor);
  guarded(what, [&] { group_->send(one, 0, 0)->wait(); });
}

void ProcessGroup::receive_from(int64_t rank, const at::Tensor& tensor, const std::string& what) {
  std::vector<at::Tensor> one = {tensor};
  guarded(what, [&] { group_->recv(one, static_cast<int>(rank), 0)->wait(); });
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

void ProcessGroup::barrier(const std::string& what) {
  guarded(what, [&] { group_->barrier()->wait(); });
}

}  // namespace trainrun
