#pragma once

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "registry/formats/text/pipeline_tokenizer.h"

namespace trainrun {

/// What lies beside a tokenizer's own file.
struct TokenizerConfig {
  std::string file;                                   // tokenizer_config.json, with its folder; "" if there is none
  std::string tokenizer_class;                        // as "BertTokenizer"; "" if it is not said
  std::map<std::string, std::string> special_tokens;  // by their roles: "pad" is "[PAD]"
  std::vector<AddedToken> added_tokens;               // `added_tokens_decoder`, or added_tokens.json
  // Special tokens that the files name without their ids, in the order in which a vocabulary gets those that it lacks.
  std::vector<AddedToken> role_tokens;
  std::vector<AddedToken> named_tokens;  // of roles that only some models have ("image_token"), in no order
  std::vector<AddedToken> extra_tokens;
  std::optional<Truncation::Side> truncation_side;  // where tokens go; nothing: the files do not say
  std::optional<bool> pads_left;
  std::vector<std::string> unknown_keys;  // of tokenizer_config.json
  std::map<std::string, bool> flags;      // `do_lower_case` and others that are true or false

  bool flag(const std::string& name, bool otherwise) const;
};
/// Reads tokenizer_config.json, special_tokens_map.json and added_tokens.json in the folder, as far as they are there and
/// transformers reads them. Throws DataError for what would change tokens and is not available.
TokenizerConfig read_tokenizer_config(const std::string& folder);

/// Adds those tokens that the files beside a tokenizer's own name and it does not have, as transformers does: special ones,
/// behind all others. Throws DataError where one would get another id than the files say.
void add_missing_tokens(Pipeline& parts, const TokenizerConfig& config);

struct NewTokens;    // new_tokens.h
struct TokenGrowth;  // the same
/// Adds what a recipe adds, as transformers does; see open_tokenizer(TokenizerSource).
TokenGrowth add_new_tokens(Pipeline& parts, const NewTokens& added);

/// Hugging Face's tokenizer.json. `file` is its name in messages.
Pipeline read_tokenizer_json(const std::string& file, const nlohmann::json& content);
/// BERT's vocab.txt: a token a line.
Pipeline read_vocab_txt(const std::string& file, const TokenizerConfig& config);
/// GPT-2's and RoBERTa's vocab.json and merges.txt.
Pipeline read_vocab_and_merges(const std::string& vocab_file, const std::string& merges_file,
                               const TokenizerConfig& config);
/// SentencePiece's tokenizer.model, of kind Unigram or BPE.
Pipeline read_sentence_piece(const std::string& file, const std::string& content, const TokenizerConfig& config);

}  // namespace trainrun
