#include "runner/generate/prompts.h"

#include <sstream>
#include <utility>

#include "registry/data/text_corpus.h"
#include "registry/language/error.h"
#include "registry/text_data/conversations.h"

namespace trainrun {

using nlohmann::ordered_json;

PromptMaker::PromptMaker(const LanguageModel& model, bool chat, std::optional<std::string> system)
    : model_(model), chat_(chat), system_(std::move(system)) {}

const ChatFormat& PromptMaker::format() {
  if (format_) return *format_;
  if (model_.chat.tokenizer.empty() || !model_.codec) {
    throw Error("the model has no tokenizer and chat template to write a conversation with; name one (--tokenizer)");
  }
  format_ = std::make_shared<const ChatFormat>(model_.chat);
  return *format_;
}

const std::optional<std::string>& PromptMaker::system() { return system_ ? system_ : format().system(); }

ordered_json PromptMaker::beginning() {
  ordered_json messages = ordered_json::array();
  if (const auto& said = system()) messages.push_back({{"role", "system"}, {"content", *said}});
  return messages;
}

Prompt PromptMaker::of_text(const std::string& text, const std::string& origin) {
  if (!chat_) return prompt_of(text, origin, model_);
  ordered_json messages = beginning();
  messages.push_back({{"role", "user"}, {"content", text}});
  return of_messages(std::move(messages), nullptr, origin);
}

Prompt PromptMaker::of_messages(ordered_json messages, const ordered_json& tools, const std::string& origin) {
  if (!messages.empty() && messages.back()["role"] == "assistant") {
    throw DataError(origin + ": the last message is the assistant's, but an answer follows another's; remove it");
  }
  ChatFormat::Written written = format().write(messages, tools, origin);
  Prompt prompt = prompt_of(written.tokens, origin, model_);
  prompt.text = std::move(written.text);
  prompt.messages = std::move(messages);
  return prompt;
}

Prompt PromptMaker::of_object(const std::string& line, const std::string& origin) {
  const nlohmann::json object = json_object(line, origin);
  const auto text = object.find("prompt");
  if (text != object.end() && text->is_string()) return of_text(text->get<std::string>(), origin);
  const auto ids = object.find("input_ids");
  if (text == object.end() && ids != object.end()) {
    std::vector<int64_t> tokens;
    for (const auto& id : *ids) {
      if (!id.is_number_integer()) throw DataError(origin + ":input_ids: expected whole numbers, found " + id.dump());
      tokens.push_back(id.get<int64_t>());
    }
    return prompt_of(tokens, origin, model_);
  }
  if (text != object.end() && !text->is_array()) {
    throw DataError(origin + ":prompt: expected a string or a list of messages, found " + text->type_name());
  }
  if (text == object.end() && !object.contains("messages") && !object.contains("conversations")) {
    throw DataError(origin + ": has no key 'prompt', 'messages' or 'input_ids'");
  }
  Conversation chat = conversation_in(line, origin, system());
  return of_messages(std::move(chat.messages), chat.tools, origin);
}

std::vector<Prompt> PromptMaker::of_lines(const std::string& content, const std::string& origin, bool is_json) {
  std::vector<Prompt> prompts;
  std::istringstream lines(content);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    if (line.ends_with('\r')) line.pop_back();
    const std::string place = origin + ":" + std::to_string(number);
    prompts.push_back(is_json ? of_object(line, place) : of_text(line, place));
  }
  if (prompts.empty()) throw DataError(origin + ": has no prompts");
  return prompts;
}

GenerationSettings PromptMaker::with_turn_end(GenerationSettings options) const {
  if (!format_) return options;
  const TurnEnd end = format_->turn_end();
  if (end.token) options.end_tokens.push_back(*end.token);
  if (!end.text.empty()) options.stop.push_back(end.text);
  return options;
}

}  // namespace trainrun
