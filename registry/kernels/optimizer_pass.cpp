#include "registry/kernels/optimizer_pass.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/sqrt.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "registry/kernels/cpu_path.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/language/error.h"

namespace trainrun::kernels {
namespace {

constexpr int64_t kUnit = 2048;           // elements that one thread computes at a stretch
constexpr int64_t kUnitsPerThread = 16;   // fewer are not worth another thread
constexpr int64_t kRootsOfThread = 2048;  // more, and at::sqrt asks for other threads
constexpr int64_t kLine = 64;             // bytes of a cache's line

bool has_loops() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          at::get_cpu_capability() != "DEFAULT";  // whose kernels round products and sums apart
  return has;
#else
  return false;
#endif
}

template <class T>
void take_roots(T* numbers, int64_t count) {
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  at::Tensor tensor = at::from_blob(numbers, {count}, at::TensorOptions(c10::CppTypeToScalarType<T>::value));
  at::sqrt_out(tensor, tensor);
}

int64_t units_of(const at::Tensor& parameter) { return (parameter.numel() + kUnit - 1) / kUnit; }

/// So that no line is written to by two ranks.
int64_t exchanged_bytes_of(const at::Tensor& parameter) {
  return (static_cast<int64_t>(parameter.nbytes()) + kLine - 1) / kLine * kLine;
}

#if defined(__x86_64__)
template <class T>
auto loop_of(const AdamNumbers&) {
  return &adam_avx2<T>;
}
template <class T>
auto loop_of(const SgdNumbers&) {
  return &sgd_avx2<T>;
}
template <class T, class Numbers>
auto loop_of(const Numbers&) {
  return +[](const Stretch<Numbers>& stretch, int64_t begin, int64_t end) {
    const bool is_one_thread = at::in_parallel_region() || at::get_num_threads() == 1;
    const Roots<T> roots = {&take_roots<T>, is_one_thread ? kMostRoots : kRootsOfThread};
    TRAINRUN_LOOP_OF(best_cpu_path(), optimizer_loop<T, Numbers>)(stretch, begin, end, roots);
  };
}
#else
template <class T, class Numbers>
void (*loop_of(const Numbers&))(const Stretch<Numbers>&, int64_t, int64_t) {
  throw Error("there are no loops for this processor");
}
#endif

}  // namespace

bool is_for_optimizer_pass(const at::Tensor& parameter) {
  const at::ScalarType dtype = parameter.scalar_type();
  return has_loops() && is_plain_cpu(parameter) && (dtype == at::kFloat || dtype == at::kDouble) &&
         parameter.is_non_overlapping_and_dense();
}

int64_t exchange_bytes(const std::vector<at::Tensor>& parameters) {
  int64_t bytes = 0;
  for (const at::Tensor& parameter : parameters) bytes += exchanged_bytes_of(parameter);
  return bytes;
}

AdamNumbers adam_numbers(double lr, double beta1, double beta2, double eps, double weight_decay, bool is_decoupled,
                         bool amsgrad, double step) {
  AdamNumbers numbers{};
  numbers.mean_share = 1 - beta1;
  numbers.square_share = 1 - beta2;
  numbers.beta2 = beta2;
  numbers.eps = eps;
  numbers.weight_decay = is_decoupled ? 0 : weight_decay;
  numbers.kept_weight = is_decoupled ? 1 - lr * weight_decay : 1;
  numbers.step_size = lr / (1 - std::pow(beta1, step));
  numbers.root = std::sqrt(1 - std::pow(beta2, step));
  numbers.amsgrad = amsgrad;
  return numbers;
}

template <class Numbers>
OptimizerPass<Numbers>::OptimizerPass(const std::vector<at::Tensor>& factors) : factors_(factors) {
  if (factors.size() > 2) throw Error("an optimizer's pass takes two factors at most");
}

template <class Numbers>
void OptimizerPass<Numbers>::add(const at::Tensor& parameter, const at::Tensor& gradient,
                                 const std::vector<at::Tensor>& state, const Numbers& numbers, bool maximize) {
  if (parameter.numel() == 0) return;
  Item item;
  item.gradient = gradient;
  Stretch<Numbers>& stretch = item.stretch;
  stretch.parameter = parameter.mutable_data_ptr();
  stretch.gradient = gradient.const_data_ptr();
  for (size_t k = 0; k < state.size(); ++k) {
    stretch.state[k] = state[k].defined() ? state[k].mutable_data_ptr() : nullptr;
  }
  stretch.size = parameter.numel();
  item.element_size = parameter.element_size();
  if (!multipliers_) {
    const auto factor = [&](size_t i) { return i < factors_.size() ? factors_[i].item<double>() : 1; };
    multipliers_ = {factor(0), factor(1)};
  }
  stretch.factors[0] = (*multipliers_)[0];
  stretch.factors[1] = maximize ? -(*multipliers_)[1] : (*multipliers_)[1];
  stretch.numbers = numbers;
  item.loop = parameter.scalar_type() == at::kDouble ? loop_of<double>(numbers) : loop_of<float>(numbers);
  item.exchange_begin = exchanged_bytes_;
  exchanged_bytes_ += exchanged_bytes_of(parameter);
  parameter.unsafeGetTensorImpl()->bump_version();
  items_.push_back(std::move(item));
  ends_.push_back((ends_.empty() ? 0 : ends_.back()) + units_of(parameter));
}

/// Calls `body(item, begin, end)` for the elements of the units from `begin` to `end`, on several threads.
template <class Numbers>
template <class Body>
void OptimizerPass<Numbers>::walk(int64_t begin, int64_t end, const Body& body) const {
  at::parallel_for(begin, end, kUnitsPerThread, [&](int64_t from, int64_t to) {
    auto item = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), from) - ends_.begin());
    for (; from < to; ++item) {
      const int64_t first = item == 0 ? 0 : ends_[item - 1];
      const int64_t last = std::min(to, ends_[item]);
      body(item, (from - first) * kUnit, std::min((last - first) * kUnit, items_[item].stretch.size));
      from = last;
    }
  });
}

template <class Numbers>
void OptimizerPass<Numbers>::run(const StepDivision* division) const {
  if (items_.empty()) return;
  const int64_t units = ends_.back();
  const auto compute = [&](size_t item, int64_t begin, int64_t end) {
    items_[item].loop(items_[item].stretch, begin, end);
  };
  if (!division) return walk(0, units, compute);
  const auto exchanged = [&](size_t item, int64_t element) {
    return division->exchange + items_[item].exchange_begin + element * items_[item].element_size;
  };
  const auto parameter = [&](size_t item, int64_t element) {
    return static_cast<char*>(items_[item].stretch.parameter) + element * items_[item].element_size;
  };
  const auto bytes = [&](size_t item, int64_t begin, int64_t end) {
    return static_cast<size_t>((end - begin) * items_[item].element_size);
  };
  const auto take_over = [&](size_t item, int64_t begin, int64_t end) {
    std::memcpy(parameter(item, begin), exchanged(item, begin), bytes(item, begin, end));
  };
  const int64_t own_begin = units * division->rank / division->ranks;
  const int64_t own_end = units * (division->rank + 1) / division->ranks;
  walk(own_begin, own_end, [&](size_t item, int64_t begin, int64_t end) {
    compute(item, begin, end);
    std::memcpy(exchanged(item, begin), parameter(item, begin), bytes(item, begin, end));
  });
  division->wait_for_all();
  walk(0, own_begin, take_over);
  walk(own_end, units, take_over);
}

template class OptimizerPass<AdamNumbers>;
template class OptimizerPass<SgdNumbers>;
template class OptimizerPass<RMSpropNumbers>;
template class OptimizerPass<AdagradNumbers>;
template class OptimizerPass<AdadeltaNumbers>;
template class OptimizerPass<AdamaxNumbers>;
template class OptimizerPass<NAdamNumbers>;
template class OptimizerPass<RAdamNumbers>;
template class OptimizerPass<LionNumbers>;
template class OptimizerPass<ASGDNumbers>;
template class OptimizerPass<RpropNumbers>;

}  // namespace trainrun::kernels
