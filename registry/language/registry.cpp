#include "registry/language/registry.h"

#include "registry/language/hints.h"

namespace trainrun::detail {
namespace {

/// "a layer", "an optimizer"
std::string with_article(const std::string& kind) {
  return (std::string("aeiou").find(kind[0]) == std::string::npos ? "a " : "an ") + kind;
}

}  // namespace

void throw_duplicate(const std::string& kind, const std::string& name, const std::string& first,
                     const std::string& second) {
  const auto origin = [](const std::string& file) { return file.empty() ? std::string("trainrun itself") : file; };
  throw PluginError(with_article(kind) + " called " + name + " is already registered by " + origin(first) + "; " +
                    origin(second) + " must choose another name");
}

void throw_reserved(const std::string& kind, const std::string& name, const std::string& parameter) {
  throw PluginError("the " + kind + " " + name + " declares a parameter '" + parameter + "', which every " + kind +
                    " has already; choose another name for it");
}

std::optional<std::string> component_type(const Value& value, const std::string& kind, Reader& reader) {
  const Value* type = &value;
  if (value.is_map()) {
    type = value.find("type");
    if (!type) {
      std::string hint;
      for (const Value::Entry& entry : value.entries()) {
        if (nearest(entry.key, {"type"}) == "type") hint = "; did you mean type instead of " + entry.key + "?";
      }
      reader.error(value.place(), with_article(kind) + " needs a type: {type: NAME, …}" + hint);
      return std::nullopt;
    }
  }
  const auto scope = reader.enter(value.is_map() ? "type" : "");
  if (!type->is_scalar() || type->scalar_type() != ScalarType::kString) {
    const std::string wanted =
        value.is_map() ? "the name of " + with_article(kind) : with_article(kind) + " (NAME or {type: NAME, …})";
    reader.error(type->place(), "expected " + wanted + ", found " + type->describe() + mapping_hint(*type));
    return std::nullopt;
  }
  return type->text();
}

Value component_map(const Value& value) {
  if (value.is_map()) return value;
  return Value::map({{"type", value.place(), value}}, value.place());
}

void report_unknown(const Value& value, const std::string& kind, const std::string& type,
                    const std::vector<std::string>& names, Reader& reader) {
  const Value* written = value.is_map() ? value.find("type") : &value;
  std::string hint = substitute_for(type);
  if (!hint.empty() && same_name(type, names).empty()) {
    hint = "; " + hint;
  } else {
    hint = suggestion(type, names);
    if (hint.empty()) hint = "; `trainrun list " + kind + "` names all that there are";
  }
  reader.error(written->place(), "unknown " + kind + " '" + type + "'" + hint);
  reader.problems().back().unknown_component = true;
}

}  // namespace trainrun::detail
