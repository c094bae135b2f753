#include <array>
#include <cmath>

#include "registry/language/text_forms.h"
#include "runner/base/text.h"
#include "runner/replay/bisect.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

std::string changes_text(const std::vector<RecipeChange>& changes) {
  if (changes.empty()) return "nothing that changes numbers differs";
  std::vector<std::string> words;
  words.reserve(changes.size());
  for (const RecipeChange& change : changes) words.push_back(change.to_string());
  return join_first(words, words.size());
}

/// "equal up to step 50, and other after step 60"
std::string interval_text(const std::optional<int64_t>& equal, const std::optional<int64_t>& other,
                          const std::string& where) {
  if (!equal && !other) return "none that both have";
  std::string text = equal ? "equal up to step " + std::to_string(*equal) : "not equal at first";
  if (other) text += ", other at step " + std::to_string(*other) + where;
  return text;
}

std::string replayed_text(const RunBisection& found) {
  if (!found.replayed_from_a) return "no step: there is nothing to explain";
  const auto from = [](int64_t step) {
    return step == 0 ? std::string("the beginning") : "step " + std::to_string(step);
  };
  const std::string a = from(*found.replayed_from_a), b = from(*found.replayed_from_b);
  return "from " + (a == b ? a : a + " and " + b) + " to step " + std::to_string(found.replayed_until);
}

std::string parting_text(const Parting& parting) {
  std::string text = "step " + std::to_string(parting.step) + ": ";
  switch (parting.kind) {
    case Parting::Kind::kStep:
      text += parting.what + " differs";
      break;
    case Parting::Kind::kCheckpoint:
      text += parting.what + " differs between the checkpoint " + parting.checkpoint + " and what the steps of " +
              parting.run + " give";
      break;
    case Parting::Kind::kLogged:
      text += parting.what + " of " + parting.run + " is not what its steps give";
      break;
    case Parting::Kind::kStates:
      text += parting.what + " differs";
      break;
  }
  if (parting.layer && !parting.layer->empty()) text += "\n  layer: " + *parting.layer;
  text += "\n  " + parting.difference;
  if (!parting.remark.empty()) text += "\n  " + parting.remark;
  return text + "\n";
}

ordered_json controls_json(const std::vector<ControlChange>& controls) {
  ordered_json list = ordered_json::array();
  for (const ControlChange& one : controls) {
    list.push_back({{"run", one.run},
                    {"step", one.change.step},
                    {"key", one.change.key},
                    {"before", one.change.before},
                    {"value", one.change.value}});
  }
  return list;
}

ordered_json parting_json(const Parting& parting) {
  constexpr std::array kKinds = {"step", "checkpoint", "logged", "states"};
  ordered_json json = {{"kind", kKinds[static_cast<size_t>(parting.kind)]},
                       {"step", parting.step},
                       {"what", parting.what},
                       {"name", parting.name},
                       {"layer", parting.layer ? ordered_json(*parting.layer) : ordered_json()},
                       {"difference", parting.difference}};
  if (parting.tensor && parting.tensor->shapes.empty()) {
    const auto number = [](double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(); };
    json["differing"] = parting.tensor->differing;
    json["elements"] = parting.tensor->elements;
    json["greatest"] = number(parting.tensor->greatest);
    json["at"] = parting.tensor->at;
    json["a"] = number(parting.tensor->a);
    json["b"] = number(parting.tensor->b);
  }
  json["run"] = parting.run;
  json["checkpoint"] = parting.checkpoint;
  json["remark"] = parting.remark;
  json["controls"] = controls_json(parting.controls);
  return json;
}

ordered_json step_json(const std::optional<int64_t>& step) { return step ? ordered_json(*step) : ordered_json(); }

}  // namespace

std::string to_text(const RunBisection& found) {
  std::string text = "a: " + found.a + "\nb: " + found.b + "\n\n";
  text += "recipes         " + changes_text(found.changes) + "\n";
  if (!found.controls.empty()) text += "while they ran  " + control_text(found.controls) + "\n";
  text += "logged figures  " +
          interval_text(found.last_equal_line, found.first_other_line,
                        found.first_other_line ? ": " + found.line_difference : "") +
          "\n";
  text += "checkpoints     " + interval_text(found.last_equal_state, found.first_other_state, "") + "\n";
  text += "made again      " + replayed_text(found) + "\n\n";
  text += found.parting
              ? parting_text(*found.parting)
              : "the runs do not part up to step " + std::to_string(found.until) + ", the last that both made\n";
  for (const std::string& note : found.notes) text += "\nnote: " + note + "\n";
  return text;
}

ordered_json to_json(const RunBisection& found) {
  ordered_json json = {{"a", found.a}, {"b", found.b}, {"equal", found.is_equal()}, {"until", found.until}};
  json["changes"] = ordered_json::array();
  for (const RecipeChange& change : found.changes) json["changes"].push_back(change.path);
  json["controls"] = controls_json(found.controls);
  json["logged"] = {{"last_equal", step_json(found.last_equal_line)},
                    {"first_other", step_json(found.first_other_line)},
                    {"difference", found.line_difference}};
  json["checkpoints"] = {{"last_equal", step_json(found.last_equal_state)},
                         {"first_other", step_json(found.first_other_state)}};
  json["made_again"] = {{"from_a", step_json(found.replayed_from_a)},
                        {"from_b", step_json(found.replayed_from_b)},
                        {"until", found.replayed_until}};
  json["parting"] = found.parting ? parting_json(*found.parting) : ordered_json();
  json["notes"] = found.notes;
  return json;
}

}  // namespace trainrun
