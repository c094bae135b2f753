#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/loss.h"
#include "registry/kinds/unlabelled_data.h"
#include "runner/data/data_contract.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// A column of predictions, a value for each sample. In CSV it has its own name ("p(ant)"); in JSON lines a column of a
/// group is the entry `key` of an object ({"probabilities": {"ant": 0.9}}).
struct ResultColumn : ValueColumn {
  std::string group = {};  // "": it is of none
  std::string key = {};
};
using ResultColumns = std::vector<ResultColumn>;

/// What a user chose.
struct OutcomeOptions {
  std::optional<int64_t> top_k;     // classes a sample
  std::optional<double> threshold;  // from which probability on a sample has a label, of several; null: 0.5
  std::string masks;                // the folder that masks are written into
};

/// By what an outcome is chosen and made.
struct OutcomeInputs {
  const Recipe& recipe;
  const DataContract& contract;
  const OutcomeOptions& options;
  /// What the loss compares the output with; null: that is no field of the data.
  const FieldContract* target = nullptr;
  LossFacts loss = {};
  std::string loss_type = {};
  /// Whether the output is the logarithm of what it predicts (PoissonNLLLoss's log_input).
  bool is_logarithm = false;
  /// Of which the output's last dimension gives each; empty: of none.
  std::vector<double> quantiles = {};
  /// Examples of what the loss reads: its output [N, …] first. Undefined: the target, and what frozen models give.
  Tensors outputs = {};
  /// The dimension of the output [N, T, C] that holds classes, as the loss has it, and whether the batches tell which
  /// token is of which word (TaggedTexts).
  int64_t class_dim = 1;
  bool has_words = false;
  /// How many rows of predictions a sample has: the steps of a forecast.
  int64_t rows_per_sample = 1;
  /// Files and folders that the user named.
  std::vector<std::string> roots = {};

  const at::Tensor& output() const { return outputs.at(0); }
};

/// What is known of the samples of a batch.
struct PredictedBatch {
  const Batch& batch;
  /// What the loss reads, on the CPU: its output [N, …] first; as in OutcomeInputs.
  const Tensors& outputs;
  /// What each sample is called, where wants_names: the path of a picture, "people.csv:17".
  const std::vector<std::string>& names;
};

/// What outputs mean.
class Outcome {
 public:
  virtual ~Outcome() = default;
  /// Columns of a batch's predictions, the same ones each time, with a value for each row of each sample. Throws Error.
  virtual ResultColumns columns(const PredictedBatch& batch) = 0;
  virtual bool wants_names() const { return false; }
  /// Whether what a user chose makes a difference.
  virtual bool uses_top_k() const { return false; }
  virtual bool uses_threshold() const { return false; }
};

/// That of a model's outputs, by the first that fits on the page of outcomes. Throws Error where none does.
std::unique_ptr<Outcome> make_outcome(const OutcomeInputs& inputs);

// The page of outcomes: each returns null for what it is not for.
std::unique_ptr<Outcome> make_mask_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_tag_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_vector_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_reward_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_label_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_class_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_quantile_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_number_outcome(const OutcomeInputs& inputs);
std::unique_ptr<Outcome> make_raw_outcome(const OutcomeInputs& inputs);

/// The names of the `count` classes that the model's output has: those of the training data, and, where the output has
/// more, "LABEL_7", as an exported model calls them. Throws Error where it has fewer.
std::vector<std::string> names_of_classes(const FieldContract& target, int64_t count);

/// What `count` predicted numbers of a row are called: as the target's columns, or by its one name.
std::vector<std::string> names_of_numbers(const FieldContract& target, int64_t count);

/// Probabilities [N, …] float64 of outputs that say `kind`; `of_logits` makes them of logits.
template <class OfLogits>
at::Tensor probabilities_of(LossFacts::Scores kind, const at::Tensor& outputs, const OfLogits& of_logits) {
  const at::Tensor scores = outputs.to(at::kDouble);
  if (kind == LossFacts::Scores::kLogits) return of_logits(scores);
  return kind == LossFacts::Scores::kLogProbabilities ? scores.exp() : scores;
}

}  // namespace trainrun
