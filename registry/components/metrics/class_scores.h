#pragma once

#include <ATen/core/Tensor.h>

#include "registry/kinds/metric.h"

namespace trainrun {

/// How metrics of classes read [output, labels]:
///   several classes: logits [N, C, …], or with the classes in `class_dim`, and class indices [N, …];
///   several labels: logits and labels 0 or 1, of any dtype, both [N, L] or [N, L, H, W], L above 1; of three dimensions
///   only where `class_dim` is not 1;
///   binary: one logit for each label otherwise, [N, …] or [N, 1, …], and labels 0 or 1, [N, …] or [N, 1, …].
class ClassScores {
 public:
  /// Throws LayerError where the two inputs are neither.
  ClassScores(const LayerInputs& in, int64_t ignore_index, int64_t class_dim = 1);

  /// Labels that count, and their scores.
  struct Rows {
    at::Tensor scores;  // [n, C]; binary: [n]
    at::Tensor labels;  // [n] int64
  };
  /// Throws Error where a label is no class. Several labels are read one after the other, as one label of each.
  Rows read(const Tensors& inputs) const;

  /// Of samples with several labels.
  struct LabelRows {
    at::Tensor scores;   // [n, L]
    at::Tensor labels;   // [n, L] int64; 0 where they do not count
    at::Tensor counted;  // [n, L] bool
  };
  /// Throws Error where a label is not 0 or 1.
  LabelRows read_labels(const Tensors& inputs) const;
  /// The class with the largest score (the first of them); binary: 1 where the score is above the threshold. [n] int64
  static at::Tensor predicted(const Rows& rows, double threshold);
  /// Probabilities in float64, [n, C]; binary: [n]. `from_logits`: by softmax or sigmoid, else they are that already.
  static at::Tensor probabilities(const Rows& rows, bool from_logits);

  bool is_binary() const { return is_binary_; }         // also with several labels
  int64_t num_classes() const { return num_classes_; }  // 2 if binary
  int64_t num_labels() const { return num_labels_; }    // of a sample, where it has several; else 0

 private:
  bool is_binary_ = false;
  int64_t num_labels_ = 0;
  int64_t num_classes_ = 2;
  int64_t ignore_index_;
  int64_t class_dim_;
};

/// Parameters that most of them have.
struct ClassMetric {
  int64_t ignore_index = -100;
  int64_t class_dim = 1;
  static void describe(auto& f) {
    f.optional("ignore_index", &ClassMetric::ignore_index).doc("targets with this value are ignored");
    f.optional("class_dim", &ClassMetric::class_dim)
        .doc("the output's dimension that holds the classes; -1 for [N, T, C] against [N, T]");
  }
};
struct ThresholdMetric : ClassMetric {
  double threshold = 0;
  static void describe(auto& f) {
    ClassMetric::describe(f);
    f.optional("threshold", &ThresholdMetric::threshold)
        .doc("for a model with one output: class 1 is above this; 0 for logits, 0.5 for probabilities");
  }
};
struct ProbabilityMetric : ClassMetric {
  bool from_logits = true;
  static void describe(auto& f) {
    ClassMetric::describe(f);
    f.optional("from_logits", &ProbabilityMetric::from_logits).doc("false: the output is probabilities already");
  }
};

}  // namespace trainrun
