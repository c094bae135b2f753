#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"

namespace trainrun {

/// Several data sets as one, sample after sample: those of the first, then those of the second, …. Their fields and
/// classes must be alike, but for texts, of which some may be filled up and others not (mixed_texts.h). The first one learns; the others are read as it says.
class JoinedDatasets : public Dataset {
 public:
  /// `name`: of the data set that joins them, for messages.
  JoinedDatasets(std::string name, std::vector<std::unique_ptr<Dataset>> parts)
      : name_(std::move(name)), parts_(std::move(parts)) {}

  DatasetInfo info() const override;
  void open() override;
  int64_t size() const override { return starts_.back(); }
  Batch get(const at::Tensor& indices) const override;
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override;
  void learn(const at::Tensor& indices) override;
  nlohmann::json learnt() const override { return parts_[0]->learnt(); }
  void set_learnt(const nlohmann::json& state) override;
  at::Tensor column(const std::string& field) const override;

  DatasetFacts facts() const override;
  void set_inferred(const nlohmann::json& inferred) override { parts_[0]->set_inferred(inferred); }

 protected:
  const std::vector<std::unique_ptr<Dataset>>& parts() const { return parts_; }
  bool is_open() const { return starts_.size() > 1; }
  /// The number of the first sample of part `part`; of what follows the last part where `part` is their number.
  int64_t start_of(size_t part) const { return starts_[part]; }

 private:
  void read_alike() const;
  at::Tensor held(const std::string& field) const;
  std::string place(int64_t index, const std::string& field) const;
  std::string stored(int64_t index) const;
  std::vector<std::string> texts(const std::string& column) const;
  at::Tensor lengths() const;
  std::vector<std::string> notes() const;
  std::string disorder(const std::optional<std::string>& group) const;
  std::vector<int64_t> series_starts() const;
  std::vector<DatasetFacts::Hole> holes(const std::string& column) const;
  void require_same_classes() const;
  void set_rest();
  size_t part_of(int64_t index) const;
  at::Tensor places_in(const at::Tensor& indices, size_t part) const;
  template <class Get>
  Batch gather(const at::Tensor& indices, const Get& get) const;

  std::string name_;
  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<int64_t> starts_ = {0};
  DatasetInfo joined_;  // of all, once they are open
};

/// What is wrong where data sets that are to be joined do not name one tokenizer; "" where nothing is.
std::string tokenizers_fault(const std::vector<const Component<DatasetKind>*>& data);

}  // namespace trainrun
