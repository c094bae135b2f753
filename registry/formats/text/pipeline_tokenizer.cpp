#include "registry/formats/text/pipeline_tokenizer.h"

#include <algorithm>

#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

/// `ids`: or whatever else there is one of for each token.
void cut(std::vector<int64_t>& ids, int64_t length, Truncation::Side side) {
  const auto surplus = static_cast<std::ptrdiff_t>(ids.size()) - static_cast<std::ptrdiff_t>(length);
  if (surplus <= 0) return;
  if (side == Truncation::Side::kRight) {
    ids.resize(static_cast<size_t>(length));
  } else {
    ids.erase(ids.begin(), ids.begin() + surplus);
  }
}

/// As transformers' clean_up_tokenization.
std::string cleaned_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplaced) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
  }
  return text;
}

}  // namespace

int64_t vocab_size_of(const TextModel& model, const AddedTokens& added) {
  int64_t highest = model.vocabulary().highest_id();
  for (const AddedToken& token : added.tokens()) highest = std::max(highest, token.id);
  return highest + 1;
}

void PipelineTokenizer::add_words(std::string_view text, bool first, WordCaches::Loan& cache, Tokens& tokens) const {
  WordList words;
  words.words = {{text, first}};
  if (parts_.pre_tokenizer) parts_.pre_tokenizer->apply(words);
  std::vector<int64_t>& ids = tokens.ids;
  for (const WordList::Word& word : words.words) {
    if (word.text.size() > WordCache::kLongestWord) {
      parts_.model->encode(word.text, ids);
    } else if (const auto* known = cache->find(word.text)) {
      ids.insert(ids.end(), known->begin(), known->end());
    } else {
      const size_t before = ids.size();
      parts_.model->encode(word.text, ids);
      cache->keep(word.text, ids.data() + before, ids.data() + ids.size());
    }
    tokens.end_word();
  }
}

PipelineTokenizer::Tokens PipelineTokenizer::tokens_of(std::string_view bytes) const {
  const std::string text = unicode::valid(bytes);
  WordCaches::Loan cache(caches_);
  Tokens tokens;
  const auto add_token = [&](int64_t id) {
    tokens.ids.push_back(id);
    tokens.end_word();
  };
  for (const AddedTokens::Part& part : parts_.added.split(text, false)) {
    if (part.id) {
      add_token(*part.id);
      continue;
    }
    NormalizedText normalized{std::string(part.text)};
    if (parts_.normalizer) parts_.normalizer->apply(normalized);
    const bool first = part.text.data() == text.data() && !normalized.front_removed;
    for (const AddedTokens::Part& inner : parts_.added.split(normalized.text, true)) {
      if (inner.id) {
        add_token(*inner.id);
      } else {
        add_words(inner.text, first && inner.text.data() == normalized.text.data(), cache, tokens);
      }
    }
  }
  return tokens;
}

/// How many tokens Hugging Face's library makes of a text before it looks which of two is the longer one: those of as
/// many whole words as give max_length tokens.
int64_t PipelineTokenizer::considered(const Tokens& tokens, const Truncation& truncation) {
  const auto all = static_cast<int64_t>(tokens.ids.size());
  if (truncation.strategy != Truncation::Strategy::kLongestFirst || all <= truncation.max_length) return all;
  if (truncation.side == Truncation::Side::kRight) {
    return *std::lower_bound(tokens.ends.begin(), tokens.ends.end(), truncation.max_length);
  }
  const auto after = std::upper_bound(tokens.ends.begin(), tokens.ends.end(), all - truncation.max_length);
  return after == tokens.ends.begin() ? all : all - *std::prev(after);
}

/// How many special tokens a text gets. Throws DataError where it has no room for them.
int64_t PipelineTokenizer::num_special(const Truncation& truncation, bool pair, bool add_special_tokens) const {
  const int64_t added = add_special_tokens ? parts_.post_processor.special_tokens(pair) : 0;
  if (truncation.max_length >= added) return added;
  throw DataError("a length of " + std::to_string(truncation.max_length) + " has no room for the " +
                  std::to_string(added) + " special tokens");
}

Encoding PipelineTokenizer::encode(const TextPair& texts, const std::optional<Truncation>& truncation,
                                   bool add_special_tokens) const {
  Tokens first = tokens_of(texts.first);
  std::optional<Tokens> second;
  if (texts.second) second = tokens_of(*texts.second);
  if (truncation) {
    const int64_t added = num_special(*truncation, second.has_value(), add_special_tokens);
    const KeptTokens kept = truncated_lengths(considered(first, *truncation),
                                              second ? std::optional(considered(*second, *truncation)) : std::nullopt,
                                              truncation->max_length - added, truncation->strategy);
    cut(first.ids, kept.first, truncation->side);
    if (second) cut(second->ids, kept.second, truncation->side);
  }
  return parts_.post_processor.assemble(first.ids, second ? std::optional(second->ids) : std::nullopt,
                                        add_special_tokens);
}

WordEncoding PipelineTokenizer::encode_words(std::span<const std::string> words,
                                             const std::optional<Truncation>& truncation,
                                             bool add_special_tokens) const {
  const bool needs_blank = parts_.pre_tokenizer && parts_.pre_tokenizer->reads_blanks();
  std::vector<int64_t> ids;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < words.size(); ++i) {
    const bool lacks_blank = needs_blank && !words[i].starts_with(' ');
    const Tokens tokens = tokens_of(lacks_blank ? " " + words[i] : words[i]);
    ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
    numbers.insert(numbers.end(), tokens.ids.size(), static_cast<int64_t>(i));
  }
  if (truncation) {
    const int64_t room = truncation->max_length - num_special(*truncation, false, add_special_tokens);
    cut(ids, room, truncation->side);
    cut(numbers, room, truncation->side);
  }
  WordEncoding encoding{parts_.post_processor.assemble(ids, std::nullopt, add_special_tokens), {}};
  for (size_t next = 0; const bool special : encoding.special) encoding.words.push_back(special ? -1 : numbers[next++]);
  return encoding;
}

std::string PipelineTokenizer::decode(const std::vector<int64_t>& ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  for (const int64_t id : ids) {
    auto token = token_of(id);
    if (token && !(skip_special_tokens && parts_.added.is_special(*token))) tokens.push_back(std::move(*token));
  }
  if (parts_.decoder) parts_.decoder->apply(tokens);
  std::string text = join(tokens, parts_.decoder ? "" : " ");
  return parts_.cleans_up ? cleaned_up(std::move(text)) : text;
}

std::optional<int64_t> PipelineTokenizer::id_of(const std::string& token) const {
  if (const AddedToken* added = parts_.added.find(token)) return added->id;
  return parts_.model->vocabulary().find(token);
}

std::optional<std::string> PipelineTokenizer::token_of(int64_t id) const {
  if (const AddedToken* added = parts_.added.token(id)) return added->found_as;
  const std::string* token = parts_.model->vocabulary().token(id);
  return token ? std::optional(*token) : std::nullopt;
}

bool PipelineTokenizer::is_special(int64_t id) const {
  const AddedToken* token = parts_.added.token(id);
  return token != nullptr && token->special;
}

std::optional<int64_t> PipelineTokenizer::special_id(const std::string& role) const {
  const auto token = parts_.special_tokens.find(role);
  if (token != parts_.special_tokens.end()) return id_of(token->second);
  return role == "pad" && parts_.padding ? std::optional(parts_.padding->id) : std::nullopt;
}

}  // namespace trainrun
