#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/text/json_node.h"
#include "registry/formats/text/vocabulary.h"

namespace trainrun {

/// Turns a word into the ids of its tokens: the `model` of tokenizer.json. Safe to call from several threads.
class TextModel {
 public:
  explicit TextModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TextModel() = default;
  TextModel(const TextModel&) = delete;
  TextModel& operator=(const TextModel&) = delete;

  /// Appends the ids of the word, which is valid UTF-8 and not empty. Throws DataError for a word that the model has no
  /// tokens for, where there is no token for the unknown either.
  virtual void encode(std::string_view word, std::vector<int64_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  virtual bool is_byte_pair() const { return false; }

 protected:
  const Vocabulary vocabulary_;
};

/// Throws DataError for a model that is unknown, or not as it should be.
std::unique_ptr<TextModel> read_text_model(const JsonNode& node);

/// The longest pieces first, from the left. Source: Wu et al. 2016, as in BERT's tokenization.py.
struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string continuing_prefix = "##";
  int64_t most_characters = 100;  // a longer word is unknown
};
/// Throws DataError, which does not name the file, where the vocabulary lacks the unknown token.
std::unique_ptr<TextModel> word_piece_model(Vocabulary vocabulary, const WordPieceOptions& options);

/// Byte-pair encoding. Source: Sennrich et al. 2016.
struct BytePairOptions {
  std::optional<std::string> unknown;
  std::string continuing_prefix, word_suffix;
  bool fuse_unknown = false;   // neighbours that are unknown are one token
  bool byte_fallback = false;  // what is unknown is spelled in tokens <0x00> to <0xFF>
  bool ignore_merges = false;  // a word of the vocabulary is taken whole
};
using Merges = std::vector<std::pair<std::string, std::string>>;
/// Throws DataError, which does not name the file, for a merge of tokens, or into one, that the vocabulary lacks.
std::unique_ptr<TextModel> byte_pair_model(Vocabulary vocabulary, const Merges& merges, const BytePairOptions& options);

/// The likeliest of all segmentations. Source: Kudo 2018, "Subword regularization"; SentencePiece's unigram_model.cc.
/// `scores` are by id; a text that no token covers becomes `unknown`, or its bytes.
std::unique_ptr<TextModel> unigram_model(Vocabulary vocabulary, std::vector<double> scores,
                                         std::optional<int64_t> unknown, bool byte_fallback);
std::unique_ptr<TextModel> read_unigram_model(const JsonNode& node);

/// A word is a token.
std::unique_ptr<TextModel> word_level_model(Vocabulary vocabulary, const std::string& unknown);

}  // namespace trainrun
