#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/recipe/recipe.h"

namespace trainrun {

/// Texts as the tokens of a language model, and back.
class TextCodec {
 public:
  virtual ~TextCodec() = default;
  /// Throws DataError, which names `origin`, where the text has a character that the model does not know.
  virtual std::vector<int64_t> encode(const std::string& text, const std::string& origin) const = 0;
  /// Without special tokens. What ends in the midst of a character ends with U+FFFD.
  virtual std::string decode(const std::vector<int64_t>& tokens) const = 0;
  virtual int64_t vocab_size() const = 0;
  /// A token as the vocabulary has it; its number where it is not in there.
  virtual std::string token(int64_t id) const = 0;
  /// The token that stands for what the tokenizer does not know, if there is one.
  virtual std::optional<int64_t> unknown_token() const { return std::nullopt; }
  /// The token that ends a text, if the tokenizer names one.
  virtual std::optional<int64_t> end_token() const { return std::nullopt; }
};

/// The characters of a text, numbered in their order (TextLM's `tokenizer: characters`).
std::shared_ptr<const TextCodec> characters_codec(const std::string& alphabet);
/// A tokenizer's folder or file, as open_tokenizer reads it; `with_special_tokens`: a text begins with those that the
/// tokenizer puts there. Throws DataError.
std::shared_ptr<const TextCodec> tokenizer_codec(const std::string& path, bool with_special_tokens);

/// How the training data of a recipe encode texts: its parameter `tokenizer`, that of data within it (Subset, Concat), or
/// the characters among what the data have learnt. Null: they do not say.
std::shared_ptr<const TextCodec> codec_of_data(const Recipe& recipe, const nlohmann::json& learnt);

}  // namespace trainrun
