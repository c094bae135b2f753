#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "registry/components/metrics/accumulators.h"

namespace trainrun {
namespace {

using Labels = std::vector<int64_t>;

/// Levenshtein's distance: how many labels must be put in, left out or changed.
int64_t edit_distance(const Labels& a, const Labels& b) {
  Labels row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t corner = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t changed = corner + (a[i] == b[j] ? 0 : 1);
      corner = row[j + 1];
      row[j + 1] = std::min({changed, corner + 1, row[j] + 1});
    }
  }
  return row.back();
}

/// Source: Graves et al. 2006, "Connectionist Temporal Classification", section 2.1 (label error rate), with best path
/// decoding (section 3.2).
struct CTCErrorRate {
  int64_t blank = 0;
  bool batch_first = false;

  static void describe(Fields<CTCErrorRate>& f) {
    f.optional("blank", &CTCErrorRate::blank).at_least(0).doc("index of the blank class");
    f.optional("batch_first", &CTCErrorRate::batch_first).doc("the output is [N, T, C], not [T, N, C]");
  }

  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(3, 3);
    in.require_dims(3, 3, batch_first ? "[N, T, C]" : "[T, N, C]");
    if (blank >= in.shape(0)[2]) {
      throw LayerError("blank is " + std::to_string(blank) + ", the output has " + std::to_string(in.shape(0)[2]) +
                       " classes");
    }
    for (const size_t i : {size_t{1}, size_t{2}}) {
      const bool fits = in.examples[i].scalar_type() == at::kLong && in.shape(i).size() == 3 - i;
      if (!fits) {
        throw LayerError(i == 1 ? "the targets are labels (int64) [N, S]" : "the target lengths are int64, [N]");
      }
    }
    const auto add = [own = *this](const Tensors& inputs) { return own.count(inputs); };
    const auto finish = [](const std::vector<double>& sums) -> Figures { return {{"", mean_of(sums)}}; };
    return std::make_unique<SumMetric>(MonitorMode::kMin, std::vector<int64_t>{2}, add, finish);
  }

  /// Wrong labels, and how many labels there are: [2] float64.
  at::Tensor count(const Tensors& inputs) const {
    const at::Tensor output = batch_first ? inputs[0] : inputs[0].transpose(0, 1);
    if (output.is_meta()) return at::zeros({2}, at::kDouble);
    const at::Tensor best = output.argmax(2).to(at::kCPU).contiguous();
    const at::Tensor targets = inputs[1].to(at::kCPU).contiguous();
    const at::Tensor lengths = inputs[2].to(at::kCPU).contiguous();
    int64_t wrong = 0;
    int64_t total = 0;
    for (int64_t n = 0; n < best.size(0); ++n) {
      const int64_t* labels = targets.const_data_ptr<int64_t>() + n * targets.size(1);
      const int64_t length = lengths.const_data_ptr<int64_t>()[n];
      if (length < 0 || length > targets.size(1)) {
        throw DataError("CTCErrorRate: a target of " + std::to_string(length) + " labels, but there is room for " +
                        std::to_string(targets.size(1)));
      }
      wrong += edit_distance(decoded(best.const_data_ptr<int64_t>() + n * best.size(1), best.size(1)),
                             Labels(labels, labels + length));
      total += length;
    }
    return at::tensor({static_cast<double>(wrong), static_cast<double>(total)}, at::kDouble);
  }

  /// Best path: of each run of one label one, without blanks.
  Labels decoded(const int64_t* best, int64_t steps) const {
    Labels labels;
    for (int64_t t = 0; t < steps; ++t) {
      if (best[t] != blank && (t == 0 || best[t] != best[t - 1])) labels.push_back(best[t]);
    }
    return labels;
  }
};

}  // namespace

void add_sequence_metrics(MetricRegistry& metrics) {
  metrics.add<CTCErrorRate>("CTCErrorRate",
                            "wrong, missing and superfluous labels of best path decoding, per label of the targets; "
                            "inputs: [output, targets, target_lengths]");
}

}  // namespace trainrun
