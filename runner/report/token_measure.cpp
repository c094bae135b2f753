#include "runner/report/token_measure.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "registry/models/language_model.h"
#include "runner/base/text.h"

namespace trainrun {
namespace {

constexpr int64_t kMostBars = 10;

/// A field of whole numbers, one for each place of a sample.
const FieldInfo* token_field(const DatasetInfo& info, const std::string& name) {
  const FieldInfo* field = info.find(name);
  return field && field->dtype == at::kLong && field->shape.size() == 1 ? field : nullptr;
}

std::string share_text(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", 100 * share);
  return text;
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

std::vector<TokenFields> token_fields(const DatasetInfo& info, std::unordered_set<std::string>& used) {
  std::vector<TokenFields> found;
  for (const FieldInfo& field : info.fields) {
    if (!holds_tokens(field.name) || !token_field(info, field.name)) continue;
    const std::string prefix = field.name.substr(0, field.name.size() - std::string(kInputIds).size());
    TokenFields text;
    text.ids = field.name;
    text.max_length = field.shape[0];
    if (token_field(info, prefix + kAttentionMask)) text.mask = prefix + kAttentionMask;
    if (token_field(info, prefix + "labels")) text.labels = prefix + "labels";
    for (const char* name : {kInputIds, kAttentionMask, kTokenTypeIds, kPositionIds}) used.insert(prefix + name);
    if (text.labels) used.insert(*text.labels);
    found.push_back(std::move(text));
  }
  return found;
}

int64_t TokenMeasure::length_of(const Batch& batch, int64_t row) const {
  const at::Tensor of_row = batch.at(fields_.mask ? *fields_.mask : fields_.labels.value_or(fields_.ids))[row];
  const at::Tensor marks = of_row.contiguous();
  const auto* mark = marks.const_data_ptr<int64_t>();
  if (!fields_.mask && !fields_.labels) return marks.numel();
  const int64_t none = fields_.mask ? 0 : fields_.ignore_index;
  int64_t length = marks.numel();
  while (length > 0 && mark[length - 1] == none) --length;
  return length;
}

void TokenMeasure::add(const Batch& batch) {
  const at::Tensor ids = batch.at(fields_.ids).contiguous();
  const int64_t width = ids.size(1);
  const auto unknown = codec_ ? codec_->unknown_token() : std::nullopt;
  int64_t targets_of_batch = 0;
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const auto* id = ids.const_data_ptr<int64_t>() + row * width;
    const int64_t length = length_of(batch, row);
    lengths_.push_back(length);
    distinct_.insert(id, id + length);
    if (unknown) unknown_ += std::count(id, id + length, *unknown);
    if (!fields_.labels) continue;
    const auto targets = batch.at(*fields_.labels)[row].ne(fields_.ignore_index).sum().item<int64_t>();
    targets_of_batch += targets;
    if (targets == 0) ++samples_without_target_;
  }
  for (const int64_t end : turn_ends_) {
    if (!fields_.labels || learns_turn_end_) break;
    learns_turn_end_ = batch.at(*fields_.labels).eq(end).any().item<bool>();
  }
  if (fields_.mask) is_packed_ = is_packed_ || batch.at(*fields_.mask).max().item<int64_t>() > 1;
  positions_ += ids.numel();
  targets_ += targets_of_batch;
  ++batches_;
  if (fields_.labels && targets_of_batch == 0) ++batches_without_target_;
}

SurveyedSet::TokenRow TokenMeasure::row(const Batch& batch, int64_t row) const {
  SurveyedSet::TokenRow found;
  found.field = fields_.ids;
  found.has_targets = fields_.labels.has_value();
  const at::Tensor ids = batch.at(fields_.ids)[row].contiguous();
  const auto* id = ids.const_data_ptr<int64_t>();
  const int64_t length = length_of(batch, row);
  const at::Tensor counts = fields_.labels ? batch.at(*fields_.labels)[row].ne(fields_.ignore_index) : at::Tensor();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    SurveyedSet::TokenRow::Token token;
    token.text = codec_ ? codec_->token(id[i]) : std::to_string(id[i]);
    token.padding = i >= length;
    token.counts = counts.defined() && counts[i].item<bool>();
    found.tokens.push_back(std::move(token));
  }
  if (codec_) found.decoded = codec_->decode({id, id + length});
  return found;
}

SurveyedSet::Tokens TokenMeasure::found() const {
  SurveyedSet::Tokens tokens;
  tokens.field = fields_.ids;
  tokens.distinct = static_cast<int64_t>(distinct_.size());
  if (codec_) tokens.vocabulary = codec_->vocab_size();
  if (codec_ && codec_->unknown_token()) tokens.unknown = unknown_;
  if (lengths_.empty()) return tokens;
  std::vector<int64_t> sorted = lengths_;
  std::sort(sorted.begin(), sorted.end());
  constexpr double kMost = 0.95;
  tokens.shortest = sorted.front();
  tokens.longest = sorted.back();
  tokens.median = sorted[sorted.size() / 2];
  tokens.long_one =
      sorted[std::min(static_cast<size_t>(kMost * static_cast<double>(sorted.size())), sorted.size() - 1)];
  tokens.total = std::accumulate(sorted.begin(), sorted.end(), int64_t{0});
  tokens.mean_length = ratio(tokens.total, static_cast<int64_t>(sorted.size()));
  tokens.padding_share = ratio(positions_ - tokens.total, positions_);
  if (fields_.labels) tokens.target_share = ratio(targets_, tokens.total);
  const int64_t step = (tokens.longest - tokens.shortest) / kMostBars + 1;
  for (int64_t least = tokens.shortest; least <= tokens.longest; least += step) {
    const int64_t most = std::min(least + step - 1, tokens.longest);
    const auto begin = std::lower_bound(sorted.begin(), sorted.end(), least);
    tokens.lengths.push_back({least, most, std::upper_bound(begin, sorted.end(), most) - begin});
  }
  return tokens;
}

std::vector<std::string> TokenMeasure::warnings() const {
  constexpr double kManyUnknown = 0.01, kMuchPadding = 0.5;
  std::vector<std::string> warnings;
  const auto of_samples = [&](int64_t count) {
    return grouped(count) + " of " + grouped(static_cast<int64_t>(lengths_.size())) + " samples";
  };
  const SurveyedSet::Tokens tokens = found();
  const int64_t full = std::count(lengths_.begin(), lengths_.end(), fields_.max_length);
  if (fields_.mask && !is_packed_ && full > 0) {
    warnings.push_back(of_samples(full) + " have the " + grouped(fields_.max_length) + " tokens in '" + fields_.ids +
                       "' that max_length allows; longer ones were cut off");
  }
  if (batches_without_target_ > 0) {
    warnings.push_back(grouped(batches_without_target_) + " of " + grouped(batches_) +
                       " batches have no target that counts: '" + *fields_.labels + "' is " +
                       std::to_string(fields_.ignore_index) + " (ignore_index) everywhere; training stops at them");
  } else if (samples_without_target_ > 0) {
    warnings.push_back(of_samples(samples_without_target_) + " have no target that counts: '" + *fields_.labels +
                       "' is " + std::to_string(fields_.ignore_index) + " (ignore_index) everywhere");
  }
  if (!turn_ends_.empty() && fields_.labels && targets_ > 0 && !learns_turn_end_) {
    warnings.push_back("the end of a turn is never learnt: " + (codec_ ? codec_->token(turn_ends_[0]) : "its token") +
                       " is nowhere in '" + *fields_.labels +
                       "', so that answers will not end by themselves; have the template write it within "
                       "{% generation %}, and leave room for it in max_length");
  }
  if (tokens.unknown && ratio(*tokens.unknown, tokens.total) > kManyUnknown) {
    warnings.push_back(
        share_text(ratio(*tokens.unknown, tokens.total)) + " of the tokens in '" + fields_.ids +
        "' are the unknown token; does this tokenizer belong to the model and to the language of the text?");
  }
  if (tokens.padding_share > kMuchPadding) {
    warnings.push_back(share_text(tokens.padding_share) + " of '" + fields_.ids +
                       "' is padding, which costs time; write padding: longest, or a smaller max_length or "
                       "batch_size, if the data set has them");
  }
  return warnings;
}

}  // namespace trainrun
