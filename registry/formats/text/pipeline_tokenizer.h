#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/formats/text/added_tokens.h"
#include "registry/formats/text/decoder.h"
#include "registry/formats/text/normalizer.h"
#include "registry/formats/text/post_processor.h"
#include "registry/formats/text/pre_tokenizer.h"
#include "registry/formats/text/text_model.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/formats/text/word_cache.h"

namespace trainrun {

/// A tokenizer as tokenizer.json describes it. All but the model may be missing.
struct Pipeline {
  std::unique_ptr<const Normalizer> normalizer;
  std::unique_ptr<const PreTokenizer> pre_tokenizer;
  std::unique_ptr<const TextModel> model;
  AddedTokens added;
  PostProcessor post_processor;
  std::unique_ptr<const Decoder> decoder;
  std::optional<Truncation> truncation;
  std::optional<Padding> padding;
  std::map<std::string, std::string> special_tokens;  // by their roles: "pad" is "[PAD]"
  Truncation::Side truncation_side = Truncation::Side::kRight;
  bool pads_left = false;
  bool cleans_up = false;  // blanks before punctuation go when texts are decoded
};

/// One more than the highest id.
int64_t vocab_size_of(const TextModel& model, const AddedTokens& added);

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline) : parts_(std::move(pipeline)) {}

  using Tokenizer::encode;
  Encoding encode(const TextPair& texts, const std::optional<Truncation>& truncation,
                  bool add_special_tokens) const override;
  WordEncoding encode_words(std::span<const std::string> words, const std::optional<Truncation>& truncation,
                            bool add_special_tokens) const override;
  std::string decode(const std::vector<int64_t>& ids, bool skip_special_tokens) const override;
  int64_t vocab_size() const override { return vocab_size_of(*parts_.model, parts_.added); }
  std::optional<int64_t> id_of(const std::string& token) const override;
  std::optional<std::string> token_of(int64_t id) const override;
  std::optional<int64_t> special_id(const std::string& role) const override;
  bool is_added(int64_t id) const override { return parts_.added.token(id) != nullptr; }
  bool is_special(int64_t id) const override;
  Truncation::Side truncation_side() const override { return parts_.truncation_side; }
  bool pads_left() const override { return parts_.pads_left; }
  std::optional<Truncation> file_truncation() const override { return parts_.truncation; }
  std::optional<Padding> file_padding() const override { return parts_.padding; }

 private:
  /// The tokens of a text without special ones, and how many there are up to the end of each word.
  struct Tokens {
    std::vector<int64_t> ids;
    std::vector<int64_t> ends;
    void end_word() { ends.push_back(static_cast<int64_t>(ids.size())); }
  };
  Tokens tokens_of(std::string_view bytes) const;
  int64_t num_special(const Truncation& truncation, bool pair, bool add_special_tokens) const;
  void add_words(std::string_view text, bool first, WordCaches::Loan& cache, Tokens& tokens) const;
  static int64_t considered(const Tokens& tokens, const Truncation& truncation);

  Pipeline parts_;
  mutable WordCaches caches_;
};

}  // namespace trainrun
