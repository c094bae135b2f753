#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "registry/kinds/batch.h"
#include "runner/generate/text_codec.h"
#include "runner/report/surveyed_data.h"

namespace trainrun {

/// The fields of one text in a batch: its tokens, which of them are padding, and what is to be predicted at each.
struct TokenFields {
  std::string ids;                    // "input_ids", "chosen_input_ids"
  std::optional<std::string> mask;    // "attention_mask"; null: no sample is padded but behind its last target
  std::optional<std::string> labels;  // of each token; null: the target is not of tokens
  int64_t ignore_index = -100;
  int64_t max_length = 0;
};
/// The texts among the fields of a set of data, and which other fields belong to them (`used`).
std::vector<TokenFields> token_fields(const DatasetInfo& info, std::unordered_set<std::string>& used);

/// Lengths, padding, targets and unknown tokens of one text, batch by batch.
class TokenMeasure {
 public:
  /// `codec`: null where tokens are only numbers.
  /// `turn_ends`: the tokens of which one ends an answer in a conversation, the template's own first; empty: the texts
  /// are not conversations, or have no such token.
  TokenMeasure(TokenFields fields, std::shared_ptr<const TextCodec> codec, std::vector<int64_t> turn_ends = {})
      : fields_(std::move(fields)), codec_(std::move(codec)), turn_ends_(std::move(turn_ends)) {}

  void add(const Batch& batch);
  /// The text of sample `row` of a batch.
  SurveyedSet::TokenRow row(const Batch& batch, int64_t row) const;
  SurveyedSet::Tokens found() const;
  /// What is suspicious, a sentence each.
  std::vector<std::string> warnings() const;

 private:
  /// Tokens of sample `row` before its padding.
  int64_t length_of(const Batch& batch, int64_t row) const;

  TokenFields fields_;
  std::shared_ptr<const TextCodec> codec_;
  std::vector<int64_t> lengths_;
  std::unordered_set<int64_t> distinct_;
  int64_t positions_ = 0;  // with padding
  std::vector<int64_t> turn_ends_;
  bool learns_turn_end_ = false;
  int64_t targets_ = 0;
  int64_t unknown_ = 0;
  int64_t batches_ = 0;
  int64_t batches_without_target_ = 0;
  int64_t samples_without_target_ = 0;
  bool is_packed_ = false;  // the mask numbers several texts of a sample, which are to fill it
};

}  // namespace trainrun
