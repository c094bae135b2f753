#include <algorithm>

#include "registry/error.h"
#include "registry/text/tokenizer_files.h"

namespace trainrun {

void add_missing_tokens(Pipeline& parts, const TokenizerConfig& config) {
  std::vector<AddedToken> tokens = parts.added.tokens();
  const auto is_there = [&](const AddedToken& token) {
    return std::ranges::any_of(tokens, [&](const auto& other) { return other.content == token.content; });
  };
  const Vocabulary& vocabulary = parts.model->vocabulary();
  int64_t next = vocab_size_of(*parts.model, parts.added);
  const size_t before = tokens.size();
  const auto add = [&](AddedToken token, bool has_id) {
    if (is_there(token)) return;
    const auto known = vocabulary.find(token.content);
    const int64_t id = known.value_or(next);
    if (has_id && id != token.id) {
      throw DataError(config.file + ": \"" + token.content + "\" is to have the id " + std::to_string(token.id) +
                      ", but would get " + std::to_string(id) + (known ? ", as in the vocabulary" : ", the next one"));
    }
    if (!known) ++next;
    token.id = id;
    tokens.push_back(std::move(token));
  };
  std::vector<AddedToken> with_ids = config.added_tokens;
  std::ranges::sort(with_ids, {}, &AddedToken::id);
  for (AddedToken& token : with_ids) add(std::move(token), true);
  for (const AddedToken& token : config.role_tokens) add(token, false);
  const int64_t first_named = next;
  for (const AddedToken& token : config.named_tokens) add(token, false);
  if (next > first_named + 1) {
    throw DataError(
        config.file + ": it names " + std::to_string(next - first_named) +
        " special tokens that the tokenizer does not have, but not which ids they get; save the tokenizer with "
        "transformers, so that they are in tokenizer.json");
  }
  for (const AddedToken& token : config.extra_tokens) add(token, false);
  if (tokens.size() > before) parts.added = AddedTokens(std::move(tokens), parts.normalizer.get());
}

}  // namespace trainrun
