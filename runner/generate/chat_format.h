#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/formats/text/chat_template.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/tokenizer.h"
#include "runner/recipe/recipe.h"

namespace trainrun {

/// What says how a model's conversations are written.
struct ChatSource {
  std::string tokenizer;                     // a folder or file; "" for none
  std::optional<std::string> chat_template;  // as open_chat_template takes it; null: the tokenizer's own
  ChatVariables variables;
  std::optional<std::string> system;  // what the system says where a conversation does not
  bool holds_chats = false;           // the training data are made of conversations, or may be
  NewTokens added = {};               // to the tokenizer
};

/// As the training data of a recipe say it, or data within them (Mixture, Split).
ChatSource chat_source_of(const Recipe& recipe);

/// What follows an answer in a conversation: one of these, or neither where the template writes nothing that tells.
struct TurnEnd {
  std::optional<int64_t> token;  // a special token
  std::string text;              // of templates without one: what stands between an answer and the next question
};

/// A model's conversations as tokens.
class ChatFormat {
 public:
  /// Throws DataError where there is no template, or it cannot be read.
  explicit ChatFormat(const ChatSource& source);

  struct Written {
    std::string text;
    std::vector<int64_t> tokens;
  };
  /// The conversation up to where the assistant's next answer begins, as transformers' apply_chat_template with
  /// add_generation_prompt gives it. `tools`: null for none. Throws DataError, which begins with `origin`.
  Written write(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                const std::string& origin) const;
  /// What the template writes behind an answer.
  TurnEnd turn_end() const;
  const std::optional<std::string>& system() const { return system_; }

 private:
  bool is_special(int64_t id) const;
  std::optional<int64_t> first_special(const std::string& text) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  ChatTemplate template_;
  std::optional<std::string> system_;
};

/// The tokens of which one has to be learnt so that answers end: the template's end of turn first, then the
/// tokenizer's end of text. Empty: the training data are not conversations, or no template writes them.
std::vector<int64_t> turn_ends_of(const Recipe& recipe);

}  // namespace trainrun
