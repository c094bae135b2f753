#include "runner/data/data_loader.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "runner/data/batch_maker.h"
#include "runner/data/device_batches.h"

extern "C" void omp_set_num_threads(int);  // of the OpenMP runtime that LibTorch uses; clang has no <omp.h>

namespace trainrun {
namespace {

/// Operations called by this thread run on this thread alone: a worker beside the training loop has no cores to spread
/// over. (at::set_num_threads would set MKL's number for the whole process.)
void run_single_threaded() {
  at::internal::lazy_init_num_threads();  // would otherwise set the number at this thread's first parallel operation, …
  at::get_num_threads();                  // … and once more inside LibTorch
  omp_set_num_threads(1);
}

/// What a stream has still to make: the batches from number `next` on.
struct Remaining {
  const DataLoader& loader;
  int64_t next;

  bool done() const { return next >= loader.num_batches(); }
};

class InlineStream : public BatchStream {
 public:
  InlineStream(BatchMaker maker, Remaining remaining) : maker_(std::move(maker)), remaining_(remaining) {}

  std::optional<Batch> next() override {
    if (remaining_.done()) return std::nullopt;
    const int64_t number = remaining_.next++;
    return maker_.make(number * remaining_.loader.full_batch_size(), remaining_.loader.batch_size(number));
  }

 private:
  BatchMaker maker_;
  Remaining remaining_;
};

/// One batch of one sample.
class SurplusStream : public BatchStream {
 public:
  explicit SurplusStream(BatchMaker maker) : maker_(std::move(maker)) {}

  std::optional<Batch> next() override {
    if (std::exchange(is_done_, true)) return std::nullopt;
    return maker_.make(0, 1);
  }

 private:
  BatchMaker maker_;
  bool is_done_ = false;
};

/// Batches out of the samples that a GPU keeps.
class KeptStream : public BatchStream {
 public:
  /// `order`: the rank's samples, where `samples` are.
  KeptStream(const Batch& samples, at::Tensor order, int64_t batch_size, Remaining remaining)
      : samples_(samples), order_(std::move(order)), batch_size_(batch_size), remaining_(remaining) {}

  std::optional<Batch> next() override {
    if (remaining_.done()) return std::nullopt;
    const at::NoGradGuard no_grad;
    const int64_t number = remaining_.next++;
    return rows_of(samples_, order_.narrow(0, number * batch_size_, remaining_.loader.batch_size(number)));
  }

 private:
  const Batch& samples_;
  at::Tensor order_;
  int64_t batch_size_;
  Remaining remaining_;
};

/// Threads that make batches ahead of the reader, in order, never more than kAhead each.
class PrefetchStream : public BatchStream {
 public:
  PrefetchStream(BatchMaker maker, Remaining remaining) : maker_(std::move(maker)), remaining_(remaining) {}
  PrefetchStream(const PrefetchStream&) = delete;
  PrefetchStream& operator=(const PrefetchStream&) = delete;

  ~PrefetchStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  /// Apart from the constructor: where the system has no more threads, the destructor ends those there are.
  void start(int64_t num_workers) {
    const int64_t most_useful = std::max<int64_t>(remaining_.loader.num_batches() - remaining_.next, 0);
    const int64_t num_threads = std::min(num_workers, most_useful);
    for (int64_t i = 0; i < kAhead * num_threads; ++i) schedule();
    for (int64_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  }

  std::optional<Batch> next() override {
    if (results_.empty()) return std::nullopt;
    std::future<Batch> result = std::move(results_.front());
    results_.pop_front();
    schedule();
    return result.get();  // rethrows what the worker threw
  }

 private:
  static constexpr int64_t kAhead = 2;

  void schedule() {
    if (remaining_.done()) return;
    const int64_t number = remaining_.next++;
    const int64_t size = remaining_.loader.batch_size(number);
    const int64_t first = number * remaining_.loader.full_batch_size();
    std::packaged_task<Batch()> task([this, first, size] { return maker_.make(first, size); });
    results_.push_back(task.get_future());
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
  }

  void work() {
    run_single_threaded();
    while (true) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
      if (stop_) return;
      std::packaged_task<Batch()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  BatchMaker maker_;
  Remaining remaining_;
  std::deque<std::future<Batch>> results_;  // of the reader alone
  std::mutex mutex_;                        // of what follows
  std::condition_variable wake_;
  std::deque<std::packaged_task<Batch()>> tasks_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

std::function<void(Batch&)> finishing(const BatchMaker& maker) {
  return [maker](Batch& batch) { maker.finish(batch); };
}

}  // namespace

DataLoader::DataLoader(const Dataset& dataset, Transforms transforms, const DataLoaderOptions& options,
                       at::Device device)
    : dataset_(dataset),
      transforms_(std::move(transforms)),
      options_(options),
      device_(device),
      sampler_(dataset.size(),
               {options.shuffle, options.seed, options.split, options.rank, options.world_size, options.drawing}) {
  if (options_.batch_size < 1) throw Error("batch_size must be >= 1, is " + std::to_string(options_.batch_size));
  if (dataset.size() == 0) throw DataError("the data set has no samples");
  if (num_batches(0) == 0) {  // rank 0 has the most samples
    throw DataError("with drop_last not one batch is left: " + std::to_string(sampler_.size(0)) +
                    " samples, batch_size " + std::to_string(options_.batch_size));
  }
}

int64_t DataLoader::num_batches(int64_t rank) const {
  const int64_t samples = sampler_.size(rank);
  return (options_.drop_last ? samples : samples + options_.batch_size - 1) / options_.batch_size;
}

int64_t DataLoader::batch_size(int64_t batch, int64_t rank) const {
  if (batch < 0 || batch >= num_batches(rank)) return 0;
  return std::min(options_.batch_size, sampler_.size(rank) - batch * options_.batch_size);
}

int64_t DataLoader::global_batch_size(int64_t batch) const {
  int64_t sum = 0;
  for (int64_t rank = 0; rank < options_.world_size; ++rank) sum += batch_size(batch, rank);
  return sum;
}

Batch DataLoader::surplus_batch() const {
  const bool on_gpu = !device_.is_cpu();
  const Sampler in_order(dataset_.size(), SamplerOptions());
  const BatchMaker maker(dataset_, transforms_, in_order, options_.seed, 0, on_gpu);
  if (!on_gpu) return maker.make(0, 1);
  return *batches_on(device_, std::make_unique<SurplusStream>(maker), finishing(maker))->next();
}

std::unique_ptr<BatchStream> DataLoader::iterate(int64_t epoch, int64_t start_batch) const {
  const Remaining remaining{*this, start_batch};
  const bool on_gpu = !device_.is_cpu();
  if (on_gpu) std::call_once(looked_, [&] { kept_ = samples_on(device_, dataset_, transforms_); });
  if (kept_) {
    return std::make_unique<KeptStream>(*kept_, sampler_.indices(epoch).to(device_), options_.batch_size, remaining);
  }
  const BatchMaker maker(dataset_, transforms_, sampler_, options_.seed, epoch, on_gpu);
  std::unique_ptr<BatchStream> stream;
  if (options_.num_workers == 0) {
    stream = std::make_unique<InlineStream>(maker, remaining);
  } else {
    auto prefetching = std::make_unique<PrefetchStream>(maker, remaining);
    prefetching->start(options_.num_workers);
    stream = std::move(prefetching);
  }
  return on_gpu ? batches_on(device_, std::move(stream), finishing(maker)) : std::move(stream);
}

}  // namespace trainrun
