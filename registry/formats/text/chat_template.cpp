#include "registry/formats/text/chat_template.h"

#include <nlohmann/json.hpp>

#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/formats/text/json_node.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/tokenizer_files.h"
#include "registry/formats/text/unicode.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostTemplateBytes = uint64_t{1} << 20;

jinja::Template parsed(const std::string& place, const std::string& source) {
  if (!unicode::is_valid(source)) throw DataError(place + ": is not UTF-8");
  try {
    return jinja::Template(source);
  } catch (const jinja::TemplateError& error) {
    throw DataError(place + ", " + error.what());
  }
}

/// The templates that tokenizer_config.json holds: one, called default, or several with names.
std::map<std::string, std::string> templates_in(const std::string& file) {
  std::map<std::string, std::string> found;
  if (file.empty()) return found;
  const nlohmann::json content = read_json_file(file);
  const auto node = JsonNode(file, content).find("chat_template");
  if (!node) return found;
  if (!node->value().is_array()) {
    found["default"] = node->text();
    return found;
  }
  for (const JsonNode& each : node->items()) found[each.text("name")] = each.text("template");
  return found;
}

/// A message as transformers hands it to templates: without keys that are null, and with reasoning under all the names
/// that templates know it by.
nlohmann::ordered_json prepared(const nlohmann::ordered_json& message) {
  if (!message.is_object()) return message;
  nlohmann::ordered_json made = nlohmann::ordered_json::object();
  const nlohmann::ordered_json* reasoning = nullptr;
  for (const char* name : {"reasoning", "thinking", "reasoning_content"}) {
    const auto found = message.find(name);
    if (found != message.end() && !found->is_null()) reasoning = &*found;
  }
  if (reasoning) made["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) made[key] = value;
  }
  if (reasoning) made["reasoning_content"] = *reasoning;
  return made;
}

nlohmann::ordered_json all_prepared(const nlohmann::ordered_json& messages) {
  nlohmann::ordered_json made = nlohmann::ordered_json::array();
  for (const nlohmann::ordered_json& message : messages) made.push_back(prepared(message));
  return made;
}

bool is_file(const std::string& path) {
  std::error_code unreadable;  // as of a name that is too long
  return fs::is_regular_file(path, unreadable);
}

}  // namespace

ChatTemplate::ChatTemplate(std::string place, const std::string& source,
                           std::map<std::string, std::string> special_tokens, ChatVariables variables)
    : place_(std::move(place)),
      template_(parsed(place_, source)),
      reads_clock_(source.find("strftime_now") != std::string::npos),
      special_tokens_(std::move(special_tokens)),
      variables_(std::move(variables)) {}

ChatText ChatTemplate::render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json* tools,
                              bool add_generation_prompt) const {
  using jinja::Value;
  try {
    jinja::Budget budget;
    std::map<std::string, Value> all;
    for (const auto& [role, token] : special_tokens_) all[role + "_token"] = Value::text(token, budget);
    for (const auto& [name, value] : variables_) {
      all[name] =
          Value::from_json(std::visit([](const auto& one) { return nlohmann::ordered_json(one); }, value), budget);
    }
    all["messages"] = Value::from_json(all_prepared(messages), budget);
    all["tools"] = tools ? Value::from_json(*tools, budget) : Value::none();
    all["documents"] = Value::none();
    all["add_generation_prompt"] = Value::flag(add_generation_prompt);
    jinja::Rendered rendered = template_.render(all);
    return {std::move(rendered.text), std::move(rendered.marked)};
  } catch (const jinja::TemplateError& error) {
    throw DataError(place_ + ", " + error.what());
  }
}

namespace {

struct FoundTemplate {
  std::string place;
  std::string source;
};

FoundTemplate find_template(const fs::path& folder, const TokenizerConfig& config,
                            const std::optional<std::string>& given) {
  const bool is_text = given && (given->find("{{") != std::string::npos || given->find("{%") != std::string::npos);
  if (is_text) return {"template", *given};
  if (given && is_file(*given)) return {*given, read_file(*given, kMostTemplateBytes)};
  const fs::path beside = folder / "chat_template.jinja";
  if (!given && fs::exists(beside)) return {beside.string(), read_file(beside.string(), kMostTemplateBytes)};
  const std::map<std::string, std::string> templates = templates_in(config.file);
  const auto found = templates.find(given.value_or("default"));
  if (found != templates.end()) return {config.file + ": chat_template", found->second};
  std::vector<std::string> names;
  for (const auto& [name, unused] : templates) names.push_back(name);
  const std::string known = names.empty() ? "the tokenizer has no chat template" : "the tokenizer has " + join(names);
  if (given) {
    throw DataError("template: '" + *given + "' is neither a template's text nor a file, and " + known);
  }
  throw DataError(folder.string() + ": " +
                  (names.empty() ? "there is no chat_template.jinja, and no chat_template in tokenizer_config.json"
                                 : "of several chat templates, none is called default") +
                  "; write template: FILE" + (names.empty() ? "" : ", or one of " + join(names)));
}

fs::path folder_of(const std::string& tokenizer) {
  const fs::path own(model_folder(tokenizer, PublishedPart::kTokenizer));
  return fs::is_directory(own) ? own : own.parent_path();
}

}  // namespace

ChatTemplate open_chat_template(const std::string& tokenizer, const std::optional<std::string>& given,
                                const ChatVariables& variables) {
  return open_chat_template(TokenizerSource{tokenizer, {}}, given, variables);
}

ChatTemplate open_chat_template(const TokenizerSource& tokenizer, const std::optional<std::string>& given,
                                const ChatVariables& variables) {
  const fs::path folder = folder_of(tokenizer.path);
  TokenizerConfig config = read_tokenizer_config(folder.string());
  FoundTemplate found = find_template(folder, config, given);
  for (const auto& [role, token] : tokenizer.added.roles()) config.special_tokens[role] = token;
  return {std::move(found.place), found.source, config.special_tokens, variables};
}

std::string chat_template_text(const std::string& tokenizer, const std::string& given) {
  const fs::path folder = folder_of(tokenizer);
  return find_template(folder, read_tokenizer_config(folder.string()), given).source;
}

}  // namespace trainrun
