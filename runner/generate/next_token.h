#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "registry/graph/decoding.h"
#include "runner/generate/language_model.h"

namespace trainrun {

/// The logits of the token that follows each of several texts, which grow token by token. Keys and values of the tokens
/// so far are kept, where all layers of the model can go on from there; otherwise each token computes the whole text
/// anew. Texts of different lengths run together, padded on the left, and each gives what it gives alone.
///
/// A text that is longer than the positions that the model has is seen by its last tokens only, as in nanoGPT; from
/// there on each token computes all of them anew, since the place of every one has changed.
class NextToken {
 public:
  /// `use_cache`: false: always the whole text. The model must outlive this. Throws Error where it reads what a text
  /// that is generated has not.
  NextToken(const LanguageModel& model, bool use_cache);

  /// Why nothing is kept: the layer that cannot go on. Nothing: all can, or nothing is to be kept.
  const std::optional<std::string>& why_not_kept() const { return undecodable_; }
  /// How many tokens the model sees at most, if it says so.
  const std::optional<int64_t>& most_tokens() const { return most_; }

  /// Begins with these texts, each of one token or more; [texts, V] float32 on the CPU.
  at::Tensor begin(std::vector<std::vector<int64_t>> texts);
  /// Adds a token to each text.
  at::Tensor go_on(const std::vector<int64_t>& tokens);
  const std::vector<std::vector<int64_t>>& texts() const { return texts_; }

 private:
  using Rows = std::vector<std::vector<int64_t>>;

  bool is_too_long() const;
  at::Tensor all_anew();
  at::Tensor begin_cache();
  at::Tensor run(const at::Tensor& ids, Decoding* decoding) const;
  Tensors inputs_for(const at::Tensor& ids, const DecodingPoint& point) const;

  const LanguageModel& model_;
  std::optional<std::string> undecodable_;
  std::optional<int64_t> most_;
  bool keeps_;
  Rows texts_;
  std::unique_ptr<Decoding> decoding_;  // null: nothing is kept
};

}  // namespace trainrun
