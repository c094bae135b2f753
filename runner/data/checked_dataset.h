#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/kinds/loss.h"

namespace trainrun {

/// A field of the batch that something reads as indices.
struct IndexUse {
  std::string field;
  IndexRange range;
  Place place;  // of the reader
  std::string path;
  std::string type;
  bool is_label = false;                        // a loss reads it
  std::optional<size_t> output = std::nullopt;  // the slot of the graph whose classes such labels are
  // The recipe's parameter that says how many there may be: "model.layers[2].out_features"; or "".
  std::string width = {};
  // How many classes the data set says that the field has, where the reader takes more.
  std::optional<int64_t> declared = std::nullopt;

  /// What a value may be.
  IndexRange allowed() const;
};

/// Another data set, whose samples can be checked as they are made.
class CheckedDataset : public Dataset {
 public:
  explicit CheckedDataset(std::unique_ptr<Dataset> base) : base_(std::move(base)) {}
  /// From now on `get` throws DataError, with the sample's place, where a field is not what `uses` need.
  void check(std::vector<IndexUse> uses) { uses_ = std::move(uses); }

  DatasetInfo info() const override { return base_->info(); }
  void open() override { base_->open(); }
  int64_t size() const override { return base_->size(); }
  Batch get(const at::Tensor& indices) const override { return checked(base_->get(indices), indices); }
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override {
    return checked(base_->get_drawn(indices, draws), indices);
  }
  void learn(const at::Tensor& indices) override { base_->learn(indices); }
  nlohmann::json learnt() const override { return base_->learnt(); }
  void set_learnt(const nlohmann::json& state) override { base_->set_learnt(state); }
  at::Tensor column(const std::string& field) const override { return base_->column(field); }
  at::Tensor sampling_weights() const override { return base_->sampling_weights(); }
  DatasetFacts facts() const override { return base_->facts(); }
  void set_inferred(const nlohmann::json& inferred) override { base_->set_inferred(inferred); }

 private:
  Batch checked(Batch batch, const at::Tensor& indices) const;

  std::unique_ptr<Dataset> base_;
  std::vector<IndexUse> uses_;
};

/// Throws DataError, with the sample's place, if a value of `values` ([N, …] integers, those of the samples `samples`;
/// undefined: 0 to N - 1) is not what `use` needs.
void check_values(const IndexUse& use, const Dataset& data, const at::Tensor& values, const at::Tensor& samples);

}  // namespace trainrun
