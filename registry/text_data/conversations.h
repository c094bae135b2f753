#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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

/// That of one object, written as JSON; `prompt` alone may be a list of messages, too. Throws DataError, which begins
/// with `place`.
Conversation conversation_in(std::string_view line, const std::string& place, const std::optional<std::string>& system);

/// Calls `take` with each object of a .jsonl file, plain or .gz, and the number of its line, or with each row of a
/// .parquet, .arrow or .feather file, of which only `columns` are read. Throws DataError naming file and line.
void for_each_row(const std::string& path, const std::vector<std::string>& columns,
                  const std::function<void(const nlohmann::ordered_json& row, int64_t line)>& take);

}  // namespace trainrun
