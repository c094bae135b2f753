#include "runner/interop/python/optimization.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "runner/interop/python/options.h"
#include "runner/interop/python/rate_factors.h"

namespace trainrun::python {
namespace {

using nlohmann::json;

// --- Optimizers

const std::set<std::string>& torch_optimizers() {
  static const std::set<std::string> names = {"ASGD",  "Adadelta", "Adafactor", "Adagrad", "Adam",    "AdamW", "Adamax",
                                              "LBFGS", "Muon",     "NAdam",     "RAdam",   "RMSprop", "Rprop", "SGD"};
  return names;
}

/// PyTorch's fastest form of these rounds as trainrun does.
std::string fused(const std::string& type) { return type == "Adam" || type == "AdamW" ? ", fused=True" : ""; }

std::string arguments_of(const Value& overrides) {
  std::string text;
  for (const auto& entry : overrides.entries()) {
    if (entry.key != "match") text += (text.empty() ? "" : ", ") + quoted(entry.key) + ": " + literal(entry.value);
  }
  return "{" + text + "}";
}

constexpr const char* kParameterGroups = R"(def parameter_groups(parameters, rules):
    """Groups for an optimizer: parameters go to the first rule whose pattern is found in their name."""
    groups = [{"params": [], **options} for _, options in rules] + [{"params": []}]
    for name, parameter in parameters:
        matches = (i for i, (pattern, _) in enumerate(rules) if re.search(pattern, name))
        groups[next(matches, -1)]["params"].append(parameter)
    return [group for group in groups if group["params"]]
)";

/// Adds the recipe's param_groups to the file; false: it has none.
bool write_rules(const Component<OptimizerKind>& optimizer, SourceFile& file) {
  const Value* groups = optimizer.written.find("param_groups");
  if (!groups || groups->items().empty()) return false;
  std::string rules;
  for (const Value& group : groups->items()) {
    const Value* match = group.find("match");
    rules += "    (" + pattern(match ? match->text() : "") + ", " + arguments_of(group) + "),\n";
  }
  file.constant("PARAMETER_GROUPS", "[\n" + rules + "]");
  return true;
}

/// What the optimizer gets of the network.
std::string parameters_of(const Recipe& recipe, bool has_factors, SourceFile& file) {
  const bool has_rules = write_rules(recipe.optimizer, file);
  if (has_factors) return groups_with_rate_factors(recipe, has_rules ? "PARAMETER_GROUPS" : "[]", file);
  if (!has_rules) return "net.parameters()";
  file.import("import re");
  file.define("parameter_groups", kParameterGroups);
  return "parameter_groups(net.named_parameters(), PARAMETER_GROUPS)";
}

std::string optimizer_of(const Recipe& recipe, bool has_factors, SourceFile& file) {
  const auto& optimizer = recipe.optimizer;
  if (!torch_optimizers().contains(optimizer.type)) {
    file.refuse(optimizer.place, optimizer.path,
                "torch.optim has no " + optimizer.type + "; use one that it has, such as AdamW");
  }
  if (const Value* value = optimizer.written.find("state_dtype")) {
    file.refuse(value->place(), optimizer.path + ".state_dtype", "torch.optim has no state_dtype; leave it out");
  }
  const auto options = written_options(optimizer, {"param_groups", "state_dtype", "layer_decay"});
  return "torch.optim." + optimizer.type + "(" + parameters_of(recipe, has_factors, file) + further(options) +
         fused(optimizer.type) + ")";
}

void add_optimizers(const Recipe& recipe, Optimization& result, SourceFile& file) {
  const auto& optimizer = recipe.optimizer;
  result.evaluates_again = optimizer.type == "LBFGS";
  if (optimizer.type != "ChainedOptimizer") {
    result.statements.push_back("optimizer = " + optimizer_of(recipe, result.has_factors, file));
    result.optimizers = {"optimizer"};
    return;
  }
  if (result.has_factors) groups_with_rate_factors(recipe, "[]", file);  // which refuses them
  const Value* parts = optimizer.written.find("optimizers");
  file.import("import re");
  std::vector<std::string> patterns;
  std::vector<std::string> names;
  for (const Value& part : parts->items()) {
    const Value* match = part.find("match");
    const Value* inner = part.find("optimizer");
    const Value* type = inner->is_map() ? inner->find("type") : inner;
    std::string name;
    for (const char c : type->text()) name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    while (std::find(names.begin(), names.end(), name) != names.end()) name += "_2";
    names.push_back(name);
    std::string condition;
    for (const std::string& earlier : patterns)
      condition += (condition.empty() ? "" : " and ") + ("not re.search(" + earlier + ", name)");
    if (match) {
      patterns.push_back(pattern(match->text()));
      condition += (condition.empty() ? "" : " and ") + ("re.search(" + patterns.back() + ", name)");
    }
    if (!torch_optimizers().contains(type->text()) || (inner->is_map() && inner->find("param_groups"))) {
      file.refuse(inner->place(), optimizer.path,
                  "torch.optim has no " + type->text() +
                      ", or it has groups of its own; use one that it has, without param_groups");
    }
    std::string options;
    for (const auto& entry : inner->is_map() ? inner->entries() : std::vector<Value::Entry>()) {
      if (entry.key != "type") options += ", " + entry.key + "=" + literal(entry.value);
    }
    result.statements.push_back(
        name + " = torch.optim." + type->text() + "(\n    [parameter for name, parameter in net.named_parameters()" +
        (condition.empty() ? "" : " if " + condition) + "]" + options + fused(type->text()) + "\n)");
  }
  result.optimizers = std::move(names);
}

// --- Schedules

using ScheduleComponent = Component<SchedulerKind>;

const std::set<std::string>& torch_schedulers() {
  static const std::set<std::string> names = {"ConstantLR",  "CosineAnnealingLR", "CosineAnnealingWarmRestarts",
                                              "CyclicLR",    "ExponentialLR",     "LinearLR",
                                              "MultiStepLR", "OneCycleLR",        "PolynomialLR",
                                              "StepLR"};
  return names;
}

std::string warmup_of(const ScheduleComponent& scheduler, const std::string& total) {
  const Value* ratio = scheduler.written.find("warmup_ratio");
  if (ratio && !ratio->is_null()) return "math.ceil(" + literal(*ratio) + " * " + total + ")";
  return scheduler.attributes.at("warmup_steps").dump();
}

const std::map<std::string, std::string>& factors() {
  static const std::map<std::string, std::string> bodies = {
      {"ConstantWithWarmup", "    return min(1, step / max(1, warmup))\n"},
      {"LinearWithWarmup",
       "    if step < warmup:\n"
       "        return step / max(1, warmup)\n"
       "    return max(0, (total - step) / max(1, total - warmup))\n"},
      {"CosineWithWarmup",
       "    if step < warmup:\n"
       "        return step / max(1, warmup)\n"
       "    done = (step - warmup) / max(1, total - warmup)\n"
       "    return max(0, 0.5 * (1 + math.cos(math.pi * CYCLES * 2 * done)))\n"},
      {"CosineWithHardRestarts",
       "    if step < warmup:\n"
       "        return step / max(1, warmup)\n"
       "    done = (step - warmup) / max(1, total - warmup)\n"
       "    return 0 if done >= 1 else 0.5 * (1 + math.cos(math.pi * (CYCLES * done % 1)))\n"}};
  return bodies;
}

std::string snake(const std::string& text) {
  std::string result;
  for (const char c : text) {
    const bool is_upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (is_upper && !result.empty()) result += '_';
    result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return result;
}

/// transformers' schedules: a factor that follows from the step.
std::string with_warmup(const ScheduleComponent& scheduler, const std::string& optimizer, const std::string& total,
                        SourceFile& file) {
  std::string body = factors().at(scheduler.type);
  const std::string name = snake(scheduler.type);
  if (body.find("math.") != std::string::npos) file.import("import math");
  if (const size_t at = body.find("CYCLES"); at != std::string::npos) {
    const double cycles = scheduler.attributes.at("num_cycles").get<double>();
    const bool is_half = cycles == 0.5 && scheduler.type == "CosineWithWarmup";
    body =
        is_half ? body.replace(at, std::string("CYCLES * 2 * ").size(), "") : body.replace(at, 6, json(cycles).dump());
  }
  file.define(name, "def " + name + "(step, warmup, total):\n    \"\"\"What the rate is multiplied by.\"\"\"\n" + body);
  const std::string warmup = warmup_of(scheduler, total);
  if (warmup.find("math.") != std::string::npos) file.import("import math");
  return "LambdaLR(" + optimizer + ", lambda step: " + name + "(step, " + warmup + ", " + total + "))";
}

constexpr const char* kAlongLines = R"(def factor_at(when):
    """What the rate is multiplied by: along straight lines from one of POINTS to the next."""
    for (begin, first), (end, last) in itertools.pairwise(POINTS):
        if begin <= when < end:
            return first + (last - first) * (when - begin) / (end - begin)
    return POINTS[0][1] if when < POINTS[0][0] else POINTS[-1][1]
)";

constexpr const char* kInSteps = R"(def factor_at(when):
    """What the rate is multiplied by: the factor of the last of POINTS that is not later."""
    return next((factor for begin, factor in reversed(POINTS) if begin <= when), POINTS[0][1])
)";

class ScheduleWriter {
 public:
  ScheduleWriter(Optimization& result, SourceFile& file) : result_(result), file_(file) {}

  std::string write(const Value& written, const std::string& optimizer, const std::string& path) {
    const Value* type = written.is_map() ? written.find("type") : &written;
    const std::string name = type->text();
    const std::string total = result_.by_epoch ? "total_epochs" : "total_steps";
    if (name == "SequentialLR" || name == "ChainedScheduler") {
      std::string parts;
      for (const Value& part : written.find("schedulers")->items()) {
        parts += (parts.empty() ? "" : ",\n        ") + write(part, optimizer, path);
      }
      import(name);
      if (name == "ChainedScheduler") return "ChainedScheduler([\n        " + parts + ",\n    ])";
      std::string milestones;
      for (const Value& item : written.find("milestones")->items())
        milestones += (milestones.empty() ? "" : ", ") + item.text();
      return "SequentialLR(\n    " + optimizer + ",\n    [\n        " + parts + ",\n    ],\n    milestones=[" +
             milestones + "],\n)";
    }
    refuse_absolute_rates(written, name, type->place(), path);
    if (!torch_schedulers().contains(name)) {
      file_.refuse(type->place(), path, "torch.optim.lr_scheduler has no " + name + "; use one that it has");
      return "";
    }
    import(name);
    std::string options;
    bool has_length = false;
    for (const auto& entry : written.is_map() ? written.entries() : std::vector<Value::Entry>()) {
      if (entry.key == "type" || entry.key == "interval") continue;
      if (entry.value.is_null()) continue;
      has_length = has_length || entry.key == "T_max" || entry.key == "total_steps";
      const bool is_list = entry.value.is_list();
      const std::string value = literal(entry.value);
      options += ", " + entry.key + "=" + (is_list ? "[" + value.substr(1, value.size() - 2) + "]" : value);
    }
    const bool needs = (name == "CosineAnnealingLR" || name == "OneCycleLR") && !has_length;
    if (needs) {
      result_.needs_total = true;
      options = (name == "OneCycleLR" ? ", total_steps=" : ", T_max=") + total + options;
    }
    return name + "(" + optimizer + options + ")";
  }

  std::string write_whole(const ScheduleComponent& scheduler, const std::string& optimizer) {
    if (scheduler.type == "Piecewise") return piecewise(scheduler, optimizer);
    const std::string total = result_.by_epoch ? "total_epochs" : "total_steps";
    if (factors().contains(scheduler.type)) {
      import("LambdaLR");
      result_.needs_total = true;
      if (scheduler.written.find("total_steps")) {
        file_.refuse(scheduler.place, scheduler.path + ".total_steps",
                     "a schedule that ends before the job is not written; leave it out");
      }
      return with_warmup(scheduler, optimizer, total, file_);
    }
    return write(scheduler.written, optimizer, scheduler.path);
  }

 private:
  /// Rates that a schedule has from the recipe, and not by a factor, would be the same for all layers.
  void refuse_absolute_rates(const Value& written, const std::string& name, const Place& place,
                             const std::string& path) const {
    const Value* least = written.is_map() ? written.find("eta_min") : nullptr;
    const bool is_absolute = name == "OneCycleLR" || name == "CyclicLR" ||
                             (least && least->is_scalar() && parse_number(least->text()).value_or(0) != 0);
    if (!result_.has_factors || !is_absolute) return;
    file_.refuse(place, path,
                 name + (least ? " with eta_min" : "") +
                     " is not written beside layer_decay or layers with an lr_scale, since it sets rates itself; use a "
                     "schedule of factors, such as CosineWithWarmup");
  }
  std::string piecewise(const ScheduleComponent& scheduler, const std::string& optimizer) {
    const bool is_constant = scheduler.attributes.at("interpolation") == "constant";
    std::string points;
    for (const json& point : scheduler.attributes.at("points")) {
      points += (points.empty() ? "" : ", ") + ("(" + point.at(0).dump() + ", " + point.at(1).dump() + ")");
    }
    file_.constant("POINTS", "[" + points + "]", result_.by_epoch ? "epoch, factor" : "step, factor");
    if (!is_constant) file_.import("import itertools");
    file_.define("factor_at", is_constant ? kInSteps : kAlongLines);
    import("LambdaLR");
    return "LambdaLR(" + optimizer + ", factor_at)";
  }
  void import(const std::string& name) { file_.import("from torch.optim.lr_scheduler import " + name); }

  Optimization& result_;
  SourceFile& file_;
};

}  // namespace

Optimization write_optimization(const Recipe& recipe, SourceFile& file) {
  Optimization result;
  result.has_factors = has_rate_factors(recipe);
  add_optimizers(recipe, result, file);
  if (!recipe.scheduler) return result;
  result.by_epoch = recipe.scheduler->common.interval == Interval::kEpoch;
  ScheduleWriter writer(result, file);
  for (const std::string& optimizer : result.optimizers) {
    const std::string name = result.optimizers.size() == 1 ? "scheduler" : optimizer + "_scheduler";
    result.statements.push_back(name + " = " + writer.write_whole(*recipe.scheduler, optimizer));
    result.schedulers.push_back(name);
  }
  return result;
}

}  // namespace trainrun::python
