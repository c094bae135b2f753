#include "runner/data/device_batches.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "runner/device/device.h"

namespace trainrun {
namespace {

template <class Function>
Batch with_each(const Batch& batch, const Function& function) {
  Batch result;
  for (const Batch::Field& field : batch.fields()) result.set(field.name, function(field.tensor));
  return result;
}

class DeviceStream : public BatchStream {
 public:
  DeviceStream(at::Device device, std::unique_ptr<BatchStream> source, std::function<void(Batch&)> finish)
      : device_(device), source_(std::move(source)), finish_(std::move(finish)), guard_(device.type()) {
    copies_ = guard_.getStreamFromGlobalPool(device);
  }

  std::optional<Batch> next() override {
    if (!ahead_) ahead_ = fetch();
    Fetched now = std::move(*ahead_);
    const c10::Stream work = guard_.getStream(device_);
    if (now.batch) {
      now.copied.block(work);
      for (const Batch::Field& field : now.batch->fields()) at::Tensor(field.tensor).record_stream(work);
    }
    ahead_ = fetch();
    if (now.error) std::rethrow_exception(now.error);
    return std::move(now.batch);
  }

 private:
  struct Fetched {
    std::optional<Batch> batch;
    std::exception_ptr error;  // that came instead of it
    c10::Event copied;
  };

  Fetched fetch() {
    Fetched fetched{std::nullopt, nullptr, c10::Event(device_.type())};
    try {
      const auto batch = source_->next();
      if (!batch) return fetched;
      const c10::StreamGuard on_its_stream(*copies_);
      fetched.batch =
          with_each(*batch, [&](const at::Tensor& tensor) { return tensor.to(device_, /*non_blocking=*/true); });
      finish_(*fetched.batch);
      fetched.copied.record(*copies_);
    } catch (...) {  // for whoever asks for that batch
      fetched.error = std::current_exception();
    }
    return fetched;
  }

  at::Device device_;
  std::unique_ptr<BatchStream> source_;
  std::function<void(Batch&)> finish_;
  c10::impl::VirtualGuardImpl guard_;
  std::optional<c10::Stream> copies_;
  std::optional<Fetched> ahead_;
};

/// Makes samples as a DataLoader would, and notices where they would not be the same another time.
class SampleMaker {
 public:
  SampleMaker(const Dataset& dataset, const BatchTransforms& transforms) : dataset_(dataset), transforms_(transforms) {}

  /// Nothing where a transform has drawn or mixed samples, or wants other company for a sample than its neighbours.
  std::optional<Batch> make(int64_t begin, int64_t count) const {
    const std::vector<int64_t> numbers(static_cast<size_t>(count));
    const SampleDraws of_dataset({}, numbers);
    Batch batch = dataset_.get_drawn(at::arange(begin, begin + count, at::kLong), of_dataset);
    if (of_dataset.used()) return std::nullopt;
    try {
      for (const auto& transform : transforms_) {
        const SampleDraws draws({}, numbers);
        if (transform->pairs()) return std::nullopt;
        transform->apply(batch, draws);
        if (draws.used()) return std::nullopt;
      }
    } catch (const std::exception&) {
      return std::nullopt;  // what is wrong with a batch of training, whoever makes that one will say
    }
    return batch;
  }

 private:
  const Dataset& dataset_;
  const BatchTransforms& transforms_;
};

/// Whether the rows of both are alike in name, type and shape.
bool have_one_shape(const Batch& a, const Batch& b) {
  return std::equal(a.fields().begin(), a.fields().end(), b.fields().begin(), b.fields().end(),
                    [](const Batch::Field& x, const Batch::Field& y) {
                      return x.name == y.name && x.tensor.scalar_type() == y.tensor.scalar_type() &&
                             x.tensor.sizes().slice(1) == y.tensor.sizes().slice(1);
                    });
}

int64_t size_in_bytes(const Batch& batch) {
  int64_t bytes = 0;
  for (const Batch::Field& field : batch.fields()) bytes += static_cast<int64_t>(field.tensor.nbytes());
  return bytes;
}

}  // namespace

Batch pinned(const Batch& batch) {
  return with_each(batch, [](const at::Tensor& tensor) { return tensor.pin_memory(); });
}

std::unique_ptr<BatchStream> batches_on(at::Device device, std::unique_ptr<BatchStream> source,
                                        std::function<void(Batch&)> finish) {
  return std::make_unique<DeviceStream>(device, std::move(source), std::move(finish));
}

std::optional<Batch> samples_on(at::Device device, const Dataset& dataset, const BatchTransforms& transforms) {
  return samples_within(std::min(kMostKept, free_memory(device) / 2), device, dataset, transforms);
}

std::optional<Batch> samples_within(int64_t limit, at::Device device, const Dataset& dataset,
                                    const BatchTransforms& transforms) {
  constexpr int64_t kPiece = 512;  // samples at a time
  const at::NoGradGuard no_gradients;
  const SampleMaker maker(dataset, transforms);
  const auto one = maker.make(0, 1);
  if (!one || one->fields().empty() || size_in_bytes(*one) * dataset.size() > limit) return std::nullopt;
  Batch all = with_each(*one, [&](const at::Tensor& tensor) {
    std::vector<int64_t> sizes = tensor.sizes().vec();
    sizes[0] = dataset.size();
    return at::empty(sizes, tensor.options().device(device));
  });
  for (int64_t begin = 0; begin < dataset.size(); begin += kPiece) {
    const int64_t count = std::min(kPiece, dataset.size() - begin);
    const auto piece = maker.make(begin, count);
    if (!piece || piece->size() != count || !have_one_shape(*piece, *one)) return std::nullopt;
    for (const Batch::Field& field : piece->fields()) all.at(field.name).narrow(0, begin, count).copy_(field.tensor);
  }
  return all;
}

Batch rows_of(const Batch& samples, const at::Tensor& indices) {
  return with_each(samples, [&](const at::Tensor& tensor) { return at::index_select(tensor, 0, indices); });
}

}  // namespace trainrun
