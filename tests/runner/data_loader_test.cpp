#include "runner/data/data_loader.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "registry/language/error.h"
#include "tests/doctest.h"

namespace trainrun {
namespace {

using Indices = std::vector<int64_t>;

Indices list(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.contiguous();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

/// Sample i is the number i.
class Numbers : public Dataset {
 public:
  explicit Numbers(int64_t size) : size_(size) {}
  DatasetInfo info() const override { return {{{"index", {}, at::kLong, std::nullopt}}, "index", size_}; }
  void open() override {}
  int64_t size() const override { return size_; }
  Batch get(const at::Tensor& indices) const override {
    Batch batch;
    batch.set("index", indices.clone());
    return batch;
  }

 private:
  int64_t size_;
};

/// Adds a random number to each sample.
class AddRandom : public Transform {
 public:
  void describe(DatasetInfo&) const override {}
  void apply(Batch& batch, const SampleDraws& draws) const override {
    at::Tensor numbers = at::zeros({batch.size()}, at::kDouble);
    for (int64_t i = 0; i < batch.size(); ++i) numbers[i] = draws.of(i).uniform();
    batch.set("random", numbers);
  }
};

std::vector<Batch> read(BatchStream& stream) {
  std::vector<Batch> batches;
  while (auto batch = stream.next()) batches.push_back(std::move(*batch));
  return batches;
}

/// The samples of the next batch; none after the last.
Indices next_of(BatchStream& stream) {
  const auto batch = stream.next();
  return batch ? list(batch->at("index")) : Indices{};
}

std::vector<Indices> indices_of(const DataLoader& loader, int64_t epoch, int64_t start_batch = 0) {
  const auto stream = loader.iterate(epoch, start_batch);
  std::vector<Indices> result;
  for (const Batch& batch : read(*stream)) result.push_back(list(batch.at("index")));
  return result;
}

DataLoaderOptions loading(int64_t batch_size, int64_t num_workers = 0) {
  DataLoaderOptions result;
  result.batch_size = batch_size;
  result.num_workers = num_workers;
  return result;
}

// --- Sampler

TEST_CASE("the order of samples is torch.randperm of seed + epoch, or the data set's own") {
  SamplerOptions shuffled;
  shuffled.shuffle = true;
  shuffled.seed = 42;
  // Python: g.manual_seed(42 + epoch); torch.randperm(10, generator=g)
  CHECK(list(Sampler(10, shuffled).indices(0)) == Indices{2, 6, 1, 8, 4, 5, 0, 9, 3, 7});
  CHECK(list(Sampler(10, shuffled).indices(1)) == Indices{8, 4, 9, 0, 5, 1, 6, 7, 2, 3});
  const at::Tensor large = Sampler(60000, shuffled).indices(0);
  CHECK(list(large.slice(0, 0, 8)) == Indices{37542, 43087, 2992, 25810, 39634, 6425, 55768, 11034});
  CHECK((large * at::arange(60000)).sum().item<int64_t>() == 53966354288704);
  CHECK(list(Sampler(5, {}).indices(3)) == Indices{0, 1, 2, 3, 4});
}

TEST_CASE("ranks share the samples as DistributedSampler does") {
  struct Case {
    int64_t num_samples, world_size;
    bool shuffle;
    int64_t epoch;
    std::vector<Indices> ranks;
  };
  // Python: DistributedSampler(range(n), num_replicas, rank, shuffle, seed=7), set_epoch(epoch)
  const Case cases[] = {
      {11, 4, true, 3, {{10, 1, 9}, {6, 3, 5}, {8, 2, 4}, {0, 7, 10}}},
      {11, 4, false, 0, {{0, 4, 8}, {1, 5, 9}, {2, 6, 10}, {3, 7, 0}}},
      {3, 8, true, 0, {{0}, {1}, {2}, {0}, {1}, {2}, {0}, {1}}},
      {3, 7, false, 1, {{0}, {1}, {2}, {0}, {1}, {2}, {0}}},
      {12, 4, true, 1, {{3, 9, 8}, {10, 4, 2}, {0, 1, 5}, {6, 7, 11}}},
  };
  for (const Case& one : cases) {
    for (int64_t rank = 0; rank < one.world_size; ++rank) {
      const Sampler sampler(one.num_samples, {one.shuffle, 7, Split::kPad, rank, one.world_size});
      CHECK(list(sampler.indices(one.epoch)) == one.ranks[static_cast<size_t>(rank)]);
      CHECK(sampler.size() == static_cast<int64_t>(one.ranks[static_cast<size_t>(rank)].size()));
    }
  }
}

TEST_CASE("an evaluation over several ranks sees every sample once") {
  for (const int64_t num_samples : {1, 3, 7, 8, 9, 100}) {
    Indices seen;
    for (int64_t rank = 0; rank < 4; ++rank) {
      const Sampler sampler(num_samples, {true, 1, Split::kEverySampleOnce, rank, 4});
      const Indices mine = list(sampler.indices(2));
      CHECK(static_cast<int64_t>(mine.size()) == sampler.size());
      seen.insert(seen.end(), mine.begin(), mine.end());
    }
    std::sort(seen.begin(), seen.end());
    Indices expected(static_cast<size_t>(num_samples));
    std::iota(expected.begin(), expected.end(), 0);
    CHECK(seen == expected);
  }
  CHECK_THROWS_AS(Sampler(10, {false, 0, Split::kPad, 4, 4}), Error);
}

// --- DataLoader

TEST_CASE("the loader cuts the order into batches whose sizes are known before") {
  const Numbers data(10);
  const DataLoader all(data, {}, loading(4));
  CHECK(indices_of(all, 0) == std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9}});
  CHECK(all.num_batches() == 3);
  CHECK(all.batch_size(0) == 4);
  CHECK(all.batch_size(2) == 2);
  CHECK(all.batch_size(3) == 0);

  DataLoaderOptions dropping = loading(4);
  dropping.drop_last = true;
  const DataLoader full(data, {}, dropping);
  CHECK(indices_of(full, 0) == std::vector<Indices>{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(full.num_batches() == 2);

  DataLoaderOptions shuffling = loading(5);
  shuffling.shuffle = true;
  shuffling.seed = 42;
  CHECK(indices_of(DataLoader(data, {}, shuffling), 1) == std::vector<Indices>{{8, 4, 9, 0, 5}, {1, 6, 7, 2, 3}});
}

TEST_CASE("each rank has its batches, and knows the size of all of them together") {
  const Numbers data(10);
  DataLoaderOptions evaluating = loading(2);
  evaluating.split = Split::kEverySampleOnce;
  evaluating.world_size = 4;
  evaluating.rank = 3;
  const DataLoader loader(data, {}, evaluating);
  CHECK(indices_of(loader, 0) == std::vector<Indices>{{3, 7}});
  CHECK(loader.global_batch_size(0) == 8);
  CHECK(loader.global_batch_size(1) == 2);
  evaluating.rank = 1;
  CHECK(indices_of(DataLoader(data, {}, evaluating), 0) == std::vector<Indices>{{1, 5}, {9}});

  DataLoaderOptions training = loading(2);
  training.world_size = 4;
  training.rank = 3;
  const DataLoader padded(data, {}, training);
  CHECK(indices_of(padded, 0) == std::vector<Indices>{{3, 7}, {1}});
  CHECK(padded.global_batch_size(1) == 4);
}

TEST_CASE("batches depend on neither the number of workers nor where in the epoch one begins") {
  const Numbers data(103);
  const auto make = [&](int64_t num_workers, int64_t epoch, int64_t start, int64_t rank = 0, uint64_t seed = 9) {
    DataLoaderOptions chosen = loading(8, num_workers);
    chosen.shuffle = true;
    chosen.seed = seed;
    chosen.rank = rank;
    chosen.world_size = 2;
    const DataLoader loader(data, {std::make_shared<AddRandom>()}, chosen);
    std::vector<std::vector<double>> result;
    for (const Batch& batch : read(*loader.iterate(epoch, start))) {
      const at::Tensor& random = batch.at("random");
      std::vector<double> row(random.const_data_ptr<double>(), random.const_data_ptr<double>() + random.numel());
      for (const int64_t index : list(batch.at("index"))) row.push_back(static_cast<double>(index));
      result.push_back(row);
    }
    return result;
  };
  const auto expected = make(0, 4, 0);
  CHECK(expected.size() == 7);
  for (const int64_t num_workers : {1, 2, 3, 20}) {
    CHECK(make(num_workers, 4, 0) == expected);
    CHECK(make(num_workers, 4, 3) == std::vector(expected.begin() + 3, expected.end()));
    CHECK(make(num_workers, 4, 7).empty());
  }
  CHECK(make(0, 4, 5) == std::vector(expected.begin() + 5, expected.end()));

  std::set<double> first_numbers;  // no two batches of any epoch, rank or seed share their random numbers
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t rank = 0; rank < 2; ++rank) {
      for (const uint64_t seed : {9, 10}) {
        for (const auto& batch : make(0, epoch, 0, rank, seed)) first_numbers.insert(batch[0]);
      }
    }
  }
  CHECK(first_numbers.size() == 3 * 2 * 2 * 7);
}

/// Fails for one sample.
class Faulty : public Numbers {
 public:
  using Numbers::Numbers;
  Batch get(const at::Tensor& indices) const override {
    const Indices wanted = list(indices);
    if (std::find(wanted.begin(), wanted.end(), 5) != wanted.end()) throw DataError("sample 5 is broken");
    return Numbers::get(indices);
  }
};

TEST_CASE("an error while a batch is made is thrown where the batch is asked for, with its type") {
  const Faulty data(10);
  for (const int64_t num_workers : {0, 1, 3}) {
    const DataLoader loader(data, {}, loading(2, num_workers));
    const auto stream = loader.iterate(0);
    CHECK(next_of(*stream) == Indices{0, 1});
    CHECK(next_of(*stream) == Indices{2, 3});
    CHECK_THROWS_WITH_AS(stream->next(), "sample 5 is broken", DataError);
    CHECK(next_of(*stream) == Indices{6, 7});
  }
}

/// Counts the batches made, and notes which thread makes them and with how many threads of its own.
class Watched : public Numbers {
 public:
  using Numbers::Numbers;
  Batch get(const at::Tensor& indices) const override {
    const int64_t ahead = ++num_made - num_taken;
    const std::lock_guard lock(mutex);
    most_ahead = std::max(most_ahead, ahead);
    threads.insert(std::this_thread::get_id());
    most_intra_op_threads = std::max(most_intra_op_threads, at::get_num_threads());
    return Numbers::get(indices);
  }

  mutable std::atomic<int64_t> num_made = 0;
  mutable std::atomic<int64_t> num_taken = 0;
  mutable std::mutex mutex;
  mutable int64_t most_ahead = 0;
  mutable std::set<std::thread::id> threads;
  mutable int most_intra_op_threads = 0;
};

TEST_CASE("workers are threads of their own, single-threaded inside, and keep at most two batches each ahead") {
  for (const int64_t num_workers : {1, 3}) {
    const Watched data(2000);
    const DataLoader loader(data, {}, loading(2, num_workers));
    const auto stream = loader.iterate(0);
    while (true) {
      ++data.num_taken;
      if (!stream->next()) break;
    }
    CHECK(data.num_made == 1000);
    CHECK(data.most_ahead <= 2 * num_workers);
    CHECK(data.threads.size() <= static_cast<size_t>(num_workers));
    CHECK_FALSE(data.threads.contains(std::this_thread::get_id()));
    CHECK(data.most_intra_op_threads == 1);
  }
}

TEST_CASE("a stream may be dropped at any time; what nobody will read is not made") {
  const Watched data(100000);
  const DataLoader loader(data, {}, loading(1, 3));
  for (int64_t taken = 0; taken < 50; ++taken) {
    const int64_t before = data.num_made;
    {
      const auto stream = loader.iterate(taken);
      for (int64_t i = 0; i < taken; ++i) stream->next();
    }
    CHECK(data.num_made - before <= taken + 6);
  }
}

TEST_CASE("two streams of one loader do not disturb each other") {
  const Numbers data(100);
  const DataLoader loader(data, {}, loading(10, 2));
  const auto a = loader.iterate(0);
  const auto b = loader.iterate(0, 5);
  for (int64_t i = 0; i < 5; ++i) {
    CHECK(next_of(*a).at(0) == 10 * i);
    CHECK(next_of(*b).at(0) == 50 + 10 * i);
  }
  CHECK_FALSE(b->next());
  CHECK(a->next());
}

TEST_CASE("a loader that would give no batch at all is an error") {
  CHECK_THROWS_WITH_AS(DataLoader(Numbers(0), {}, loading(4)), "the data set has no samples", DataError);
  DataLoaderOptions dropping = loading(32);
  dropping.drop_last = true;
  CHECK_THROWS_WITH_AS(DataLoader(Numbers(10), {}, dropping),
                       "with drop_last not one batch is left: 10 samples, batch_size 32", DataError);
  CHECK_THROWS_AS(DataLoader(Numbers(10), {}, loading(0)), Error);
}

}  // namespace
}  // namespace trainrun
