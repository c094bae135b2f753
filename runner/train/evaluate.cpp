// Loss and metrics over a set of evaluation data.
#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>

#include "registry/kinds/metric_details.h"
#include "registry/language/figure_name.h"
#include "registry/tensors/component_error.h"
#include "runner/model/figures.h"
#include "runner/train/loss_figures.h"
#include "runner/train/step_errors.h"
#include "runner/train/train_loop.h"

namespace trainrun {
namespace {

/// Brings what ranks measured on their samples together.
void merge_over_ranks(ProcessGroup& group, const std::vector<std::unique_ptr<Metric>>& metrics) {
  for (const auto& metric : metrics) {
    std::vector<at::Tensor> sums = metric->sums();
    for (at::Tensor& sum : sums) sum = sum.contiguous().clone();
    group.sum(sums, "evaluation");
    metric->set_sums(sums);
    std::vector<at::Tensor> rows = metric->gathered();
    for (at::Tensor& own : rows) own = group.gather_rows(own.contiguous(), "evaluation");
    metric->set_gathered(rows);
  }
}

/// Says what metrics leave out of their figures, once for each sentence where `told` keeps them.
void tell_left_out(const Recipe& recipe, const std::vector<std::unique_ptr<Metric>>& metrics,
                   const EvaluationControl& control) {
  if (control.group.rank() != 0) return;
  const std::vector<std::string> names = figure_names(recipe.metrics);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const std::string text = left_out_of(*metrics[i]);
    if (text.empty()) continue;
    const std::string said = control.prefix + "/" + names[i] + ": " + text;
    if (!control.told || control.told->insert(said).second) spdlog::warn(said);
  }
}

/// Parameters that are sharded, and layers that span ranks, need every rank in every forward pass: a rank that has
/// fewer batches than others makes as many passes, of which nothing is counted.
void keep_pace(const Predictor::Forward& forward, const DataLoader& loader, Occasion occasion) {
  for (; occasion.batch < loader.most_batches(); ++occasion.batch) {
    named("the evaluation", occasion, [&] { forward(loader.surplus_batch()); });
  }
}

}  // namespace

std::optional<Figures> evaluate(const Recipe& recipe, Model& model, const DataLoader& loader,
                                const std::vector<std::unique_ptr<Metric>>& metrics, const EvaluationControl& control) {
  const at::NoGradGuard no_gradients;
  model.train(false);
  for (const auto& metric : metrics) metric->reset();
  EvaluatedLosses losses(model);
  const Predictor::Forward forward = [&](const Batch& batch) {
    const Predictor::Forward pass = [&](const Batch& given) {
      const auto run = [&] { return model.forward(given); };
      return control.watch ? control.watch->around(run) : run();
    };
    return control.scope ? control.scope->predict(batch, pass) : pass(batch);
  };
  const auto batches = loader.iterate(0);
  Occasion occasion{Occasion::Phase::kEvaluation, control.step, 0, 0};
  for (;; ++occasion.batch) {
    if (control.gives_up && occasion.batch < loader.fewest_batches() && control.gives_up()) return std::nullopt;
    const auto batch = named("making a batch", occasion, [&] { return batches->next(); });
    if (!batch) break;
    named("the evaluation", occasion, [&] {
      const Tensors outputs = forward(*batch);
      losses.add(model.loss(*batch, outputs, LossUse::kEvaluation), batch->size());
      for (size_t i = 0; i < metrics.size(); ++i) {
        const Tensors inputs = model.metric_inputs(i, *batch, outputs);
        as_component(name_of(recipe.metrics[i]), inputs, [&] { metrics[i]->update(inputs); });
      }
    });
  }
  keep_pace(forward, loader, occasion);
  const std::vector<double> values = losses.figures(control.group);
  merge_over_ranks(control.group, metrics);
  Figures figures = {{control.prefix + "/loss", values[0]}};
  const std::vector<std::string> names = loss_part_names(recipe, control.prefix);
  for (size_t i = 0; i < names.size(); ++i) figures.emplace_back(names[i], values[i + 1]);
  const Figures measured =
      named("the evaluation", occasion, [&] { return metric_figures(recipe, metrics, control.prefix); });
  figures.insert(figures.end(), measured.begin(), measured.end());
  tell_left_out(recipe, metrics, control);
  return figures;
}

}  // namespace trainrun
