#include "registry/language/rule.h"

#include <algorithm>

#include "registry/language/codec.h"
#include "registry/language/name_regex.h"

namespace trainrun {
namespace {

using nlohmann::json;

const json& interpolation() {
  static const json reference = {{"$ref", "#/definitions/interpolated_text"}};
  return reference;
}

/// Of a mapping that meets all `conditions`. A `${…}` may turn out to be anything: it decides nothing in a rule's `when`
/// (`is_sure`), and may stand in the rest.
json schema_of_all(const std::vector<Condition>& conditions, const Rule::ValueOf& default_of, bool is_sure) {
  json schema = {{"properties", json::object()}};
  for (const Condition& condition : conditions) {
    const std::string& name = condition.parameter();
    const json own = condition.schema();
    const json open =
        is_sure ? json{{"allOf", {own, {{"not", interpolation()}}}}} : json{{"anyOf", {own, interpolation()}}};
    schema["properties"][name] = open;
    if (!condition.holds(default_of(name))) schema["required"].push_back(name);
  }
  return schema;
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

}  // namespace

bool Condition::holds_for_number(double number) const {
  const auto limit = value_.get<double>();
  if (kind_ == Kind::kAbove) return number > limit;
  return kind_ == Kind::kAtLeast ? number >= limit : number <= limit;
}

bool Condition::holds(const json& value) const {
  switch (kind_) {
    case Kind::kGiven:
    case Kind::kMissing: {
      const bool is_given = !value.is_null() && value != json::array();
      return is_given == (kind_ == Kind::kGiven);
    }
    case Kind::kIs:
      return value == value_;
    case Kind::kIsNot:
      return value != value_;
    case Kind::kMatches:
      return !value.is_string() || regex_of(value_.get<std::string>()).is_in(value.get<std::string>());
    case Kind::kAbove:
    case Kind::kAtLeast:
    case Kind::kAtMost:
      break;
  }
  if (value.is_number()) return holds_for_number(value.get<double>());
  return value.is_array() && std::ranges::all_of(value, [&](const json& one) { return holds(one); });
}

json Condition::schema() const {
  json nothing = {{"enum", {nullptr, json::array()}}};
  const auto limited = [&](const char* keyword) {
    const json limit = json::parse(detail::number_text(value_.get<double>()));  // 1 for 1.0, as messages have it
    return json{{"type", {"number", "array"}}, {keyword, limit}, {"items", {{keyword, limit}}}};
  };
  switch (kind_) {
    case Kind::kGiven:
      return {{"not", nothing}};
    case Kind::kMissing:
      return nothing;
    case Kind::kIs:
      return {{"const", value_}};
    case Kind::kIsNot:
      return {{"not", {{"const", value_}}}};
    case Kind::kMatches:
      return {{"pattern", value_}};
    case Kind::kAbove:
      return limited("exclusiveMinimum");
    case Kind::kAtLeast:
      return limited("minimum");
    case Kind::kAtMost:
      break;
  }
  return limited("maximum");
}

std::string Rule::fault(const ValueOf& value_of) const {
  const auto holds = [&](const Condition& condition) { return condition.holds(value_of(condition.parameter())); };
  if (!std::ranges::all_of(when, holds)) return "";
  if (std::ranges::all_of(all, holds) && (any.empty() || std::ranges::any_of(any, holds))) return "";
  std::string text;
  for (size_t i = 0; i < message.size();) {
    const size_t end = message[i] == '{' ? message.find('}', i) : std::string::npos;
    if (end == std::string::npos) {
      text += message[i++];
    } else {
      text += text_of(value_of(message.substr(i + 1, end - i - 1)));
      i = end + 1;
    }
  }
  return text;
}

json Rule::schema(const ValueOf& default_of) const {
  json then = schema_of_all(all, default_of, /*is_sure=*/false);
  for (const Condition& condition : any) then["anyOf"].push_back(schema_of_all({condition}, default_of, false));
  if (then["properties"].empty()) then.erase("properties");
  if (when.empty()) return then;
  return {{"if", schema_of_all(when, default_of, /*is_sure=*/true)}, {"then", then}};
}

}  // namespace trainrun
