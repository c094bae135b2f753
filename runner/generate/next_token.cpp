#include "runner/generate/next_token.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <map>
#include <set>

#include "registry/kinds/layer_shapes.h"
#include "registry/models/language_model.h"
#include "runner/model/precision.h"

namespace trainrun {
namespace {

using at::Tensor;

/// Those inputs of the graph that some layer reads.
std::set<size_t> inputs_read(const Graph& graph) {
  std::set<size_t> read;
  for (const Graph::Node& node : graph.nodes()) {
    for (const size_t slot : node.inputs) {
      if (slot < graph.num_inputs()) read.insert(slot);
    }
  }
  return read;
}

bool is_made(const std::string& name) {
  return name == kAttentionMask || name == kPositionIds || name == kTokenTypeIds;
}

/// The last `most` of each text, or all of it.
std::vector<int64_t> end_of(const std::vector<int64_t>& text, const std::optional<int64_t>& most) {
  const auto size = static_cast<int64_t>(text.size());
  return {text.end() - std::min(most.value_or(size), size), text.end()};
}

}  // namespace

NextToken::NextToken(const LanguageModel& model, bool use_cache)
    : model_(model), most_(most_positions(*model.graph)), keeps_(use_cache) {
  if (use_cache) undecodable_ = undecodable_layer(*model.graph, *model.plan);
  keeps_ = use_cache && !undecodable_;
  size_t num_tokens = 0;
  for (const size_t i : inputs_read(*model.graph)) {
    const std::string& name = model.graph->input_names()[i];
    if (is_made(name)) continue;
    if (++num_tokens > 1) {
      throw Error("the model also reads '" + name + "', which a text that is generated does not have");
    }
  }
}

Tensor NextToken::begin(std::vector<std::vector<int64_t>> texts) {
  texts_ = std::move(texts);
  decoding_ = nullptr;
  return keeps_ ? begin_cache() : all_anew();
}

Tensor NextToken::go_on(const std::vector<int64_t>& tokens) {
  for (size_t i = 0; i < texts_.size(); ++i) texts_[i].push_back(tokens[i]);
  if (!keeps_) return all_anew();
  if (is_too_long() || !decoding_) return begin_cache();
  const Tensor ids = at::tensor(tokens, at::kLong).unsqueeze(1);
  return run(ids, decoding_.get());
}

bool NextToken::is_too_long() const {
  return most_ && std::any_of(texts_.begin(), texts_.end(),
                              [&](const auto& text) { return static_cast<int64_t>(text.size()) > *most_; });
}

/// The texts of one length together: what a layer that mixes positions would make of padding is not known.
Tensor NextToken::all_anew() {
  std::map<size_t, std::vector<size_t>> by_length;
  Rows seen;
  for (const std::vector<int64_t>& text : texts_) {
    seen.push_back(end_of(text, most_));
    by_length[seen.back().size()].push_back(seen.size() - 1);
  }
  Tensor all;
  for (const auto& [length, rows] : by_length) {
    const Tensor ids = at::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(length)}, at::kLong);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy(seen[rows[i]].begin(), seen[rows[i]].end(), ids.mutable_data_ptr<int64_t>() + i * length);
    }
    const Tensor logits = run(ids, nullptr);
    if (!all.defined()) all = at::empty({static_cast<int64_t>(texts_.size()), logits.size(1)}, logits.options());
    for (size_t i = 0; i < rows.size(); ++i) all[static_cast<int64_t>(rows[i])].copy_(logits[static_cast<int64_t>(i)]);
  }
  return all;
}

Tensor NextToken::begin_cache() {
  size_t longest = 0;
  for (const auto& text : texts_) longest = std::max(longest, end_of(text, most_).size());
  const Tensor ids = at::full({static_cast<int64_t>(texts_.size()), static_cast<int64_t>(longest)}, 0, at::kLong);
  const Tensor padding = at::empty({static_cast<int64_t>(texts_.size())}, at::kLong);
  bool is_padded = false;
  for (size_t row = 0; row < texts_.size(); ++row) {
    const std::vector<int64_t> text = end_of(texts_[row], most_);
    std::copy(text.begin(), text.end(), ids.mutable_data_ptr<int64_t>() + (row + 1) * longest - text.size());
    padding.mutable_data_ptr<int64_t>()[row] = static_cast<int64_t>(longest - text.size());
    is_padded = is_padded || longest != text.size();
  }
  decoding_ = std::make_unique<Decoding>(*model_.plan, is_padded ? padding.to(model_.device) : Tensor());
  Tensor logits = run(ids, decoding_.get());
  if (is_too_long()) decoding_ = nullptr;
  return logits;
}

Tensor NextToken::run(const Tensor& ids, Decoding* decoding) const {
  const at::NoGradGuard no_gradients;
  const Autocast autocast(model_.autocast, model_.device.type());
  const DecodingPoint start;
  const Tensors inputs = inputs_for(ids.to(model_.device), decoding ? decoding->point() : start);
  const Tensors outputs = decoding ? decoding->run(inputs, ids.size(1)) : model_.plan->run(inputs);
  const Tensor& logits = outputs.at(0);
  if (logits.dim() != 3 || logits.size(0) != ids.size(0) || logits.size(1) != ids.size(1)) {
    throw Error("the model is not a language model: of tokens " + shape_text(ids.sizes()) + " it makes " +
                shape_text(logits.sizes()) + ", not logits [N, T, V]");
  }
  return logits.select(1, -1).to(at::kCPU, at::kFloat);
}

Tensors NextToken::inputs_for(const Tensor& ids, const DecodingPoint& point) const {
  Tensors inputs(model_.graph->num_inputs());
  for (const size_t i : inputs_read(*model_.graph)) {
    const std::string& name = model_.graph->input_names()[i];
    if (name == kPositionIds) {
      inputs[i] = point.positions(ids.size(1), ids.device()).expand(ids.sizes()).contiguous();
    } else if (name == kAttentionMask && point.padding.defined()) {
      const Tensor places = DecodingPoint{point.past, {}}.positions(ids.size(1), ids.device());
      inputs[i] = (places >= point.padding.unsqueeze(1)).to(at::kLong);
    } else if (name == kAttentionMask) {
      inputs[i] = at::ones_like(ids);
    } else {
      inputs[i] = name == kTokenTypeIds ? at::zeros_like(ids) : ids;
    }
  }
  return inputs;
}

}  // namespace trainrun
