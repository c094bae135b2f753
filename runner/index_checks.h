#pragma once

#include "registry/datasets/data_details.h"
#include "registry/index_range.h"
#include "runner/model.h"

namespace trainrun {

/// A field of the batch that something reads as indices.
struct IndexUse {
  std::string field;
  IndexRange range;
  Place place;  // of the reader
  std::string path;
  std::string type;
  bool is_label = false;  // a loss reads it
};

/// Another data set, whose samples can be checked as they are made.
class CheckedDataset : public Dataset, public DetailedDataset {
 public:
  explicit CheckedDataset(std::unique_ptr<Dataset> base) : base_(std::move(base)) {}
  /// From now on `get` throws DataError, with the sample's place, where a field is not what `uses` need.
  void check(std::vector<IndexUse> uses) { uses_ = std::move(uses); }

  DatasetInfo info() const override { return base_->info(); }
  void open() override { base_->open(); }
  int64_t size() const override { return base_->size(); }
  Batch get(const at::Tensor& indices) const override;
  void learn(const at::Tensor& indices) override { base_->learn(indices); }
  nlohmann::json learnt() const override { return base_->learnt(); }
  void set_learnt(const nlohmann::json& state) override { base_->set_learnt(state); }
  at::Tensor column(const std::string& field) const override { return base_->column(field); }
  at::Tensor sampling_weights() const override { return base_->sampling_weights(); }
  at::Tensor held(const std::string& field) const override { return held_field(*base_, field); }
  std::string place(int64_t index, const std::string& field) const override {
    return place_of_sample(*base_, index, field);
  }
  std::vector<std::string> names_within(const std::string& field) const override {
    return names_within_field(*base_, field);
  }
  nlohmann::json inferred() const override { return inferred_of(*base_); }
  void set_inferred(const nlohmann::json& inferred) override { read_as_inferred(*base_, inferred); }

 private:
  std::unique_ptr<Dataset> base_;
  std::vector<IndexUse> uses_;
};

/// The fields that losses read as class indices, and Embedding and EmbeddingBag as theirs, straight from batches of
/// `info`.
std::vector<IndexUse> index_uses(const Recipe& recipe, const Graph& graph, const DatasetInfo& info);

/// Throws RecipeError where what is known of the data before it is read says that indices will be too large: a
/// `vocab_size` above an Embedding's num_embeddings.
void check_known_indices(const Recipe& recipe, const Graph& graph, const DatasetInfo& info);

/// Checks that labels and indices are what the model can use: at once what lies in memory, the rest sample by sample as
/// `data` gives them. `info`: the fields that reach the model. Throws DataError with the sample's place.
void check_indices(const Recipe& recipe, const Graph& graph, Dataset& data, const DatasetInfo& info);

}  // namespace trainrun
