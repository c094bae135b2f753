#include "registry/kinds/optimizer.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <iterator>

#include "registry/language/name_regex.h"
#include "registry/language/pattern.h"

namespace trainrun {

void scale_rates(std::vector<GroupRates>& rates) {
  for (GroupRates& group : rates) group.lr *= group.lr_scale;
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& saved) {
  const c10::AutoGradMode no_gradients(false);
  for (auto& [name, tensor] : state()) {
    const auto it = saved.find(name);
    if (it == saved.end()) throw Error("the checkpoint's optimizer has no " + name);
    if (it->second.sizes() != tensor.sizes()) {
      throw Error("the checkpoint's optimizer has " + name + " as " + at::str(it->second.sizes()) + ", not " +
                  at::str(tensor.sizes()));
    }
    tensor.copy_(it->second);
  }
}

std::optional<GroupSpec> Codec<GroupSpec>::read(const Value& value, Reader& reader) {
  const Value* match = value.is_map() ? value.find("match") : nullptr;
  if (!match) {
    reader.error(value.place(), "expected {match: PATTERN, …}: a regular expression for state names, found " +
                                    (value.is_map() ? std::string("a mapping without match") : value.describe()));
    return std::nullopt;
  }
  for (const Value::Entry& entry : value.entries()) {
    if (entry.key != "type" && entry.key != "param_groups" && entry.key != "state_dtype") continue;
    const auto scope = reader.enter(entry.key);
    reader.error(entry.key_place, "a group can set only the parameters of its optimizer");
  }
  const auto pattern = read_pattern(*match, reader);
  if (!pattern) return std::nullopt;
  GroupSpec group{*pattern, match->place(), value, nullptr};
  group.overrides.erase("match");
  return group;
}

nlohmann::json Codec<GroupSpec>::schema(SchemaContext& context) {
  nlohmann::json schema = detail::properties_schema(*context.own, context);
  for (nlohmann::json& property : schema["properties"]) property.erase("default");  // they are the optimizer's
  schema["properties"]["match"] = {
      {"type", "string"}, {"format", "regex"}, {"description", "a regular expression, searched in state names"}};
  schema["required"] = {"match"};
  return schema;
}

void OptimizerCommon::describe(Fields<OptimizerCommon>& f) {
  f.optional("param_groups", &OptimizerCommon::param_groups)
      .doc("other options for the parameters whose state name a pattern matches; the first that matches wins");
  f.optional("state_dtype", &OptimizerCommon::state_dtype)
      .doc("dtype in which the optimizer keeps its running averages between steps; bf16 halves their memory");
  f.optional("layer_decay", &OptimizerCommon::layer_decay)
      .greater_than(0)
      .at_most(1)
      .doc(
          "the last layer has the learning rate lr, and each layer before it that of the next layer times this; 1: all "
          "layers have lr");
}

void OptimizerKind::finish(Component<OptimizerKind>& optimizer, const Value& map, Reader& reader) {
  Value defaults = map;
  defaults.erase("param_groups");
  defaults.erase("state_dtype");
  defaults.erase("layer_decay");
  const auto scope = reader.enter("param_groups");
  for (size_t i = 0; i < optimizer.common.param_groups.size(); ++i) {
    GroupSpec& group = optimizer.common.param_groups[i];
    const auto item = reader.enter(i);
    Value merged = defaults;
    for (const Value::Entry& entry : group.overrides.entries()) merged.set(entry.key, entry.key_place, entry.value);
    group.options = optimizer.read_options(merged, reader);
  }
  if (optimizer.common.state_dtype == StateDtype::kBf16) {
    optimizer.build = [build = optimizer.build](const OptimizerInputs& inputs) {
      return with_low_precision_state(build(inputs), inputs);
    };
  }
}

OptimizerInputs group_parameters(const Component<OptimizerKind>& optimizer, const NamedTensors& parameters,
                                 const std::map<std::string, double>& lr_scales) {
  const std::vector<GroupSpec>& specs = optimizer.common.param_groups;
  std::vector<std::vector<ParameterGroup>> groups(specs.size() + 1);  // of each pattern: by scale
  std::vector<Regex> patterns;
  for (const GroupSpec& spec : specs) patterns.push_back(regex_of(spec.match));
  std::vector<bool> matched(specs.size());
  for (const auto& [name, tensor] : parameters) {
    size_t chosen = specs.size();
    for (size_t i = specs.size(); i-- > 0;) {
      if (!patterns[i].is_in(name)) continue;
      matched[i] = true;
      chosen = i;
    }
    if (!tensor.requires_grad()) continue;
    const auto scale = lr_scales.find(name);
    const double lr_scale = scale == lr_scales.end() ? 1 : scale->second;
    std::vector<ParameterGroup>& own = groups[chosen];
    auto group = std::find_if(own.begin(), own.end(), [&](const auto& other) { return other.lr_scale == lr_scale; });
    if (group == own.end()) {
      const auto& options = chosen < specs.size() ? specs[chosen].options : optimizer.options;
      group = own.insert(own.end(), {{}, {}, options, lr_scale});
    }
    group->names.push_back(name);
    group->tensors.push_back(tensor);
  }
  std::vector<Problem> problems;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (matched[i]) continue;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : parameters) names.push_back(name);
    problems.push_back({specs[i].place, optimizer.path + ".param_groups[" + std::to_string(i) + "].match",
                        "'" + specs[i].match + "' matches no parameter" + suggestion(specs[i].match, names)});
  }
  if (!problems.empty()) throw RecipeError(problems);
  OptimizerInputs inputs;
  for (std::vector<ParameterGroup>& own : groups) std::move(own.begin(), own.end(), std::back_inserter(inputs.groups));
  return inputs;
}

}  // namespace trainrun
