#pragma once

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "registry/formats/text/jinja/template.h"

namespace trainrun {

struct TokenizerSource;  // new_tokens.h

/// A conversation as a text.
struct ChatText {
  std::string text;
  std::vector<std::pair<size_t, size_t>> answers;  // what {% generation %} marks in it: begin and end, in bytes
};

/// Further variables of a template, by their names.
using ChatVariables = std::map<std::string, std::variant<bool, int64_t, double, std::string>>;

/// How a model wants conversations to be written: the Jinja template that comes with its tokenizer. Gives the text that
/// transformers' apply_chat_template gives. Safe to use from several threads.
class ChatTemplate {
 public:
  /// `place` names the template in messages. Special tokens are by their roles, as "eos". Throws DataError.
  ChatTemplate(std::string place, const std::string& source, std::map<std::string, std::string> special_tokens,
               ChatVariables variables = {});

  /// `messages` is a list of objects with `role` and `content`; `tools` a list of JSON schemas. Throws DataError.
  ChatText render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json* tools = nullptr,
                  bool add_generation_prompt = false) const;
  /// Whether it marks answers by {% generation %}.
  bool marks_answers() const { return template_.marks(); }
  /// Whether it asks for the date, so that its texts depend on the day.
  bool reads_clock() const { return reads_clock_; }
  const std::string& place() const { return place_; }

 private:
  std::string place_;
  jinja::Template template_;
  bool reads_clock_;
  std::map<std::string, std::string> special_tokens_;
  ChatVariables variables_;
};

/// The template for the tokenizer at `tokenizer`, its folder or one of its files. `given` is the text of a template, the
/// path of a file with one, or the name of one of several that the tokenizer has; nothing: chat_template.jinja in its
/// folder, else `chat_template` in tokenizer_config.json, of several the one called default. Throws DataError.
ChatTemplate open_chat_template(const std::string& tokenizer, const std::optional<std::string>& given,
                                const ChatVariables& variables = {});
/// The same, for a tokenizer to which tokens are added: those that have roles are the template's.
ChatTemplate open_chat_template(const TokenizerSource& tokenizer, const std::optional<std::string>& given,
                                const ChatVariables& variables = {});
/// The text of the template that `given` means there.
std::string chat_template_text(const std::string& tokenizer, const std::string& given);

}  // namespace trainrun
