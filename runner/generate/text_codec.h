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
  /// Without special tokens, unless asked for. What ends in the midst of a character ends with U+FFFD.
  virtual std::string decode(const std::vector<int64_t>& tokens, bool with_special_tokens = false) const = 0;
  /// The token of that text, if there is one.
  virtual std::optional<int64_t> id_of(const std::string& token) const = 0;
  /// Whether tokens of this text are left out where others are decoded.
  virtual bool has_special_token(const std::string& /*text*/) const { return false; }
  virtual int64_t vocab_size() const = 0;
  /// A token as the vocabulary has it; its number where it is not in there.
  virtual std::string token(int64_t id) const = 0;
  /// The token that stands for what the tokenizer does not know, if there is one.
  virtual std::optional<int64_t> unknown_token() const { return std::nullopt; }
  /// What a user should know of the tokenizer's files.
  virtual std::vector<std::string> notes() const { return {}; }
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

/// The characters that are the tokens, in their order, among what the training data have learnt; nothing: they learnt
/// none.
std::optional<std::string> characters_in(const nlohmann::json& learnt);

/// What a user should know of the tokenizers that the recipe's data name.
std::vector<std::string> notes_of_tokenizers(const Recipe& recipe);
/// What the training data put behind each document: their parameter `end_of_document`, or those of data within them.
std::vector<std::string> ends_of_documents(const Recipe& recipe);

}  // namespace trainrun
