#include "registry/text_data/padded_texts.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "registry/data/sample_lengths.h"
#include "registry/language/error.h"

namespace trainrun {

TextArrays::TextArrays(const Tokenizer& tokenizer)
    : padding{tokenizer.pad_id().value_or(0), tokenizer.pads_left() ? 1 : 0} {}

void TextArrays::add(const Encoding& text) {
  ids.insert(ids.end(), text.ids.begin(), text.ids.end());
  type_ids.insert(type_ids.end(), text.type_ids.begin(), text.type_ids.end());
  begins.push_back(static_cast<int64_t>(ids.size()));
}

std::vector<std::string_view> TextArrays::bytes() const {
  return {bytes_of(ids), bytes_of(type_ids), bytes_of(begins), bytes_of(padding)};
}

bool PaddedTexts::read(ByteArrays arrays, size_t num_texts) {
  arrays_ = std::move(arrays);
  ids_ = numbers_in<int32_t>(arrays_.arrays.at(0));
  type_ids_ = numbers_in<uint8_t>(arrays_.arrays.at(1));
  begins_ = numbers_in<int64_t>(arrays_.arrays.at(2));
  const auto padding = numbers_in<int64_t>(arrays_.arrays.at(3));
  if (!are_begins(begins_, num_texts, ids_.size()) || type_ids_.size() != ids_.size() || padding.size() != 2) {
    return false;
  }
  pad_id_ = padding[0];
  pads_left_ = padding[1] != 0;
  return true;
}

TextStretch PaddedTexts::stretch(int64_t text) const {
  const auto i = static_cast<size_t>(text);
  return {begins_[i], begins_[i + 1] - begins_[i]};
}

std::vector<TextStretch> PaddedTexts::stretches(const at::Tensor& texts) const {
  std::vector<TextStretch> found;
  for (int64_t i = 0; i < texts.numel(); ++i) found.push_back(stretch(texts.const_data_ptr<int64_t>()[i]));
  return found;
}

int64_t PaddedTexts::longest() const {
  int64_t longest = 0;
  for (int64_t text = 0; text < num_texts(); ++text) longest = std::max(longest, stretch(text).count);
  return longest;
}

Batch PaddedTexts::batch(const std::vector<TextStretch>& texts, int64_t length, const std::string& prefix) const {
  const auto n = static_cast<int64_t>(texts.size());
  const at::Tensor ids = at::full({n, length}, pad_id_, at::kLong);
  const at::Tensor mask = at::zeros({n, length}, at::kLong);
  const at::Tensor types = at::zeros({n, length}, at::kLong);
  for (int64_t i = 0; i < n; ++i) {
    const auto [begin, count] = texts[static_cast<size_t>(i)];
    const int64_t first = i * length + first_of({begin, count}, length);
    std::copy_n(ids_.begin() + begin, count, ids.mutable_data_ptr<int64_t>() + first);
    std::fill_n(mask.mutable_data_ptr<int64_t>() + first, count, 1);
    std::copy_n(type_ids_.begin() + begin, count, types.mutable_data_ptr<int64_t>() + first);
  }
  Batch batch;
  batch.set(prefix + "input_ids", ids);
  batch.set(prefix + "attention_mask", mask);
  batch.set(prefix + "token_type_ids", types);
  return batch;
}

at::Tensor PaddedTexts::lengths(const EncodingOptions& encoding) const {
  if (encoding.padding == TextPadding::kLongest) return lengths_between(begins_);
  throw DataError("its texts are all filled up to max_length; write padding: longest");
}

int64_t padded_length(const std::vector<TextStretch>& texts, const EncodingOptions& encoding) {
  if (encoding.padding == TextPadding::kMaxLength) return encoding.max_length;
  int64_t longest = 1;
  for (const TextStretch& text : texts) longest = std::max(longest, text.count);
  const int64_t multiple = encoding.pad_to_multiple_of;
  return std::min((longest + multiple - 1) / multiple * multiple, encoding.max_length);
}

void add_text_fields(DatasetInfo& info, int64_t max_length, const std::string& prefix) {
  for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
    info.fields.push_back({prefix + name, {max_length}, at::kLong, std::nullopt});
  }
}

}  // namespace trainrun
