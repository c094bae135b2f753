#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <map>
#include <random>

#include "registry/kinds/comm_hook.h"

namespace trainrun {
namespace {

struct PowerSGD {
  int64_t matrix_approximation_rank = 1;
  int64_t start_power_sgd_iter = 1000;
  double min_compression_rate = 2;
  double orthogonalization_epsilon = 0;
  bool use_error_feedback = true;
  bool warm_start = true;
  int64_t random_seed = 0;
  static void describe(Fields<PowerSGD>& f) {
    f.optional("matrix_approximation_rank", &PowerSGD::matrix_approximation_rank)
        .at_least(1)
        .doc("number of columns of the two factors that are sent in place of a gradient matrix");
    f.optional("start_powerSGD_iter", &PowerSGD::start_power_sgd_iter)
        .at_least(0)
        .unit("optimizer steps")
        .doc("until then gradients are sent whole; at least 2 with use_error_feedback or warm_start");
    f.optional("min_compression_rate", &PowerSGD::min_compression_rate)
        .greater_than(0)
        .doc("a gradient is sent whole unless its factors are this many times smaller");
    f.optional("orthogonalization_epsilon", &PowerSGD::orthogonalization_epsilon)
        .at_least(0)
        .doc("added to a column's norm; needed if gradients may be all zeros");
    f.optional("use_error_feedback", &PowerSGD::use_error_feedback)
        .doc("add the error of the compression to the gradients of the next step");
    f.optional("warm_start", &PowerSGD::warm_start).doc("start from the factors of the previous step");
    f.optional("random_seed", &PowerSGD::random_seed)
        .at_least(0)
        .at_most(4294967295.0)
        .doc("seed of the first factors");
    f.rule({.when = {the("start_powerSGD_iter").is_at_most(1)},
            .all = {the("use_error_feedback").is(false), the("warm_start").is(false)},
            .at = "start_powerSGD_iter",
            .message = "use_error_feedback and warm_start need at least 2: buckets change in the first two steps"});
  }
  std::unique_ptr<CommHook> build(const CommHookInputs&) const;
};

/// Makes the columns of a [n, r] matrix orthonormal, in place; as torch's powerSGD_hook does.
void orthogonalize(at::Tensor matrix, double epsilon) {
  constexpr int64_t kFewColumns = 2;
  if (matrix.size(1) > kFewColumns) {
    matrix.copy_(std::get<0>(at::linalg_qr(matrix)));
    return;
  }
  for (int64_t i = 0; i < matrix.size(1); ++i) {
    const at::Tensor column = matrix.slice(1, i, i + 1);
    column.div_(column.norm() + epsilon);
    if (i + 1 == matrix.size(1)) continue;
    const at::Tensor rest = matrix.slice(1, i + 1);
    rest.sub_((column * rest).sum(0, true) * column);
  }
}

/// numpy's RandomState(seed).randint(1000000000), which PyTorch draws its seeds from.
class SeedSource {
 public:
  explicit SeedSource(int64_t seed) : engine_(static_cast<uint32_t>(seed)) {}
  int64_t next() {
    constexpr uint32_t kMask = (1U << 30) - 1;
    constexpr uint32_t kBound = 1000000000;
    ++drawn_;
    uint32_t value = kBound;
    while (value >= kBound) value = static_cast<uint32_t>(engine_()) & kMask;
    return value;
  }
  int64_t drawn() const { return drawn_; }

 private:
  std::mt19937 engine_;
  int64_t drawn_ = 0;
};

/// A gradient M [n, m] is sent as P [n, r] and Q [m, r], M = P Qᵀ. Source: Vogels et al. 2019, "PowerSGD: Practical
/// Low-Rank Gradient Compression for Distributed Optimization"; steps as in torch's powerSGD_hook.
class PowerSGDHook : public CommHook {
 public:
  explicit PowerSGDHook(const PowerSGD& options) : options_(options), seeds_(options.random_seed) {}

  FutureTensor reduce(const GradientBucket& bucket, Communicator& ranks) override {
    const c10::AutoGradMode no_gradients(false);
    const bool whole = step_ < options_.start_power_sgd_iter;
    if (whole) {
      ranks.sum(bucket.values.div_(ranks.world_size()));
    } else {
      compress(bucket, ranks);
    }
    if (bucket.is_last) ++step_;
    return finished(bucket.values);
  }

  NamedTensors state() override {
    NamedTensors state = {{"step", at::full({1}, step_, at::kLong)},
                          {"drawn", at::full({1}, seeds_.drawn(), at::kLong)}};
    for (const auto& [index, error] : errors_) state.emplace_back("error." + std::to_string(index), error);
    for (const auto& [index, q] : qs_) state.emplace_back("q." + std::to_string(index), q);
    return state;
  }

  void load_state(const NamedTensors& state) override {
    for (const auto& [name, tensor] : state) {
      if (name == "step") step_ = tensor.item<int64_t>();
      if (name == "drawn") {
        while (seeds_.drawn() < tensor.item<int64_t>()) seeds_.next();
      }
      if (name.starts_with("error.")) errors_[std::stoll(name.substr(6))] = tensor.clone();
      if (name.starts_with("q.")) qs_[std::stoll(name.substr(2))] = tensor.clone();
    }
  }

 private:
  /// One gradient and the factors it travels as, which lie in memory that others share.
  struct Compressed {
    at::Tensor matrix;  // [n, m]
    at::Tensor p;       // [n, r]
    at::Tensor q;       // [m, r]
  };

  /// Columns of the factors of a [n, m] gradient; 0 where it travels whole.
  int64_t rank_of(int64_t n, int64_t m) const {
    const int64_t rank = std::min({n, m, options_.matrix_approximation_rank});
    const auto size = static_cast<double>((n + m) * rank);
    return size * options_.min_compression_rate < static_cast<double>(n * m) ? rank : 0;
  }

  void compress(const GradientBucket& bucket, Communicator& ranks) {
    const auto world = static_cast<double>(ranks.world_size());
    at::Tensor given;
    if (options_.use_error_feedback) {
      if (const auto it = errors_.find(bucket.index); it != errors_.end()) bucket.values.add_(it->second);
      given = bucket.values.clone();
    }
    at::Tensor ps;
    at::Tensor& qs = qs_[bucket.index];
    const bool begins = !qs.defined();
    std::vector<at::Tensor> whole;
    std::vector<Compressed> compressed = split(bucket, whole, ps, qs);
    prepare_factors(compressed, begins);
    for (Compressed& one : compressed) one.p.copy_(at::matmul(one.matrix, one.q));
    if (!whole.empty()) {
      std::vector<at::Tensor> flat;
      for (const at::Tensor& gradient : whole) flat.push_back(gradient.reshape(-1));
      const at::Tensor together = at::cat(flat);
      ranks.sum(together);
      together.div_(world);
      int64_t offset = 0;
      for (const at::Tensor& gradient : whole) {
        gradient.copy_(together.slice(0, offset, offset + gradient.numel()).view(gradient.sizes()));
        offset += gradient.numel();
      }
    }
    if (!compressed.empty()) {
      ranks.sum(ps);
      for (Compressed& one : compressed) {
        orthogonalize(one.p, options_.orthogonalization_epsilon);
        one.q.copy_(at::matmul(one.matrix.t(), one.p));
      }
      ranks.sum(qs);
      qs.div_(world);
      for (Compressed& one : compressed) one.matrix.copy_(at::matmul(one.p, one.q.t()));
    }
    if (options_.use_error_feedback) errors_[bucket.index] = given - bucket.values;
    if (!options_.warm_start) qs_.clear();
  }

  /// The gradients to compress, with the memory of their factors; the others go to `whole`.
  std::vector<Compressed> split(const GradientBucket& bucket, std::vector<at::Tensor>& whole, at::Tensor& ps,
                                at::Tensor& qs) const {
    std::vector<Compressed> compressed;
    int64_t p_size = 0;
    int64_t q_size = 0;
    for (const at::Tensor& gradient : bucket.gradients) {
      const at::Tensor matrix = gradient.dim() > 1 ? gradient.view({gradient.size(0), -1}) : gradient.view({-1, 1});
      const int64_t rank = rank_of(matrix.size(0), matrix.size(1));
      if (rank == 0) {
        whole.push_back(gradient);
        continue;
      }
      compressed.push_back({matrix, {}, {}});
      p_size += matrix.size(0) * rank;
      q_size += matrix.size(1) * rank;
    }
    ps = at::empty({p_size}, bucket.values.options());
    if (!qs.defined()) qs = at::empty({q_size}, bucket.values.options());
    int64_t p_offset = 0;
    int64_t q_offset = 0;
    for (Compressed& one : compressed) {
      const int64_t n = one.matrix.size(0);
      const int64_t m = one.matrix.size(1);
      const int64_t rank = rank_of(n, m);
      one.p = ps.slice(0, p_offset, p_offset + n * rank).view({n, rank});
      one.q = qs.slice(0, q_offset, q_offset + m * rank).view({m, rank});
      p_offset += n * rank;
      q_offset += m * rank;
    }
    return compressed;
  }

  void prepare_factors(std::vector<Compressed>& compressed, bool begins) {
    at::Generator generator;
    if (begins) generator = at::detail::createCPUGenerator(static_cast<uint64_t>(seeds_.next()));
    for (Compressed& one : compressed) {
      if (begins) one.q.copy_(at::randn(one.q.sizes(), generator));
      orthogonalize(one.q, options_.orthogonalization_epsilon);
    }
  }

  PowerSGD options_;
  SeedSource seeds_;
  int64_t step_ = 0;
  std::map<int64_t, at::Tensor> errors_;  // by bucket: what compression left out
  std::map<int64_t, at::Tensor> qs_;      // by bucket: the second factors of the last step
};

std::unique_ptr<CommHook> PowerSGD::build(const CommHookInputs&) const { return std::make_unique<PowerSGDHook>(*this); }

}  // namespace

void add_power_sgd(CommHookRegistry& comm_hooks) {
  comm_hooks.add<PowerSGD>("PowerSGD", "gradient matrices are sent as two thin factors: many times fewer bytes");
}

}  // namespace trainrun
