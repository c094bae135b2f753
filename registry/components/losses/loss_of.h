#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/loss.h"

namespace trainrun {

/// One number from the recipe for each class, as a tensor with the dtype and device of the tensor that it is combined
/// with.
struct ClassWeights : std::optional<std::vector<double>> {
  using std::optional<std::vector<double>>::optional;
  /// [C]; undefined where the recipe gives none.
  at::Tensor like(const at::Tensor& tensor) const;

 private:
  mutable at::Tensor made_;  // the last answer: asked for each step
};

template <>
struct Codec<ClassWeights> : Codec<std::optional<std::vector<double>>> {
  static std::optional<ClassWeights> read(const Value& value, Reader& reader) {
    auto numbers = Codec<std::optional<std::vector<double>>>::read(value, reader);
    if (!numbers) return std::nullopt;
    ClassWeights weights;
    static_cast<std::optional<std::vector<double>>&>(weights) = std::move(*numbers);
    return weights;
  }
};

/// Throws LayerError unless there are as many inputs as `roles` ("output", "target").
void require_roles(const LayerInputs& in, const std::vector<std::string>& roles);
/// The same where roles are no names in themselves: the message has the data's own for the target, and says what the
/// others stand for.
void require_described_roles(const LayerInputs& in, const std::vector<std::string>& roles);
/// Throws LayerError unless all inputs have the first one's shape. Labels (integers) [N] go with an output [N, 1].
void require_alike(const LayerInputs& in, const std::vector<std::string>& roles);
/// `class_dim` counted from the first dimension. Throws LayerError where the output has no such dimension, or it is the
/// batch.
int64_t class_dim_of(at::IntArrayRef output, int64_t class_dim);
/// Throws LayerError unless input 1 holds class indices (int64) [N, …] for an output [N, C, …], C at least the classes
/// that the data is known to have, and `weight`, where given, has C numbers. `class_dim`: what to do where the classes are
/// the last dimension; "": a layer has to move them.
void require_class_indices(const LayerInputs& in, const ClassWeights& weight, const std::string& class_dim = "");
/// Throws LayerError where an output [N, 1, …] has one class, which is certain whatever the model gives: such a loss is 0.
void require_several_classes(const LayerInputs& in);
/// Throws LayerError unless `weight`, where given, is one number or one for each element of the output's last
/// dimension.
void require_last_dim(const LayerInputs& in, const std::string& parameter, const ClassWeights& weight);
/// The same tensors, with labels (integers) as numbers of the first one's dtype and shape.
Tensors with_labels_as_numbers(Tensors inputs);

/// at::Reduction's values, and one of our own.
constexpr int64_t kBatchMean = -1;  // the sum over all elements divided by N

/// What is made of the losses of samples or elements. Not every loss has the last one.
enum class Reduction { kMean, kSum, kBatchMean };
template <>
struct Words<Reduction> {
  static constexpr std::array kWords = {"mean", "sum", "batchmean"};
};
/// As formulas take it.
constexpr int64_t number_of(Reduction reduction) {
  constexpr std::array<int64_t, 3> kNumbers = {at::Reduction::Mean, at::Reduction::Sum, kBatchMean};
  return kNumbers[static_cast<size_t>(reduction)];
}

/// What a formula says unless it says otherwise: two inputs.
struct AlikeInputs {
  static std::vector<std::string> roles() { return {"output", "target"}; }
  static std::vector<std::string> reductions() { return {"mean", "sum"}; }
  static constexpr bool kLabelsAsNumbers = true;
  static constexpr auto kTarget = LossFacts::Target::kUnsaid;
};
/// Class indices against [N, C, …].
struct ClassInputs : AlikeInputs {
  static constexpr bool kLabelsAsNumbers = false;
  static constexpr auto kTarget = LossFacts::Target::kClasses;
};

/// Sets which class indices `in` may have, if these are the second input, for an output whose classes are in
/// `class_dim`.
void set_classes(const LayerInputs& in, int64_t class_dim, std::optional<int64_t> ignore_index, LossFacts& facts);

/// The loss that `Formula` computes. It adds `reduction`, which all have, and the checks of the inputs. A formula has
///   static void describe(auto& fields)                                       its parameters
///   at::Tensor operator()(const Tensors& inputs, int64_t reduction) const    most often one call of ATen
/// and what AlikeInputs has. Its inputs must be alike in shape, or
///   void require(const LayerInputs& in, const std::vector<std::string>& roles) const
/// throws LayerError where they do not fit. With inputs that may be left out it has
///   static std::vector<std::string> roles_of(size_t num_inputs)
/// with rules between its parameters and `reduction`
///   static void describe_rules(auto& fields)
/// and with more to say of itself than kTarget and whether it sums
///   void say(const LayerInputs& in, LossFacts& facts) const
template <class Formula>
struct LossOf : Formula {
  Reduction reduction = Reduction::kMean;

  static void describe(Fields<LossOf>& f) {
    Formula::describe(f);
    f.optional("reduction", &LossOf::reduction)
        .one_of(Formula::reductions())
        .doc(Formula::reductions().size() == 2 ? "how the losses of samples or elements are reduced to one number; "
                                                 "sums add up over accumulated batches and ranks, as in PyTorch"
                                               : "batchmean: the sum over all elements divided by the batch's size");
    if constexpr (requires { Formula::describe_rules(f); }) Formula::describe_rules(f);
  }
  LossFacts facts(const LayerInputs& in) const {
    LossFacts facts;
    facts.target = Formula::kTarget;
    if constexpr (requires(const Formula& formula) { formula.say(in, facts); }) Formula::say(in, facts);
    facts.sums = reduction == Reduction::kSum;
    if (reduction != Reduction::kMean) facts.counted.reset();
    return facts;
  }
  Loss build(const LayerInputs& in) const {
    auto roles = Formula::roles();
    if constexpr (requires { Formula::roles_of(size_t{}); }) roles = Formula::roles_of(in.examples.size());
    require_described_roles(in, roles);
    if constexpr (requires(const Formula& formula) { formula.require(in, roles); }) {
      Formula::require(in, roles);
    } else {
      require_alike(in, roles);
    }
    return {nullptr,
            [formula = static_cast<const Formula&>(*this), kind = number_of(reduction)](const Tensors& inputs) {
              return Formula::kLabelsAsNumbers ? formula(with_labels_as_numbers(inputs), kind) : formula(inputs, kind);
            }};
  }
};

}  // namespace trainrun
