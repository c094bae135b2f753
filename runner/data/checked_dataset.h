#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "registry/data/data_details.h"
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
  Batch get(const at::Tensor& indices) const override { return checked(base_->get(indices), indices); }
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override {
    return checked(base_->get_drawn(indices, draws), indices);
  }
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
  std::vector<std::string> notes() const override { return notes_of(*base_); }
  std::vector<std::string> texts(const std::string& column) const override { return texts_of(*base_, column); }
  std::vector<std::string> class_names(const std::string& field) const override {
    return class_names_of(*base_, field);
  }
  OwnOrder own_order() const override { return own_order_of(*base_); }
  bool draws_itself() const override { return trainrun::draws_itself(*base_); }
  std::optional<int64_t> num_drawn() const override { return num_drawn_of(*base_); }
  std::optional<int64_t> padding(const std::string& field) const override { return padding_of(*base_, field); }
  const ImageOptions* image_options() const override { return image_options_of(*base_); }
  std::string stored(int64_t index) const override { return stored_sample(*base_, index); }
  std::string renumbering(const std::string& field) const override { return renumbering_of(*base_, field); }
  nlohmann::json inferred() const override { return inferred_of(*base_); }
  void set_inferred(const nlohmann::json& inferred) override { read_as_inferred(*base_, inferred); }

 private:
  Batch checked(Batch batch, const at::Tensor& indices) const;

  std::unique_ptr<Dataset> base_;
  std::vector<IndexUse> uses_;
};

/// Throws DataError, with the sample's place, if a value of `values` ([N, …] integers, those of the samples `samples`;
/// undefined: 0 to N - 1) is not what `use` needs.
void check_values(const IndexUse& use, const Dataset& data, const at::Tensor& values, const at::Tensor& samples);

}  // namespace trainrun
