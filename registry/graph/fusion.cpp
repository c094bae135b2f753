#include "registry/graph/fusion.h"

#include <algorithm>
#include <set>

#include "registry/language/error.h"
#include "registry/language/registry.h"

namespace trainrun {
namespace {

/// What is wrong with a pattern; "" if nothing is.
std::string fault_of(const FusionPattern& pattern) {
  if (pattern.nodes.empty()) return "it has no nodes";
  std::set<std::string> nodes;
  std::set<std::string> values;  // that nodes so far read or give
  for (const FusionPattern::Node& node : pattern.nodes) {
    if (node.types.empty()) return "node '" + node.name + "' has no types";
    if (values.contains(node.name)) return "the name '" + node.name + "' stands for two things";
    if (node.in_any_order && node.inputs.size() != 2) return "node '" + node.name + "' has an order of two inputs only";
    const bool is_reached = std::any_of(node.inputs.begin(), node.inputs.end(),
                                        [&](const std::string& input) { return values.contains(input); });
    if (!nodes.empty() && !is_reached)
      return "node '" + node.name + "' reads nothing that an earlier node reads or gives";
    values.insert(node.inputs.begin(), node.inputs.end());
    values.insert(node.name);
    nodes.insert(node.name);
  }
  for (const std::string& given : pattern.gives) {
    if (!nodes.contains(given)) return "it gives '" + given + "', which is no node";
  }
  return "";
}

}  // namespace

FusionPattern FusionPattern::chain(const std::vector<std::string>& types) {
  FusionPattern pattern;
  for (const std::string& type : types) {
    const size_t number = pattern.nodes.size();
    Node node{std::to_string(number), {type}};
    if (number > 0) node.inputs = {std::to_string(number - 1)};
    pattern.nodes.push_back(std::move(node));
  }
  return pattern;
}

FusionRegistry FusionRegistry::without_fast_convolutions() const {
  FusionRegistry rest = *this;
  std::erase_if(rest.fusions_, [](const Fusion& fusion) { return fusion.is_fast_convolution; });
  return rest;
}

void FusionRegistry::add(Fusion fusion) {
  fusion.origin = origin_;
  const auto other =
      std::find_if(fusions_.begin(), fusions_.end(), [&](const Fusion& known) { return known.name == fusion.name; });
  if (other != fusions_.end()) detail::throw_duplicate("fusion", fusion.name, other->origin, origin_);
  if (const std::string fault = fault_of(fusion.pattern); !fault.empty()) {
    throw PluginError("the pattern of the fusion " + fusion.name + " is wrong: " + fault);
  }
  fusions_.push_back(std::move(fusion));
}

}  // namespace trainrun
