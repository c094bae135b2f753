#pragma once

#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "registry/formats/text/new_tokens.h"
#include "runner/train/evaluation.h"

namespace trainrun {

/// The tokenizer by which a run's training data made tokens of texts.
struct TokenizerOfData {
  std::filesystem::path given;               // a folder, or one of its files; empty: characters are the tokens
  std::filesystem::path file;                // the tokenizer's own
  std::optional<std::string> chat_template;  // what the recipe says of it; null: the folder's own, if it has one
  std::string characters;                    // in their order, in UTF-8
  bool is_of_data = true;                    // else of the folder that the model began from
  NewTokens added = {};                      // to it, by the recipe

  bool has_characters() const { return given.empty(); }
};
/// Where the data name none, that of the folder `pretrained`. Nothing: there is none. Throws DataError where it has been
/// removed since.
std::optional<TokenizerOfData> tokenizer_of_data(const TrainedRun& run, const std::string& pretrained);

/// SHA-256 of the tokenizer's own file, with what is added to it, or of the characters.
std::string digest_of(const TokenizerOfData& tokenizer);

/// Writes the tokenizer into `folder` so that transformers' AutoTokenizer reads it, and opens it there. `config`: what
/// the folder's config.json says; `max_length`: to how many tokens a text is cut, special tokens included. Null, with a
/// note for `run`: it is not that of the data, cannot be read here, and was copied as it is.
std::shared_ptr<const Tokenizer> export_tokenizer(TrainedRun& run, const TokenizerOfData& tokenizer,
                                                  const nlohmann::json& config, std::optional<int64_t> max_length,
                                                  const std::filesystem::path& folder);

}  // namespace trainrun
