#include "runner/distributed/process_group.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "registry/value.h"

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

ProcessGroup::ProcessGroup(const Rendezvous& rendezvous, std::chrono::seconds timeout) : rendezvous_(rendezvous) {
  guarded("the rendezvous at " + rendezvous.address + ":" + std::to_string(rendezvous.port), [&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(rendezvous.port);
    // Our own launcher keeps the store itself, and torchrun's agent does, too.
    const bool is_kept = rendezvous.launcher == "trainrun" || variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    options.isServer = rendezvous.rank == 0 && !is_kept;
    options.numWorkers = rendezvous.world_size;
    options.waitWorkers = false;
    options.timeout = timeout;
    store_ = c10::make_intrusive<c10d::PrefixStore>(  // torchrun's stays when it starts the ranks once more
        "trainrun/" + variable("TORCHELASTIC_RESTART_COUNT"),
        c10::make_intrusive<c10d::TCPStore>(rendezvous.address, options));
    const auto gloo_options = c10d::ProcessGroupGloo::Options::create(timeout);
    const bool here = rendezvous.address == "127.0.0.1" || rendezvous.address == "localhost";
    gloo_options->devices.push_back(here ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                         : c10d::ProcessGroupGloo::createDefaultDevice());
    const auto rank = static_cast<int>(rendezvous.rank);
    const auto size = static_cast<int>(rendezvous.world_size);
    const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", store_), rank, size, gloo_options);
    group_ = c10::make_intrusive<c10d::ProcessGroup>(store_, rank, size);
    group_->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
    group_->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  });
  heart_ = std::thread([this] { beat(); });
}

ProcessGroup::~ProcessGroup() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  end_.notify_all();
  if (heart_.joinable()) heart_.join();
}

void ProcessGroup::sum(const std::vector<at::Tensor>& tensors, const std::string& what) {
  guarded(what, [&] {
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> one = {tensor};
      group_->allreduce(one)->wait();
    }
  });
}

int64_t ProcessGroup::max(int64_t number, const std::string& what) {
  std::vector<at::Tensor> one = {at::full({1}, number, at::kLong)};
  guarded(what, [&] {
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    group_->allreduce(one, options)->wait();
  });
  return one[0].item<int64_t>();
}

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors, const std::string& what) {
  guarded(what, [&] {
    for (const at::Tensor& tensor : tensors) {
      std::vector<at::Tensor> one = {tensor};
      group_->broadcast(one)->wait();
    }
  });
}

at::Tensor ProcessGroup::gather_rows(const at::Tensor& rows, const std::string& what) {
  std::vector<at::Tensor> parts;
  guarded(what, [&] {
    at::Tensor counts = at::zeros({world_size()}, at::kLong);
    counts[rank()] = rows.size(0);
    std::vector<at::Tensor> one = {counts};
    group_->allreduce(one)->wait();
    const int64_t most = counts.max().item<int64_t>();  // Gloo wants one shape of all: padded, and cut off again
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes[0] = most;
    std::vector<at::Tensor> padded = {at::zeros(sizes, rows.options())};
    padded[0].narrow(0, 0, rows.size(0)).copy_(rows);
    std::vector<std::vector<at::Tensor>> all(1);
    for (int64_t r = 0; r < world_size(); ++r) all[0].push_back(at::empty(sizes, rows.options()));
    group_->allgather(all, padded)->wait();
    for (int64_t r = 0; r < world_size(); ++r) {
      parts.push_back(all[0][static_cast<size_t>(r)].narrow(0, 0, counts[r].item<int64_t>()));
    }
  });
  return at::cat(parts);
}

std::string ProcessGroup::share_text(const std::string& text, const std::string& what) {
  const auto length = max(is_main() ? static_cast<int64_t>(text.size()) : 0, what);
  at::Tensor bytes = at::zeros({std::max<int64_t>(length, 1)}, at::kByte);
  if (is_main()) std::copy(text.begin(), text.end(), bytes.mutable_data_ptr<uint8_t>());
  broadcast({bytes}, what);
  const auto* data = bytes.const_data_ptr<uint8_t>();
  return {data, data + length};
}

void ProcessGroup::barrier(const std::string& what) {
  guarded(what, [&] { group_->barrier()->wait(); });
}

}  // namespace trainrun
