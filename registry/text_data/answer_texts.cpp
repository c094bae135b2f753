#include "registry/text_data/answer_texts.h"

#include <algorithm>

#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::ordered_json;

/// A list of messages, each with a role.
bool are_messages(const ordered_json& value) {
  return value.is_array() && !value.empty() && value[0].is_object() && value[0].contains("role");
}

/// How many elements all lists have in common at their begin; of lists that are alike as far as the shortest goes, one
/// less than that, so that each keeps something.
template <class Lists>
size_t shared_begin(const Lists& lists) {
  size_t shortest = lists[0].size();
  for (const auto& list : lists) shortest = std::min(shortest, list.size());
  for (size_t i = 0; i < shortest; ++i) {
    for (const auto& list : lists) {
      if (list[i] != lists[0][i]) return i;
    }
  }
  return shortest == 0 ? 0 : shortest - 1;
}

}  // namespace

std::string taken_prompt(std::vector<std::string>& texts) {
  size_t shared = shared_begin(texts);
  const std::string& first = texts[0];
  while (shared > 0 && (static_cast<unsigned char>(first[shared]) & 0xC0) == 0x80) --shared;  // in a character
  if (shared > 0 && first[shared - 1] == ' ') --shared;  // a word's token begins with its space
  std::string prompt = first.substr(0, shared);
  for (std::string& text : texts) text.erase(0, shared);
  return prompt;
}

AnswerReader::AnswerReader(const AnswerOptions& options, const AnswerKeys& keys, const Tokenizer& tokenizer,
                           TemplateOnDemand& chat_template)
    : options_(options), keys_(keys), template_(chat_template) {
  if (const auto end = tokenizer.special_id("eos")) end_ = tokenizer.token_of(*end).value_or("");
}

void AnswerReader::fail(int64_t line, const std::string& key, const std::string& what) const {
  throw DataError(place(line) + ":" + key + ": " + what);
}

std::string AnswerReader::text_of(const Json& row, const std::string& key, int64_t line) const {
  const auto found = row.find(key);
  if (found == row.end()) throw DataError(place(line) + ": has no key '" + key + "'");
  if (!found->is_string()) fail(line, key, std::string("expected a string, found ") + found->type_name());
  return found->get<std::string>();
}

AnswerReader::Json AnswerReader::messages_of(const Json& row, const std::string& key, int64_t line) const {
  const auto found = row.find(key);
  if (found == row.end()) throw DataError(place(line) + ": has no key '" + key + "'");
  if (!found->is_array()) fail(line, key, std::string("expected a list of messages, found ") + found->type_name());
  for (size_t i = 0; i < found->size(); ++i) {
    const Json& message = (*found)[i];
    const bool has_role = message.is_object() && message.contains("role") && message["role"].is_string();
    if (!has_role || !(message.contains("content") || message.contains("tool_calls"))) {
      fail(line, key + "[" + std::to_string(i) + "]", "expected an object with role and content");
    }
  }
  return *found;
}

AnswerTexts AnswerReader::read(const Json& row, int64_t line) {
  if (!row.is_object()) throw DataError(place(line) + ": expected an object, found " + row.type_name());
  AnswerTexts made;
  made.line = line;
  const auto first = row.find(keys_.answers[0]);
  made.is_chat = first != row.end() && are_messages(*first);
  if (made.is_chat) {
    read_messages(row, made);
  } else {
    read_texts(row, made);
  }
  if (!keys_.number.empty()) made.number = number_of(row, line);
  return made;
}

void AnswerReader::read_texts(const Json& row, AnswerTexts& made) const {
  const bool is_implicit = !row.contains("prompt") && keys_.answers.size() > 1;
  if (!is_implicit) made.prompt = text_of(row, "prompt", made.line);
  for (const std::string& key : keys_.answers) made.answers.push_back(text_of(row, key, made.line));
  if (is_implicit) made.prompt = taken_prompt(made.answers);
  if (options_.tokenize == PairTokens::kApart) return;
  for (std::string& answer : made.answers) answer = ended(made.prompt + answer);
}

/// With the token that ends a text, where it is not written already.
std::string AnswerReader::ended(const std::string& text) const { return text.ends_with(end_) ? text : text + end_; }

void AnswerReader::read_messages(const Json& row, AnswerTexts& made) {
  if (options_.tokenize == PairTokens::kApart) {
    throw DataError(place(made.line) + ": messages become tokens as the chat template writes them; leave tokenize out");
  }
  std::vector<Json> answers;
  for (const std::string& key : keys_.answers) answers.push_back(messages_of(row, key, made.line));
  Json prompt = Json::array();
  if (row.contains("prompt") && row["prompt"].is_array()) {
    prompt = messages_of(row, "prompt", made.line);
  } else if (answers.size() > 1) {  // a prompt that is a text repeats what the answers begin with
    const auto shared = static_cast<std::ptrdiff_t>(shared_begin(answers));
    prompt = Json(Json::array_t(answers[0].begin(), answers[0].begin() + shared));
    for (Json& answer : answers) answer.erase(answer.begin(), answer.begin() + shared);
  } else {
    messages_of(row, "prompt", made.line);
  }
  if (prompt.empty()) fail(made.line, "prompt", "is empty, but an answer needs a message before it");
  Json tools = row.value("tools", Json());
  if (tools.is_string()) tools = Json::parse(tools.get<std::string>(), nullptr, /*allow_exceptions=*/false);
  if (tools.is_discarded()) fail(made.line, "tools", "is not JSON");
  const Json* given = tools.is_null() ? nullptr : &tools;
  try {
    const ChatTemplate& writer = *template_.get();
    made.prompt = writer.render(prompt, given, /*add_generation_prompt=*/true).text;
    for (const Json& answer : answers) {
      Json whole = prompt;
      whole.insert(whole.end(), answer.begin(), answer.end());
      made.answers.push_back(writer.render(whole, given).text);
    }
  } catch (const DataError& error) {
    throw DataError(place(made.line) + ": " + error.what());
  }
}

double AnswerReader::number_of(const Json& row, int64_t line) const {
  const auto found = row.find(keys_.number);
  if (found == row.end()) throw DataError(place(line) + ": has no key '" + keys_.number + "'");
  if (keys_.is_flag && found->is_boolean()) return found->get<bool>() ? 1 : 0;
  if (keys_.is_flag && found->is_number() && (*found == 0 || *found == 1)) return found->get<double>();
  if (!keys_.is_flag && found->is_number()) return found->get<double>();
  fail(line, keys_.number,
       (keys_.is_flag ? "expected true or false, found " : "expected a number, found ") + found->dump());
}

}  // namespace trainrun
