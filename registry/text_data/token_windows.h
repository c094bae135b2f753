#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "registry/data/mixed_texts.h"
#include "registry/kinds/dataset.h"

namespace trainrun {

/// Which stretches of a row of tokens are samples.
enum class BlockSampling { kBlocks, kRandom };
template <>
struct Words<BlockSampling> {
  static constexpr std::array kWords = {"blocks", "random"};
};

struct BlockOptions {
  int64_t block_size = 0;
  BlockSampling sampling = BlockSampling::kBlocks;
  std::optional<int64_t> num_samples;

  template <class T>
  static void describe_into(Fields<T>& f) {
    f.required("block_size", &T::block_size).at_least(1).unit("tokens").doc("length of a sample");
    f.optional("sampling", &T::sampling)
        .doc(
            "blocks: one after the other, each token once; random: each sample begins anywhere, drawn anew in each "
            "epoch");
    f.optional("num_samples", &T::num_samples)
        .at_least(1)
        .doc("with sampling: random, samples in an epoch; null: as many as there are blocks");
    f.rule({.when = {the("num_samples").is_given()},
            .all = {the("sampling").is("random")},
            .at = "num_samples",
            .message = "is for sampling: random; otherwise the text says how many blocks there are"});
  }
};

/// Tokens in a row, of two or four bytes each; what owns them lives as long.
struct TokenRow {
  std::shared_ptr<const void> owner;
  const uint16_t* narrow = nullptr;  // one of the two
  const uint32_t* wide = nullptr;
  int64_t size = 0;

  static TokenRow of(std::vector<uint32_t> tokens);
  int64_t operator[](int64_t i) const { return narrow ? int64_t{narrow[i]} : int64_t{wide[i]}; }
};

/// Samples for causal language modelling, cut out of a row of tokens: `input_ids` [L], and `labels` [L], which are
/// shifted already: labels[i] is the token that follows input_ids[i].
class TokenWindows : public Dataset {
 public:
  explicit TokenWindows(BlockOptions options) : blocks_(options) {}

  DatasetInfo info() const override;
  int64_t size() const override;
  Batch get(const at::Tensor& indices) const override;
  Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const override;
  DatasetFacts facts() const override;

 protected:
  /// A stretch of the row that no sample leaves: a document, or everything.
  struct Stretch {
    int64_t begin = 0;
    int64_t size = 0;
  };

  /// The tokens, and what they are called in messages ("input.txt"). Throws DataError where they are fewer than a block.
  void set_tokens(TokenRow tokens, std::string origin);
  /// The same for documents of which each begins a block of its own; what is left of its last block is padding.
  void set_tokens(TokenRow tokens, std::string origin, const std::vector<Stretch>& documents);
  const BlockOptions& blocks() const { return blocks_; }

 private:
  std::string place(int64_t index, const std::string& field) const;
  void fill(const Stretch& from, int64_t* ids, int64_t* labels) const;

  BlockOptions blocks_;
  TokenRow tokens_;
  std::string origin_;
  int64_t num_blocks_ = 0;
  std::vector<Stretch> separate_;  // of documents: the tokens of each block, and the one after them
};

}  // namespace trainrun
