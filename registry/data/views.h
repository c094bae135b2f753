#pragma once

#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "registry/data/partition.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"

namespace trainrun {

/// Some samples of another data set, in an order of their own.
class DatasetView : public Dataset {
 public:
  /// Samples `indices` ([n] int64) of `base`, which is open.
  DatasetView(std::shared_ptr<Dataset> base, at::Tensor indices);

  DatasetInfo info() const override;
  void open() override {}
  int64_t size() const override { return indices_.numel(); }
  Batch get(const at::Tensor& indices) const override;
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override;
  void learn(const at::Tensor& indices) override;
  nlohmann::json learnt() const override { return base_->learnt(); }
  void set_learnt(const nlohmann::json& state) override { base_->set_learnt(state); }
  at::Tensor column(const std::string& field) const override;
  DatasetFacts facts() const override { return base_->facts().of_samples(indices_); }
  void set_inferred(const nlohmann::json& inferred) override { base_->set_inferred(inferred); }
  at::Tensor sampling_weights() const override;

 protected:
  std::shared_ptr<Dataset> base_;
  at::Tensor indices_;  // undefined until it is open
};

/// Throws DataError where `data`, which are within another data set `outer`, draw their samples themselves.
void require_all_drawn(const Dataset& data, const std::string& outer);
/// Throws DataError where not even the numbers of so many samples, 8 bytes each, fit into this machine's memory.
void require_countable(int64_t num_samples);

/// Which samples of a data set of `size` samples: [n] int64.
using Selection = std::function<at::Tensor(int64_t size)>;
/// What a choice does to the order of samples: see DatasetFacts::disorder.
struct Disorder {
  std::string fault;                 // "": nothing
  std::optional<std::string> group;  // by this column it does nothing
};
/// The samples of `base` that `choose` chooses; `base` is opened with it. `choose` throws DataError where it cannot.
std::unique_ptr<Dataset> choose_samples(std::unique_ptr<Dataset> base, Selection choose, Disorder disorder = {});
/// The same where the choice depends on what the samples hold: `choose` gets `base`, open. Their number is not known
/// before.
using SelectionByValue = std::function<at::Tensor(const Dataset& base)>;
std::unique_ptr<Dataset> choose_by_value(std::unique_ptr<Dataset> base, SelectionByValue choose,
                                         Disorder disorder = {});

/// `split: {fractions: [0.8, 0.2], seed: 0, part: train}`
struct SplitOptions : PartitionBy {
  std::vector<double> fractions = {0.8, 0.2};
  int64_t seed = 0;
  std::variant<int64_t, std::string> part = std::string("train");
  bool shuffle = true;

  static void describe(Fields<SplitOptions>& f) { describe_into(f); }
  template <class T>
  static void describe_into(Fields<T>& f);
  void check(Checker& checker) const;
  /// The part's number, from 0.
  size_t number() const;
  /// The part's samples, as torch.utils.data.random_split(range(size), fractions, generator seeded `seed`) gives them;
  /// without `shuffle` in the data's order.
  at::Tensor choose(int64_t size) const;
  /// The part of `data`.
  std::unique_ptr<Dataset> part_of(std::unique_ptr<Dataset> data) const;

 private:
  Disorder disorder() const;
  /// Samples in each part.
  std::vector<int64_t> lengths(int64_t size) const;
};

template <class T>
void SplitOptions::describe_into(Fields<T>& f) {
  f.optional("fractions", &SplitOptions::fractions)
      .greater_than(0)
      .at_most(1)
      .doc("share of the samples in each part; their sum is 1");
  f.optional("seed", &SplitOptions::seed).at_least(0).doc("seed of the draw; the same for all parts");
  f.optional("part", &SplitOptions::part)
      .at_least(0)
      .one_of({"train", "validation", "test"})
      .doc("which part this is: its number from 0; or train (the first), validation (the second) or test (the last)");
  f.optional("shuffle", &SplitOptions::shuffle)
      .doc("draw the parts at random; if false they follow each other, such as past and future");
  f.optional("stratify", &SplitOptions::stratify).doc("each part has its share of every class of the target");
  f.optional("group", &SplitOptions::group)
      .doc(
          "samples with the same value in this column, such as a patient, stay in one part: a field, a column of the "
          "file, or, for image files, folder: the name of the folder that contains the file");
}

/// Fold number `fold` (from 0) of `num_folds`: the samples to evaluate on, or those to train on, ascending. The folds
/// are those of scikit-learn's KFold over torch.randperm(size) of a generator seeded `seed`.
at::Tensor fold_samples(int64_t size, int64_t fold, int64_t num_folds, uint64_t seed, bool training);

/// A fold as a recipe asks for it; `by`: stratified, grouped.
struct Fold {
  int64_t number = 0;
  int64_t count = 2;
  PartitionBy by;
};
/// The samples of `data`, which is open, to evaluate on, or those to train on: [n] int64, ascending.
at::Tensor fold_samples_of(const Dataset& data, const Fold& fold, uint64_t seed, bool training);
/// The same as a data set.
std::unique_ptr<Dataset> fold_of(std::unique_ptr<Dataset> data, const Fold& fold, uint64_t seed, bool training);

}  // namespace trainrun
