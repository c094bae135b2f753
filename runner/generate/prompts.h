#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/generate/chat_format.h"
#include "runner/generate/generation.h"

namespace trainrun {

/// Makes prompts of what a user gives: texts, messages of a conversation, tokens.
class PromptMaker {
 public:
  /// `chat`: a text is what the user says in a conversation. `system`: the system message of conversations that have
  /// none; null: that of the training data, if they have one. The model must outlive this.
  PromptMaker(const LanguageModel& model, bool chat, std::optional<std::string> system);

  /// Throws Error.
  Prompt of_text(const std::string& text, const std::string& origin);
  /// Of a conversation, whose last message is not the assistant's. Throws DataError, Error.
  Prompt of_messages(nlohmann::ordered_json messages, const nlohmann::ordered_json& tools, const std::string& origin);
  /// Of each line: a text or, where `is_json`, an object with `prompt`, `input_ids`, or the messages of a conversation,
  /// as Chat reads them. Throws DataError, Error.
  std::vector<Prompt> of_lines(const std::string& content, const std::string& origin, bool is_json);

  /// A conversation before anything is said: its system message, if there is one.
  nlohmann::ordered_json beginning();
  /// `options` with what ends an answer of a conversation by its template, if any was made.
  GenerationSettings with_turn_end(GenerationSettings options) const;
  /// How conversations are written; read when first asked for. Throws DataError where the model has no chat template.
  const ChatFormat& format();

 private:
  Prompt of_object(const std::string& line, const std::string& origin);
  const std::optional<std::string>& system();

  const LanguageModel& model_;
  bool chat_;
  std::optional<std::string> system_;
  std::shared_ptr<const ChatFormat> format_;
};

}  // namespace trainrun
