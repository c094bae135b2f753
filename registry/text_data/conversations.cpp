#include "registry/text_data/conversations.h"

#include <algorithm>
#include <array>
#include <map>

#include "registry/data/data_file.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/text_corpus.h"
#include "registry/formats/files/json_depth.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

constexpr int kMostNested = 64;
constexpr size_t kMostKeys = 4096;  // of one object: putting them in their order takes time with their square

/// Throws DataError, also where values lie too deep in each other, or an object has too many keys.
ordered_json parsed(std::string_view text, const std::string& place) {
  using Event = ordered_json::parse_event_t;
  std::vector<size_t> keys;  // of the objects around
  const auto check = [&](int, Event event, const ordered_json&) {
    if (event == Event::object_start) keys.push_back(0);
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && ++keys.back() > kMostKeys)
      throw DataError(place + ": an object has more than 4096 keys");
    return true;
  };
  check_json_depth(text, kMostNested, place);
  try {
    return ordered_json::parse(text, check);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(place + ": is not JSON: " + json_fault(error));
  }
}

/// One object of the file, on its way to a conversation.
class Row {
 public:
  Row(const ordered_json& object, std::string place) : object_(object), place_(std::move(place)) {
    if (!object_.is_object()) throw DataError(place_ + ": expected an object, found " + object_.type_name());
  }

  Conversation conversation(const std::optional<std::string>& system) const {
    Conversation made;
    made.place = place_;
    made.messages = ordered_json::array();
    if (has("messages")) {
      add_messages(made, list("messages"), "messages");
    } else if (has("conversations")) {
      add_share_gpt(made);
    } else if (has("prompt") && has("completion")) {
      add_completion(made);
    } else if (has("prompt") && object_["prompt"].is_array()) {
      add_messages(made, list("prompt"), "prompt", /*has_answers=*/false);
    } else if (has("instruction") && has("output")) {
      add_instruction(made);
    } else {
      throw DataError(place_ +
                      ": expected the keys messages, or conversations, or prompt and completion, or instruction and "
                      "output");
    }
    if (made.plain) return made;
    if (made.messages.empty()) fail("messages", "is empty");
    if (system && made.messages[0]["role"] != "system") {
      made.messages.insert(made.messages.begin(), message("system", *system));
      made.is_answer.insert(made.is_answer.begin(), false);
    }
    if (has("tools") && !object_["tools"].is_null()) made.tools = list("tools");
    return made;
  }

 private:
  bool has(const char* key) const { return object_.contains(key); }
  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    throw DataError(place_ + ":" + key + ": " + what);
  }
  const ordered_json& list(const char* key) const {
    if (!object_[key].is_array()) fail(key, std::string("expected a list, found ") + object_[key].type_name());
    return object_[key];
  }
  std::string text_of(const ordered_json& object, const char* key, const std::string& at) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(at, std::string("has no key '") + key + "'");
    if (!found->is_string()) fail(at, std::string(key) + ": expected a string, found " + found->type_name());
    return found->get<std::string>();
  }
  std::string text(const char* key) const {
    if (!object_[key].is_string()) fail(key, std::string("expected a string, found ") + object_[key].type_name());
    return object_[key].get<std::string>();
  }
  static ordered_json message(const std::string& role, const std::string& content) {
    return ordered_json{{"role", role}, {"content", content}};
  }
  static void add(Conversation& made, ordered_json message, bool is_answer) {
    made.messages.push_back(std::move(message));
    made.is_answer.push_back(is_answer);
  }

  /// Whether a message is to be learnt, where it is an answer: 0 or 1.
  int weight_of(const ordered_json& message, const std::string& at) const {
    const auto weight = message.find("weight");
    if (weight == message.end() || weight->is_null()) return 1;
    if (!weight->is_number() || (*weight != 0 && *weight != 1)) fail(at, "weight: expected 0 or 1");
    return *weight == 0 ? 0 : 1;
  }

  /// OpenAI's messages; a `weight` of 0 says that an answer is not to be learnt.
  void add_messages(Conversation& made, const ordered_json& messages, const std::string& key,
                    bool has_answers = true) const {
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string at = key + "[" + std::to_string(i) + "]";
      if (!messages[i].is_object()) fail(at, std::string("expected an object, found ") + messages[i].type_name());
      const std::string role = text_of(messages[i], "role", at);
      const auto content = messages[i].find("content");
      const bool calls = messages[i].contains("tool_calls");
      if (content == messages[i].end() ? !calls
                                       : !(content->is_string() || content->is_array() || content->is_null())) {
        fail(at,
             content == messages[i].end() ? "has no key 'content'" : "content: expected a string or a list of parts");
      }
      const bool counts = weight_of(messages[i], at) != 0;
      add(made, messages[i], has_answers && role == "assistant" && counts);
    }
  }

  void add_share_gpt(Conversation& made) const {
    static const std::map<std::string, const char*> roles = {
        {"human", "user"},    {"user", "user"}, {"gpt", "assistant"},   {"assistant", "assistant"},
        {"system", "system"}, {"tool", "tool"}, {"observation", "tool"}};
    if (has("system") && !object_["system"].is_null()) add(made, message("system", text("system")), false);
    const ordered_json& turns = list("conversations");
    for (size_t i = 0; i < turns.size(); ++i) {
      const std::string at = "conversations[" + std::to_string(i) + "]";
      if (!turns[i].is_object()) fail(at, std::string("expected an object, found ") + turns[i].type_name());
      const std::string from = text_of(turns[i], "from", at);
      const auto role = roles.find(from);
      if (role == roles.end()) {
        std::vector<std::string> known;
        for (const auto& [name, unused] : roles) known.push_back(name);
        fail(at, "from: '" + from + "' is not known; known: " + join(known));
      }
      const bool counts = weight_of(turns[i], at) != 0;
      add(made, message(role->second, text_of(turns[i], "value", at)),
          role->second == std::string("assistant") && counts);
    }
    if (turns.empty()) fail("conversations", "is empty");
  }

  /// Of texts, or of messages; of these the completion's alone are answers.
  void add_completion(Conversation& made) const {
    if (object_["prompt"].is_array()) {
      add_messages(made, list("prompt"), "prompt", /*has_answers=*/false);
      add_messages(made, list("completion"), "completion");
      return;
    }
    made.plain = {text("prompt"), text("completion")};
    if (made.plain->second.empty()) fail("completion", "is empty");
  }

  /// The input follows the instruction after an empty line.
  void add_instruction(Conversation& made) const {
    if (has("system") && !object_["system"].is_null()) add(made, message("system", text("system")), false);
    if (has("history")) fail("history", "is not supported; write the conversation as messages");
    std::string asked = text("instruction");
    const std::string input = has("input") && !object_["input"].is_null() ? text("input") : "";
    if (!input.empty()) asked += "\n\n" + input;
    add(made, message("user", asked), false);
    add(made, message("assistant", text("output")), true);
  }

  const ordered_json& object_;
  std::string place_;
};

ordered_json json_of(const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kMissing:
      return nullptr;
    case Cell::Kind::kText:
      return cell.text;
    case Cell::Kind::kInteger:
      return cell.is_boolean ? ordered_json(cell.integer != 0) : ordered_json(cell.integer);
    case Cell::Kind::kNumber:
      return cell.number;
    case Cell::Kind::kList: {
      ordered_json list = ordered_json::array();
      for (const Cell& item : cell.list) list.push_back(json_of(item));
      return list;
    }
    case Cell::Kind::kObject:
      break;
  }
  ordered_json object = ordered_json::object();
  for (size_t i = 0; i < cell.keys.size(); ++i) object[cell.keys[i]] = json_of(cell.list[i]);
  return object;
}

/// Calls `take` with each row: an object of those of `columns` that the file has, as far as the row has values.
/// `expected`: what the file ought to have, for messages.
void for_each_object(const std::string& path, const std::vector<std::string>& columns, const std::string& expected,
                     const std::function<void(const ordered_json& object, int64_t row)>& take) {
  const auto reader = open_arrow_table(path, ObjectColumns::kRead);
  std::vector<size_t> places;
  for (size_t i = 0; i < reader->names().size(); ++i) {
    if (std::find(columns.begin(), columns.end(), reader->names()[i]) != columns.end()) places.push_back(i);
  }
  if (places.empty()) {
    throw DataError(path + ": has none of the columns of " + expected + "; it has " + join(reader->names()));
  }
  reader->read_only(places);
  std::vector<Cell> row;
  while (reader->next(row)) {
    ordered_json object = ordered_json::object();
    for (const size_t place : places) {
      if (row[place].kind != Cell::Kind::kMissing) object[reader->names()[place]] = json_of(row[place]);
    }
    take(object, reader->row_number());
  }
}

}  // namespace

void for_each_row(const std::string& path, const std::vector<std::string>& columns,
                  const std::function<void(const ordered_json& row, int64_t line)>& take) {
  if (is_arrow_file(path)) return for_each_object(path, columns, join(columns), take);
  for_each_line(path, std::nullopt, [&](std::string_view line, int64_t number) {
    take(parsed(line, path + ":" + std::to_string(number)), number);
  });
}

Conversation conversation_in(std::string_view line, const std::string& place,
                             const std::optional<std::string>& system) {
  const ordered_json row = parsed(line, place);
  return Row(row, place).conversation(system);
}

void for_each_conversation(const std::string& path, const std::optional<std::string>& system,
                           const std::function<void(Conversation)>& take) {
  if (is_arrow_file(path)) {
    const std::vector<std::string> columns = {"messages", "conversations", "prompt", "completion", "instruction",
                                              "input",    "output",        "system", "history",    "tools"};
    const std::string expected =
        "conversations: messages, or conversations, or prompt and completion, or instruction and output";
    return for_each_object(path, columns, expected, [&](const ordered_json& object, int64_t row) {
      take(Row(object, path + ":" + std::to_string(row)).conversation(system));
    });
  }
  const std::string text = has_extension(path, ".json") ? read_text_file(path) : "";
  const size_t first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first != std::string::npos && text[first] == '[') {  // else an object in each line
    const ordered_json rows = parsed(text, path);
    for (size_t i = 0; i < rows.size(); ++i) {
      take(Row(rows[i], path + "[" + std::to_string(i) + "]").conversation(system));
    }
    return;
  }
  for_each_line(path, std::nullopt, [&](std::string_view line, int64_t number) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    const std::string place = path + ":" + std::to_string(number);
    const ordered_json row = parsed(line, place);
    take(Row(row, place).conversation(system));
  });
}

}  // namespace trainrun
