#include "runner/generate/chat_format.h"

#include <algorithm>
#include <set>

#include "registry/data/characters.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

/// What a scalar of the recipe is to a template.
ChatVariables::mapped_type variable_of(const Value& value) {
  switch (value.scalar_type()) {
    case ScalarType::kBool:
      return value.text().front() == 't' || value.text().front() == 'T';
    case ScalarType::kInteger:
      if (const auto whole = parse_integer(value.text())) return *whole;
      break;
    case ScalarType::kFloat:
      if (const auto number = parse_number(value.text())) return *number;
      break;
    default:
      break;
  }
  return value.text();
}

/// The first mapping, here or within, that has a value under `key`.
const Value* map_with(const Value& value, std::string_view key) {
  if (const Value* own = value.find(key); own && own->is_scalar() && !own->is_null()) return &value;
  for (const Value::Entry& entry : value.entries()) {
    if (const Value* found = map_with(entry.value, key)) return found;
  }
  for (const Value& item : value.items()) {
    if (const Value* found = map_with(item, key)) return found;
  }
  return nullptr;
}

std::optional<std::string> text_of(const Value& map, const char* key) {
  const Value* value = map.find(key);
  return value && value->is_scalar() && !value->is_null() ? std::optional(value->text()) : std::nullopt;
}

bool is_of_chats(const Value& data) {
  static const std::set<std::string> types = {"Chat", "PreferencePairs", "DesirableAnswers"};
  return types.contains(text_of(data, "type").value_or(""));
}

/// The first data of conversations, here or within.
const Value* map_of_chats(const Value& value) {
  if (is_of_chats(value) && text_of(value, "tokenizer")) return &value;
  for (const Value::Entry& entry : value.entries()) {
    if (const Value* found = map_of_chats(entry.value)) return found;
  }
  for (const Value& item : value.items()) {
    if (const Value* found = map_of_chats(item)) return found;
  }
  return nullptr;
}

ordered_json message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

}  // namespace

ChatSource chat_source_of(const Recipe& recipe) {
  const Value& data = recipe.dataset.train.written;
  const Value* map = map_of_chats(data);
  if (!map) map = map_with(data, "tokenizer");
  ChatSource source;
  if (!map || *text_of(*map, "tokenizer") == kCharacters) return source;
  source.tokenizer = *text_of(*map, "tokenizer");
  source.added = recipe.dataset;
  source.holds_chats = is_of_chats(*map);
  source.chat_template = text_of(*map, "template");
  source.system = text_of(*map, "system");
  if (const Value* variables = map->find("template_variables")) {
    for (const Value::Entry& entry : variables->entries()) source.variables[entry.key] = variable_of(entry.value);
  }
  return source;
}

ChatFormat::ChatFormat(const ChatSource& source)
    : tokenizer_(open_tokenizer(source.added.in(source.tokenizer))),
      template_(open_chat_template(source.added.in(source.tokenizer), source.chat_template, source.variables)),
      system_(source.system) {}

ChatFormat::Written ChatFormat::write(const ordered_json& messages, const ordered_json& tools,
                                      const std::string& origin) const {
  try {
    Written made;
    made.text = template_.render(messages, tools.is_null() ? nullptr : &tools, /*add_generation_prompt=*/true).text;
    made.tokens = tokenizer_->encode(made.text, /*add_special_tokens=*/false).ids;
    return made;
  } catch (const DataError& error) {
    throw DataError(origin + ": " + error.what());
  }
}

bool ChatFormat::is_special(int64_t id) const {
  return tokenizer_->decode({id}, true).empty() && !tokenizer_->decode({id}, false).empty();
}

std::optional<int64_t> ChatFormat::first_special(const std::string& text) const {
  for (const int64_t id : tokenizer_->encode(text, /*add_special_tokens=*/false).ids) {
    if (is_special(id)) return id;
  }
  return std::nullopt;
}

TurnEnd ChatFormat::turn_end() const {
  const std::string answer = "trainrun-answer";
  const std::string question = "trainrun-question";
  const auto behind = [&](const std::string& text) {
    const size_t found = text.rfind(answer);
    return found == std::string::npos ? "" : text.substr(found + answer.size());
  };
  ordered_json messages = ordered_json::array({message("user", "a"), message("assistant", answer)});
  TurnEnd end;
  try {
    end.token = first_special(behind(template_.render(messages).text));
    if (end.token) return end;
    messages.push_back(message("user", question));
    std::string between = behind(template_.render(messages).text);
    between.resize(std::min(between.size(), between.rfind(question)));
    end.token = first_special(between);
    if (!end.token) end.text = between.substr(0, between.find_last_not_of(" \t\r\n") + 1);
  } catch (const DataError&) {
    return {};  // of a template that writes no such conversation, nothing is known
  }
  return end;
}

std::vector<int64_t> turn_ends_of(const Recipe& recipe) {
  const ChatSource source = chat_source_of(recipe);
  std::vector<int64_t> ends;
  if (!source.holds_chats) return ends;
  try {
    if (const auto token = ChatFormat(source).turn_end().token) ends.push_back(*token);
  } catch (const DataError&) {  // prompts with completions need no template
    return ends;
  }
  if (const auto end = open_tokenizer(source.added.in(source.tokenizer))->special_id("eos")) ends.push_back(*end);
  return ends;
}

}  // namespace trainrun
