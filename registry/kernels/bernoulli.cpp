#include "registry/kernels/bernoulli.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "registry/kernels/bernoulli_simd.h"
#include "registry/language/error.h"

namespace trainrun::kernels {
namespace {

constexpr int64_t kFewestDrawn = 64, kFewestOfThreads = int64_t{1} << 15;

/// How a tensor of this type holds a 1; nothing for types that are left to ATen.
std::optional<One> one_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return One{4, 0x3f800000};
    case at::kDouble:
      return One{8, 0x3ff0000000000000};
    case at::kHalf:
      return One{2, 0x3c00};
    case at::kBFloat16:
      return One{2, 0x3f80};
    case at::kByte:
    case at::kBool:
      return One{1, 1};
    default:
      return std::nullopt;
  }
}

/// Where each thread's part of `count` values begins and ends. States of a twister follow one from the other, so that a
/// thread makes those of the parts before its own as well, a third of what their values cost in all: parts are the smaller
/// the later they begin.
std::vector<int64_t> bounds_of_threads(int64_t count, int64_t threads) {
  constexpr double kDraw = 2.0 / 3;  // of a value's cost: the rest makes its state
  std::vector<double> ends = {0};    // such that (1 - kDraw) * end + kDraw * (end - the end before) is 1 for each
  for (int64_t i = 0; i < threads; ++i) ends.push_back(1 + kDraw * ends.back());
  std::vector<int64_t> bounds;
  bounds.reserve(ends.size());
  for (const double end : ends) bounds.push_back(std::llround(end / ends.back() * static_cast<double>(count)));
  return bounds;
}

void fill_by_one(Twister& twister, uint64_t limit, One one, void* to, int64_t count, CpuPath path) {
  TRAINRUN_LOOP_OF(path, bernoulli_fill)(twister, limit, one, to, count);
}

void fill_by_threads(Twister& twister, uint64_t limit, One one, void* to, int64_t count, CpuPath path) {
  const int64_t threads = at::get_num_threads();
  const std::vector<int64_t> bounds = bounds_of_threads(count, threads);
  std::vector<uint32_t> last(kTwisterNumbers);
  Twister after = twister;
  at::parallel_for(0, threads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      std::vector<uint32_t> state(twister.state, twister.state + kTwisterNumbers);
      Twister own{state.data(), twister.left, twister.next};
      const int64_t first = bounds[part], drawn = bounds[part + 1] - first;
      TRAINRUN_LOOP_OF(path, bernoulli_skip)(own, 2 * first);
      TRAINRUN_LOOP_OF(path, bernoulli_fill)(own, limit, one, static_cast<char*>(to) + first * one.bytes, drawn);
      if (part + 1 < threads) continue;
      last = std::move(state);
      after = own;
    }
  });
  std::ranges::copy(last, twister.state);
  twister.left = after.left;
  twister.next = after.next;
}

/// All the values of `self`, which has no gaps.
void fill(const at::Tensor& self, One one, double p, at::CPUGeneratorImpl& generator, CpuPath path) {
  constexpr double kTo53 = 9007199254740992.0;  // 2^53: ATen compares 53 random bits, as a fraction, with p
  const auto limit = static_cast<uint64_t>(std::ceil(p * kTo53));
  const std::lock_guard<std::mutex> lock(generator.mutex_);
  at::mt19937 engine = generator.engine();
  at::mt19937_data_pod data = engine.data();
  Twister twister{data.state_.data(), data.left_, data.next_};
  const bool pays = self.numel() >= kFewestOfThreads && at::get_num_threads() > 1 && !at::in_parallel_region();
  const auto fill_all = pays ? fill_by_threads : fill_by_one;
  fill_all(twister, limit, one, self.mutable_data_ptr(), self.numel(), path);
  data.left_ = static_cast<int>(twister.left);
  data.next_ = static_cast<uint32_t>(twister.next);
  engine.set_data(data);
  generator.set_engine(engine);
}

/// Whether ATen draws by the generator's own numbers: found out by a few of them.
bool draws_alike() {
  static const bool alike = [] {
    at::Generator theirs = at::detail::createCPUGenerator(1), ours = at::detail::createCPUGenerator(1);
    at::Tensor expected = at::empty({2 * kTwisterNumbers}), found = at::empty_like(expected);
    at::native::bernoulli_(expected, 0.3, theirs);
    fill(found, *one_of(at::kFloat), 0.3, *at::check_generator<at::CPUGeneratorImpl>(ours), best_cpu_path());
    return expected.equal(found) && theirs.get_state().equal(ours.get_state());
  }();
  return alike;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the operator's signature
at::Tensor& quick_bernoulli(at::Tensor& self, double p, std::optional<at::Generator> generator) {
  return bernoulli(self, p, generator);
}

}  // namespace

at::Tensor& bernoulli(at::Tensor& self, double p, const std::optional<at::Generator>& generator,
                      std::optional<CpuPath> path) {
  if (path && !is_available(*path)) throw Error("bernoulli: this processor has no " + name_of(*path));
  const std::optional<One> one = one_of(self.scalar_type());
  const bool fits = one && self.is_non_overlapping_and_dense() && self.numel() >= kFewestDrawn && p >= 0 && p <= 1;
  if (!fits || !draws_alike()) return at::native::bernoulli_(self, p, generator);
  fill(self, *one, p,
       *at::get_generator_or_default<at::CPUGeneratorImpl>(generator, at::detail::getDefaultCPUGenerator()),
       path.value_or(best_cpu_path()));
  return self;
}

void use_quick_bernoulli() {
  struct Silence : c10::WarningHandler {  // the dispatcher warns of what is meant here
    void process(const c10::Warning&) override {}
  };
  // Never taken back: threads may still draw while the process ends.
  [[maybe_unused]] static const torch::Library* const library = [] {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    auto made =
        std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    made->impl("bernoulli_.float", quick_bernoulli);
    return made.release();
  }();
}

}  // namespace trainrun::kernels
