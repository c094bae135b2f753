#include "registry/text_data/token_windows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>

#include "registry/kinds/dataset_facts.h"

namespace trainrun {

TokenRow TokenRow::of(std::vector<uint32_t> tokens) {
  TokenRow row;
  row.size = static_cast<int64_t>(tokens.size());
  const auto most = std::max_element(tokens.begin(), tokens.end());
  if (most != tokens.end() && *most <= std::numeric_limits<uint16_t>::max()) {  // half the memory
    const auto narrow = std::make_shared<std::vector<uint16_t>>(tokens.begin(), tokens.end());
    row.narrow = narrow->data();
    row.owner = narrow;
  } else {
    const auto wide = std::make_shared<std::vector<uint32_t>>(std::move(tokens));
    row.wide = wide->data();
    row.owner = wide;
  }
  return row;
}

DatasetInfo TokenWindows::info() const {
  DatasetInfo info;
  info.fields = {{"input_ids", {blocks_.block_size}, at::kLong, std::nullopt},
                 {"labels", {blocks_.block_size}, at::kLong, std::nullopt}};
  info.target = "labels";
  info.num_samples = blocks_.num_samples;
  return info;
}

int64_t TokenWindows::size() const { return blocks_.num_samples.value_or(num_blocks_); }

void TokenWindows::set_tokens(TokenRow tokens, std::string origin) {
  num_blocks_ = (tokens.size - 1) / blocks_.block_size;  // the last token is a label only
  if (num_blocks_ < 1) {
    throw DataError(origin + ": there are " + std::to_string(tokens.size) + " tokens, and a block of " +
                    std::to_string(blocks_.block_size) + " and its last label need " +
                    std::to_string(blocks_.block_size + 1) +
                    (tokens.size > 1 ? "; write block_size: " + std::to_string(tokens.size - 1) + " or less" : ""));
  }
  tokens_ = std::move(tokens);
  origin_ = std::move(origin);
}

void TokenWindows::set_tokens(TokenRow tokens, std::string origin, const std::vector<Stretch>& documents) {
  separate_.clear();
  for (const Stretch& document : documents) {
    for (int64_t done = 0; done + 1 < document.size; done += blocks_.block_size) {
      const int64_t size = std::min(blocks_.block_size + 1, document.size - done);
      separate_.push_back({document.begin + done, size});
    }
  }
  if (separate_.empty()) throw DataError(origin + ": no document has two tokens, so there is nothing to predict");
  num_blocks_ = static_cast<int64_t>(separate_.size());
  tokens_ = std::move(tokens);
  origin_ = std::move(origin);
}

/// `from`: the sample's tokens and the one after them; there may be fewer than a block.
void TokenWindows::fill(const Stretch& from, int64_t* ids, int64_t* labels) const {
  const int64_t count = from.size - 1;
  for (int64_t i = 0; i < count; ++i) ids[i] = tokens_[from.begin + i];
  for (int64_t i = 0; i < count; ++i) labels[i] = tokens_[from.begin + i + 1];
  std::fill(ids + count, ids + blocks_.block_size, 0);
  std::fill(labels + count, labels + blocks_.block_size, kNoLabel);
}

Batch TokenWindows::get(const at::Tensor& indices) const {
  const int64_t* begin = indices.const_data_ptr<int64_t>();
  return get_drawn(indices, SampleDraws(DrawKey{}, {begin, begin + indices.numel()}));
}

Batch TokenWindows::get_drawn(const at::Tensor& indices, const SampleDraws& draws) const {
  const int64_t length = blocks_.block_size;
  const at::Tensor ids = at::empty({indices.numel(), length}, at::kLong);
  const at::Tensor labels = at::empty({indices.numel(), length}, at::kLong);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    Stretch from{0, length + 1};
    if (blocks_.sampling == BlockSampling::kRandom) {
      from.begin = draws.of(i).integer(tokens_.size - length);
    } else {
      const int64_t block = indices.const_data_ptr<int64_t>()[i];
      from.begin = block * length;
      if (!separate_.empty()) from = separate_[static_cast<size_t>(block)];
    }
    fill(from, ids.mutable_data_ptr<int64_t>() + i * length, labels.mutable_data_ptr<int64_t>() + i * length);
  }
  Batch batch;
  batch.set("input_ids", ids);
  batch.set("labels", labels);
  return batch;
}

DatasetFacts TokenWindows::facts() const {
  DatasetFacts facts;
  facts.place = [this](int64_t index, const std::string& field) { return place(index, field); };
  return facts;
}

std::string TokenWindows::place(int64_t index, const std::string& field) const {
  if (blocks_.sampling == BlockSampling::kRandom) return origin_ + ":" + field;
  const int64_t first = separate_.empty() ? index * blocks_.block_size : separate_[static_cast<size_t>(index)].begin;
  return origin_ + ": the block from token " + std::to_string(first) + " on:" + field;
}

}  // namespace trainrun
