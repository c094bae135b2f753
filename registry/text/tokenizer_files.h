#pragma once

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "registry/text/pipeline_tokenizer.h"

namespace trainrun {

/// What lies beside a tokenizer's own file.
struct TokenizerConfig {
  std::string file;                                   // tokenizer_config.json, with its folder; "" if there is none
  std::string tokenizer_class;                        // as "BertTokenizer"; "" if it is not said
  std::map<std::string, std::string> special_tokens;  // by their roles: "pad" is "[PAD]"
  std::vector<AddedToken> added_tokens;               // `added_tokens_decoder`
  std::map<std::string, bool> flags;                  // `do_lower_case` and others that are true or false

  bool flag(const std::string& name, bool otherwise) const;
};
/// Reads tokenizer_config.json and special_tokens_map.json in the folder, as far as they are there.
TokenizerConfig read_tokenizer_config(const std::string& folder);

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
