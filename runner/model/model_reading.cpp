// What the losses and metrics of a model read.
#include "runner/model/model.h"

namespace trainrun {

std::vector<size_t> Model::loss_slots(size_t i) const {
  std::vector<size_t> slots;
  for (const Source& source : losses_[i].sources) {
    if (source.field.empty() && !source.role) slots.push_back(outputs_[source.graph_output]);
  }
  return slots;
}

Tensors Model::loss_inputs(size_t i, const Batch& batch, const Tensors& outputs) const {
  Tensors inputs;
  for (const Source& source : losses_.at(i).sources) {
    inputs.push_back(source.role            ? at::Tensor()
                     : source.field.empty() ? outputs[source.graph_output]
                                            : batch.at(source.field));
  }
  return inputs;
}

std::string Model::loss_target(size_t i) const {
  const std::vector<Source>& sources = losses_.at(i).sources;
  return sources.size() > 1 && !sources[1].role ? sources[1].field : "";
}

Tensors Model::metric_inputs(size_t i, const Batch& batch, const Tensors& outputs) const {
  const std::vector<Source>& sources = metric_sources_[i];
  Tensors inputs = gather(sources, batch, outputs);
  const bool compares = sources.size() > 1 && !sources[1].role && !sources[1].field.empty();
  const auto scaling = compares ? scalings_.find(sources[1].field) : scalings_.end();
  if (scaling == scalings_.end()) return inputs;
  for (size_t k : {size_t{0}, size_t{1}}) inputs[k] = in_units(scaling->second, inputs[k]);
  return inputs;
}

void Model::note_bfloat16_readers() {
  enum class Readers { kNone, kTake, kRefuse };
  std::vector<Readers> readers(outputs_.size(), Readers::kNone);
  for (const WeightedLoss& loss : losses_) {
    for (size_t i = 0; i < loss.sources.size(); ++i) {
      if (!loss.sources[i].field.empty() || loss.sources[i].role) continue;
      Readers& own = readers[loss.sources[i].graph_output];
      const bool takes = i == 0 && loss.facts.takes_bfloat16 && own != Readers::kRefuse;
      own = takes ? Readers::kTake : Readers::kRefuse;
    }
  }
  for (const Readers& own : readers) is_read_as_bfloat16_.push_back(own == Readers::kTake);
}

Tensors Model::gather(const std::vector<Source>& sources, const Batch& batch, const Tensors& outputs) const {
  Tensors tensors;
  for (const Source& source : sources) {
    if (source.role) {
      tensors.push_back(roles_->run(*source.role, batch));
    } else {
      tensors.push_back(source.field.empty() ? outputs[source.graph_output] : batch.at(source.field));
    }
  }
  return tensors;
}

}  // namespace trainrun
