#include "runner/data/known_dataset.h"

#include <memory>
#include <utility>

#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "runner/data/data_contract.h"
#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

enum class Asked { kNever, kFirst };  // the data themselves

class KnownDataset : public Dataset {
 public:
  KnownDataset(std::unique_ptr<Dataset> base, std::shared_ptr<const DataContract> known, Asked asked)
      : base_(std::move(base)), known_(std::move(known)), asked_(asked) {}

  DatasetInfo info() const override {
    if (is_open_) return base_->info();
    if (asked_ == Asked::kNever) return known_->info();
    try {
      return base_->info();
    } catch (const DataError&) {  // which `open` will say again
      return known_->info();
    }
  }
  void open() override {
    base_->open();
    is_open_ = true;
  }
  int64_t size() const override { return base_->size(); }
  Batch get(const at::Tensor& indices) const override { return base_->get(indices); }
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override {
    return base_->get_drawn(indices, draws);
  }
  void learn(const at::Tensor& indices) override { base_->learn(indices); }
  nlohmann::json learnt() const override { return base_->learnt(); }
  void set_learnt(const nlohmann::json& state) override { base_->set_learnt(state); }
  at::Tensor column(const std::string& field) const override { return base_->column(field); }
  at::Tensor sampling_weights() const override { return base_->sampling_weights(); }
  /// Until the training data are opened, the names in their fields are those that are known.
  DatasetFacts facts() const override {
    DatasetFacts facts = base_->facts();
    if (is_open_ || asked_ != Asked::kNever) return facts;
    facts.field = [known = known_](const std::string& name) {
      FieldFacts of_field;
      const FieldContract* field = known->field(name);
      if (!field) return of_field;
      of_field.class_names = field->class_names;
      of_field.names_within = field->names_within;
      of_field.one_hot_names = field->one_hot_names;
      of_field.called = field->called;
      of_field.palette = field->palette;
      return of_field;
    };
    return facts;
  }
  void set_inferred(const nlohmann::json& inferred) override { base_->set_inferred(inferred); }

 private:
  std::unique_ptr<Dataset> base_;
  std::shared_ptr<const DataContract> known_;
  Asked asked_;
  bool is_open_ = false;
};

void wrap(Component<DatasetKind>& component, const std::shared_ptr<const DataContract>& known, Asked asked) {
  component.build = [build = std::move(component.build), known, asked](const DatasetInputs& inputs) {
    return std::make_unique<KnownDataset>(build(inputs), known, asked);
  };
}

}  // namespace

void use_known_fields(DatasetSection& section, const DataContract& contract) {
  const auto known = std::make_shared<const DataContract>(contract);
  wrap(section.train, known, Asked::kNever);
  if (!section.eval) return;
  for (EvalSets::One& set : section.eval->sets) wrap(set.data, known, Asked::kFirst);
}

}  // namespace trainrun
