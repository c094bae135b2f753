#include <algorithm>
#include <unordered_set>

#include "registry/formats/text/tokenizer_files.h"
#include "registry/language/error.h"

namespace trainrun {

void add_missing_tokens(Pipeline& parts, const TokenizerConfig& config) {
  std::vector<AddedToken> tokens = parts.added.tokens();
  std::unordered_set<std::string> names;
  for (const AddedToken& token : tokens) names.insert(token.content);
  const std::string where = config.file.empty() ? "special_tokens_map.json, added_tokens.json" : config.file;
  const Vocabulary& vocabulary = parts.model->vocabulary();
  int64_t next = vocab_size_of(*parts.model, parts.added);
  const size_t before = tokens.size();
  const auto add = [&](AddedToken token, bool has_id) {
    if (!names.insert(token.content).second) return;
    const auto known = vocabulary.find(token.content);
    const int64_t id = known.value_or(next);
    if (has_id && id != token.id) {
      throw DataError(where + ": \"" + token.content + "\" is to have the id " + std::to_string(token.id) +
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
        where + ": it names " + std::to_string(next - first_named) +
        " special tokens that the tokenizer does not have, but not which ids they get; save the tokenizer with "
        "transformers, so that they are in tokenizer.json");
  }
  for (const AddedToken& token : config.extra_tokens) {
    if (config.tokenizer_class.starts_with("T5") && !names.contains(token.content) && !vocabulary.find(token.content)) {
      throw DataError(where + ": \"" + token.content +
                      "\" is not in the vocabulary, and T5 numbers such tokens backwards; save the tokenizer with "
                      "transformers, as tokenizer.json");
    }
    add(token, false);
  }
  if (tokens.size() > before) parts.added = AddedTokens(std::move(tokens), parts.normalizer.get());
}

}  // namespace trainrun
