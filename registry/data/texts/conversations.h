#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainrun {

/// A conversation as a file has it, in OpenAI's form.
struct Conversation {
  std::string place;                // "chats.jsonl:7"
  nlohmann::ordered_json messages;  // objects with `role` and `content`
  nlohmann::ordered_json tools;     // null: there are none
  std::vector<bool> is_answer;      // of each message: whether the assistant says it, and it is to be learnt
  /// A prompt and what follows it, as texts that no template puts together; then there are no messages.
  std::optional<std::pair<std::string, std::string>> plain;
};

/// Calls `take` with each conversation of a file: .jsonl, an object in each line, or .json, a list of them, both plain
/// or .gz; or .parquet, .arrow or .feather, an object in each row. An object has `messages` (OpenAI), `conversations`
/// (ShareGPT), `prompt` and `completion`, or `instruction`, perhaps `input`, and `output` (Alpaca). `system` is said
/// first where nothing else is. Throws DataError naming file, line and key.
void for_each_conversation(const std::string& path, const std::optional<std::string>& system,
                           const std::function<void(Conversation)>& take);

}  // namespace trainrun
