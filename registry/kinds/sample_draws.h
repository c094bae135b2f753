#pragma once

#include <cstdint>
#include <vector>

namespace trainrun {

/// A stream of random numbers that follows from a key: SplitMix64 started at the key. Starting costs nothing, a number
/// a few nanoseconds. Not for several threads at once.
class RandomStream {
 public:
  explicit RandomStream(uint64_t key) : state_(key) {}

  uint64_t bits();
  /// Uniform in [0, 1), a multiple of 2^-53; or in [least, most].
  double uniform();
  double uniform(double least, double most) { return least + (most - least) * uniform(); }
  /// Uniform among 0 … below - 1; `below` >= 1.
  int64_t integer(int64_t below);
  /// Of mean 0 and standard deviation 1: the normal distribution's quantile of one uniform number in (0, 1).
  double normal();
  /// Of Beta(alpha, alpha), `alpha` > 0, in [0, 1].
  double beta(double alpha);
  /// The logarithm of a number of Gamma(shape, 1), `shape` > 0, which itself may be too small for a double.
  double log_gamma(double shape);

 private:
  uint64_t state_;
};

/// What the random numbers of a sample depend on, besides the sample itself.
struct DrawKey {
  uint64_t seed = 0;      // of the run
  int64_t epoch = 0;      // from 0
  int64_t transform = 0;  // its place among the transforms, so that no two draw alike
};

/// The random numbers for a transform: each sample of a batch has a stream of its own, which is a function of (seed,
/// epoch, number of the sample, transform) and of nothing else. A sample is thus changed in the same way whatever the
/// batch size, the number of ranks, the accumulation and the threads, and wherever a run was resumed.
///
/// The number of a sample is its place in the epoch's order over all ranks, not its index in the data set: a sample
/// that comes twice in an epoch, as with replacement, is changed in two different ways.
class SampleDraws {
 public:
  /// `numbers`: of the samples, row by row.
  SampleDraws(const DrawKey& key, std::vector<int64_t> numbers);
  /// The stream of the sample in row `row`, from its beginning; call this once for each row.
  RandomStream of(int64_t row) const;
  /// The draws of the sample in row `row` alone, for step number `step` of those that it goes through before it is put
  /// into a batch. `note` tells these draws whether the sample's were used.
  SampleDraws of_sample(int64_t row, int64_t step) const;
  void note(const SampleDraws& of_sample) const { used_ = used_ || of_sample.used_; }
  /// The draws of the samples in those rows, for a part of the batch; then `note` them.
  SampleDraws of_rows(const std::vector<int64_t>& rows) const;
  /// Whether anything was drawn; otherwise the batch would be the same in any epoch.
  bool used() const { return used_; }

 private:
  SampleDraws() = default;
  static SampleDraws begun_at(uint64_t key, std::vector<int64_t> numbers);

  uint64_t key_ = 0;
  std::vector<int64_t> numbers_;
  mutable bool used_ = false;
};

}  // namespace trainrun
