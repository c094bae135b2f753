#include "runner/train/finite.h"

#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "runner/base/text.h"

namespace trainrun {
namespace {

/// A sum that is finite has finite terms, and is quicker to have.
bool is_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return true;
  if (tensor.is_floating_point() && std::isfinite(tensor.sum().item<double>())) return true;
  return tensor.isfinite().all().item<bool>();
}

/// "eval/loss", "eval/loss/digit", "eval/clean/loss", "eval/clean/loss/digit"
bool is_loss(const std::string& figure) {
  const auto is_next = [&](size_t slash) {
    const std::string rest = slash == std::string::npos ? "" : figure.substr(slash);
    return rest == "/loss" || rest.starts_with("/loss/");
  };
  const size_t first = figure.find('/');
  return is_next(first) || (first != std::string::npos && is_next(figure.find('/', first + 1)));
}

bool is_running_statistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

/// Without what is unreadable, or damaged.
std::string newest_where(const Job& job, const std::string& what, bool (*holds)(const nlohmann::json& state)) {
  if (!job.checkpoints) return "";
  std::string lost;
  try {
    job.checkpoints->finish();
  } catch (const Error& error) {
    lost = "; the checkpoint that was being written is not saved: " + std::string(error.what());
  }
  const std::vector<std::string> names = job.checkpoints->store().list();
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    const std::string path = job.folder->checkpoints_path() + "/" + *name;
    try {
      if (holds(CheckpointStore::verify(path))) return lost + "; " + what + " is " + path;
    } catch (const CheckpointError&) {
      continue;  // an older one may be whole
    }
  }
  return lost;
}

bool has_finite_evaluation(const nlohmann::json& state) {
  Figures figures;
  for (const nlohmann::json& figure : state.value("metrics", nlohmann::json::array())) {
    figures.emplace_back(figure.at(0), figure.at(1).get<double>());
  }
  return !figures.empty() && !state.value("evaluation_due", false) && !non_finite_loss(figures);
}

}  // namespace

std::optional<std::string> non_finite_weight(const Job& job) {
  const c10::AutoGradMode no_gradients(false);
  std::string found;
  for (const auto& [name, tensor] : job.parallel->parameters()) {
    if (found.empty() && !is_finite(tensor)) found = name;
  }
  for (const auto& [name, tensor] : job.model->state_dict()) {
    if (found.empty() && is_running_statistic(name) && !is_finite(tensor)) found = name;
  }
  const bool any = job.group->max(found.empty() ? 0 : 1, "the check of the weights") > 0;
  if (!any) return std::nullopt;
  return found.empty() ? "a weight of another rank" : found;
}

std::optional<std::string> non_finite_loss(const Figures& figures) {
  for (const auto& [name, value] : figures) {
    if (is_loss(name) && !std::isfinite(value)) return name + " is " + decimal(value);
  }
  return std::nullopt;
}

std::string newest_checkpoint(const Job& job) {
  return newest_where(job, "the newest checkpoint", [](const nlohmann::json&) { return true; });
}

std::string newest_finite_evaluation(const Job& job) {
  return newest_where(job, "the newest checkpoint that was evaluated well", has_finite_evaluation);
}

}  // namespace trainrun
