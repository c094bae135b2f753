#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/formats/text/chat_template.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/language/codec.h"
#include "registry/text_data/conversations.h"

namespace trainrun {

/// Which tokens of a conversation are to be predicted.
enum class TrainOn { kAnswers, kLastAnswer, kAll };
template <>
struct Words<TrainOn> {
  static constexpr std::array kWords = {"answers", "last_answer", "all"};
};

/// A conversation as tokens.
struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> counts;  // of each: 1 where it is to be predicted
};

/// Turns conversations into tokens. Safe to use from several threads.
class ChatEncoder {
 public:
  /// `chat_template` may be null, as long as all rows are plain prompts with their completions.
  ChatEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
              TrainOn train_on);

  /// Throws DataError, which begins with the conversation's place.
  ChatTokens encode(const Conversation& chat) const;

 private:
  /// Tokens from one number up to another.
  using Stretch = std::pair<size_t, size_t>;
  std::vector<int64_t> tokens(const std::string& text) const;
  ChatTokens of_template(const Conversation& chat) const;
  ChatTokens of_texts(const Conversation& chat) const;
  std::vector<bool> wanted(const Conversation& chat) const;
  std::vector<Stretch> marked(const Conversation& chat, const ChatText& whole, const std::vector<int64_t>& ids) const;
  Stretch found(const Conversation& chat, size_t answer, const std::string& whole,
                const std::vector<int64_t>& ids) const;
  /// How many tokens end before this byte of the text, or there; and how many begin before it.
  struct Border {
    size_t ended, begun;
  };
  Border border(const std::string& whole, const std::vector<int64_t>& ids, size_t byte) const;
  /// The tokens of the bytes from `begin` to `end`: also those that lie across these, as in transformers.
  Stretch stretch(const std::string& whole, const std::vector<int64_t>& ids, size_t begin, size_t end) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;
  TrainOn train_on_;
};

}  // namespace trainrun
