#pragma once

#include <torch/nn/modules/linear.h>

#include <optional>
#include <vector>

namespace trainrun {

struct DecodingPoint;

struct AttentionOptions {
  int64_t embed_dim = 0;
  int64_t num_heads = 1;
  double dropout = 0;
  bool bias = true;
  bool add_bias_kv = false;
  bool add_zero_attn = false;
  std::optional<int64_t> kdim;  // embed_dim by default
  std::optional<int64_t> vdim;
  bool batch_first = false;
};

/// How the output lies in memory while training: always [L, N, …], as Python's, or as it is computed.
enum class OutputOrder { kAsPython, kAny };

/// torch.nn.MultiheadAttention: its state names, initial weights and, in training, random numbers are Python's.
/// LibTorch's own lacks batch_first and scaled_dot_product_attention. Source: Vaswani et al. 2017, "Attention Is All
/// You Need".
class Attention : public torch::nn::Module {
 public:
  /// Throws LayerError unless num_heads divides embed_dim.
  explicit Attention(const AttentionOptions& options);

  /// query [L, N, embed_dim], key [S, N, kdim], value [S, N, vdim] to [L, N, embed_dim]; with batch_first [N, L, …].
  /// `key_padding_mask` [N, S], or undefined: keys are not looked at where a bool one is true or, as in the
  /// attention_mask of tokenizers, where one of integers is 0; one of floating point is added to the scores.
  /// `is_causal`: the query at position i sees the keys up to i. Throws c10::Error where shapes do not fit.
  at::Tensor forward(at::Tensor query, at::Tensor key, at::Tensor value, const at::Tensor& key_padding_mask = {},
                     bool is_causal = false, OutputOrder order = OutputOrder::kAsPython);
  /// The same, causal, of the tokens that come next [N, T, …] alone, with batch_first: what it needs of those before is
  /// in `memory` (DecodingOperation). `key_padding_mask`: [N, T], of these; not of floating point.
  at::Tensor forward_further(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                             const at::Tensor& key_padding_mask, const DecodingPoint& point,
                             std::vector<at::Tensor>& memory) const;
  bool is_batch_first() const { return options_.batch_first; }

 private:
  void check(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;
  std::vector<at::Tensor> project(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) const;
  at::Tensor attend_self(const at::Tensor& x, const at::Tensor& key_padding_mask, bool is_causal,
                         OutputOrder order) const;
  struct Scores {
    int64_t batch, queries, keys;
  };
  static at::Tensor mask(const at::Tensor& like, const Scores& scores, const at::Tensor& key_padding_mask,
                         bool is_causal);

  AttentionOptions options_;
  bool packed_;  // one weight for the three projections, since all read embed_dim features
  at::Tensor in_proj_weight_;
  at::Tensor q_proj_weight_;
  at::Tensor k_proj_weight_;
  at::Tensor v_proj_weight_;
  at::Tensor in_proj_bias_;
  at::Tensor bias_k_;
  at::Tensor bias_v_;
  torch::nn::Linear out_proj_ = nullptr;
};

}  // namespace trainrun
