#include <ATen/TensorOperators.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "registry/components/metrics/accumulators.h"
#include "registry/components/metrics/correlations.h"

// Figures of vectors of texts, pairs [N, 2, D] or triplets [N, 3, D].

namespace trainrun {
namespace {

/// As sentence-transformers' EmbeddingSimilarityEvaluator.
struct CosineSpearman {
  static void describe(Fields<CosineSpearman>&) {}
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(2, 2);
    in.require_dims(3, 3, "[N, 2, D]");
    const at::IntArrayRef scores = in.shape(1);
    const bool is_one_each = scores.size() == 1 || (scores.size() == 2 && scores[1] == 1);
    if (in.shape(0)[1] != 2 || !is_one_each) {
      throw LayerError(
          "it compares the cosines of vectors of pairs [N, 2, D] with a score for each, [N] or [N, 1], not " +
          shape_text(in.shape(0)) + " with " + shape_text(scores));
    }
    const auto take = [](const Tensors& inputs) -> Tensors {
      const at::Tensor pairs = inputs[0].to(at::kDouble);
      return {at::cosine_similarity(pairs.select(1, 0), pairs.select(1, 1), 1, 1e-8),
              inputs[1].flatten().to(at::kDouble)};
    };
    const auto finish = [](const Tensors& rows) -> Figures {
      return {{"", rows[0].size(0) == 0 ? NAN : spearman_of(rows[0], rows[1])}};
    };
    const at::Tensor none = at::zeros({0}, at::kDouble);
    return std::make_unique<GatherMetric>(MonitorMode::kMax, Tensors{none, none}, take, finish);
  }
};

struct RecallAtK {
  int64_t k = 10;
  static void describe(Fields<RecallAtK>& f) {
    f.optional("k", &RecallAtK::k).at_least(1).doc("how many of the most similar texts are searched for the positive");
  }
  std::unique_ptr<Metric> build(const MetricInputs& in) const {
    in.require_inputs(1, 2);
    in.require_dims(3, 3, "[N, texts, D]");
    const int64_t texts = in.shape(0)[1];
    if (texts < 2)
      throw LayerError("it needs anchors and positives, [N, 2, D] or more, not " + shape_text(in.shape(0)));
    const auto take = [](const Tensors& inputs) -> Tensors {
      const at::Tensor vectors = inputs[0].to(at::kFloat);
      return {vectors / at::norm(vectors, 2, {2}, /*keepdim=*/true).clamp_min(1e-12)};
    };
    const auto finish = [k = k](const Tensors& rows) -> Figures { return {{"", recall_of(rows[0], k)}}; };
    const Tensors none = {at::zeros({0, texts, in.shape(0)[2]}, at::kFloat)};
    return std::make_unique<GatherMetric>(MonitorMode::kMax, none, take, finish);
  }

 private:
  /// `vectors`: [N, texts, D], of length 1. Some anchors at a time, so that not all cosines are in memory at once.
  static double recall_of(const at::Tensor& vectors, int64_t k) {
    constexpr int64_t kAtOnce = 512;
    const int64_t count = vectors.size(0);
    if (count == 0) return NAN;
    const at::Tensor candidates = vectors.slice(1, 1).flatten(0, 1);
    int64_t found = 0;
    for (int64_t first = 0; first < count; first += kAtOnce) {
      const at::Tensor some = vectors.slice(0, first, std::min(first + kAtOnce, count));
      const at::Tensor cosines = at::matmul(some.select(1, 0), candidates.t());
      const at::Tensor own = (some.select(1, 0) * some.select(1, 1)).sum(1, /*keepdim=*/true);
      constexpr double kRounding = 1e-6;  // the same text may be a candidate twice
      found += cosines.gt(own + kRounding).sum(1).lt(k).sum().item<int64_t>();
    }
    return static_cast<double>(found) / static_cast<double>(count);
  }
};

}  // namespace

void add_sentence_metrics(MetricRegistry& metrics) {
  metrics.add<CosineSpearman>(
      "CosineSpearman",
      "correlation between the ranks of pairs' cosines and of their scores; inputs: vectors [N, 2, D] and scores");
  metrics.add<RecallAtK>("RecallAtK",
                         "share of anchors that have their positive among the k most similar of all positives and "
                         "negatives of the set; reads vectors [N, 2, D] or [N, 3, D]");
}

}  // namespace trainrun
