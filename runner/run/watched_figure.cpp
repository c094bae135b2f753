#include "runner/run/watched_figure.h"

#include <ATen/ops/zeros.h>

#include <array>

#include "registry/kinds/metric_details.h"
#include "registry/language/figure_name.h"
#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

/// The component that a value names, where it can be read; plugins are not loaded for it.
template <class Kind>
std::optional<Component<Kind>> component_from(const Value* value, const Catalog& catalog) {
  if (!value || value->is_null()) return std::nullopt;
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  auto component = Codec<Component<Kind>>::read(*value, reader);
  return problems.empty() ? std::move(component) : std::nullopt;
}

/// `monitor` and `mode` of a mapping that has a monitor, or whose component has one by default.
std::optional<WatchedFigure> watched_by(const Value* watcher, const nlohmann::json& defaults = {}) {
  if (!watcher) return std::nullopt;
  const auto text = [&](const char* key) -> std::string {
    const Value* value = watcher->find(key);
    if (value && value->is_scalar()) return value->text();
    return defaults.is_object() && defaults.contains(key) && defaults[key].is_string() ? defaults[key] : "";
  };
  const std::string name = text("monitor"), mode = text("mode");
  if (name.empty()) return std::nullopt;
  WatchedFigure figure{present_figure_name(name), std::nullopt};
  if (mode == "max") figure.better = MonitorMode::kMax;
  if (mode == "min") figure.better = MonitorMode::kMin;
  return figure;
}

/// Which way a metric is better, as it says itself; asked by small examples, since a metric is built for what it reads.
std::optional<MonitorMode> direction_of(const Component<MetricKind>& metric) {
  MetricInputs classes, numbers, tokens;
  classes.examples = {at::zeros({2, 3}), at::zeros({2}, at::kLong)};
  numbers.examples = {at::zeros({2, 2}), at::zeros({2, 2})};
  tokens.examples = {at::zeros({2, 3, 4}), at::zeros({2, 3}, at::kLong)};
  for (MetricInputs* inputs : {&classes, &numbers, &tokens}) {
    inputs->names = {"", ""};
    try {
      return better_of(*metric.build(*inputs), "");
    } catch (const std::exception&) {
      continue;  // it reads something else
    }
  }
  return std::nullopt;
}

/// "eval", or "eval/NAME" of the first of several sets.
std::string first_prefix(const Value& recipe) {
  const Value* dataset = recipe.find("dataset");
  const Value* eval = dataset ? dataset->find("eval") : nullptr;
  const bool is_named = eval && eval->is_map() && !eval->find("type") && !eval->entries().empty();
  return is_named ? "eval/" + eval->entries()[0].key : "eval";
}

std::optional<WatchedFigure> first_metric(const Value& recipe, const Catalog& catalog) {
  const Value* metrics = recipe.find("metrics");
  if (!metrics || metrics->items().empty()) return std::nullopt;
  const auto metric = component_from<MetricKind>(&metrics->items()[0], catalog);
  if (!metric) return std::nullopt;
  return WatchedFigure{first_prefix(recipe) + "/" + figure_name(metric->type, metric->common.name),
                       direction_of(*metric)};
}

}  // namespace

WatchedFigure watched_figure(const Value& recipe, const Catalog& catalog) {
  const Value* checkpoint = recipe.find("checkpoint");
  const Value* keep_best = checkpoint ? checkpoint->find("keep_best") : nullptr;
  if (keep_best && keep_best->is_map()) {
    const auto figure = watched_by(keep_best);
    return figure ? *figure : WatchedFigure{"eval/loss", MonitorMode::kMin};
  }
  const Value* callbacks = recipe.find("callbacks");
  for (size_t i = 0; callbacks && i < callbacks->items().size(); ++i) {
    const auto callback = component_from<CallbackKind>(&callbacks->items()[i], catalog);
    if (!callback) continue;
    if (const auto figure = watched_by(&callbacks->items()[i], callback->attributes)) return *figure;
  }
  const auto scheduler = component_from<SchedulerKind>(recipe.find("scheduler"), catalog);
  if (scheduler) {
    if (const auto figure = watched_by(recipe.find("scheduler"), scheduler->attributes)) return *figure;
  }
  if (const auto figure = first_metric(recipe, catalog)) return *figure;
  return {first_prefix(recipe) + "/loss", MonitorMode::kMin};
}

std::optional<bool> evaluation_decides(const Value& recipe, const Catalog& catalog) {
  const Value* written = recipe.find("scheduler");
  if (!written || written->is_null()) return false;
  const auto scheduler = component_from<SchedulerKind>(written, catalog);
  if (!scheduler) return std::nullopt;
  return !scheduler->build({{}, 1})->monitor().empty();
}

}  // namespace trainrun
