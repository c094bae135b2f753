#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "registry/formats/text/added_tokens.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/language/named.h"
#include "registry/language/parameters.h"

namespace trainrun {

struct TokenizerSource;

/// A token to be added, as tokenizers.AddedToken describes it.
struct NewToken {
  std::string content;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  std::optional<bool> normalized;
  static void describe(Fields<NewToken>& f);
};
using NewTokenText = std::variant<std::string, NewToken>;

/// Tokens that are added to a tokenizer: what transformers' add_tokens and, after that, add_special_tokens are given.
struct NewTokens {
  using Specials = Named<std::variant<std::string, std::vector<NewTokenText>, NewToken>>;
  std::vector<NewTokenText> add_tokens;
  std::optional<std::variant<std::vector<NewTokenText>, Specials>> add_special_tokens;

  /// `more`: said after what each of the two parameters is; of a data set, where recipes write them.
  template <class T>
  static void describe_into(Fields<T>& f, const std::string& more = "; written once for all data sets, in `dataset`") {
    f.optional("add_tokens", &T::add_tokens).doc("tokens to add to the tokenizer" + more);
    f.optional("add_special_tokens", &T::add_special_tokens)
        .doc("special tokens to add, as a list or by role: {pad_token: <pad>, additional_special_tokens: […]}" + more);
  }
  /// The parameter with a fault, and what is wrong with it.
  std::optional<std::pair<std::string, std::string>> fault() const;

  bool empty() const { return add_tokens.empty() && !add_special_tokens; }
  /// In the order in which they get their ids, which are not set.
  std::vector<AddedToken> tokens() const;
  /// "pad": "<pad>"
  std::map<std::string, std::string> roles() const;
  /// Those special tokens that have no role.
  std::vector<std::string> specials_without_role() const;
  /// Different for different tokens.
  std::string key() const;
  /// The tokenizer of this path or name with these tokens.
  TokenizerSource in(const std::string& path) const;
};

/// A tokenizer, as open_tokenizer takes its path or name, and what is added to it.
struct TokenizerSource {
  std::string path;
  NewTokens added;
};

inline TokenizerSource NewTokens::in(const std::string& path) const { return {path, *this}; }

/// What adding tokens has made of a tokenizer.
struct TokenGrowth {
  int64_t before = 0;            // vocab_size() without them
  int64_t after = 0;             // and with them
  std::vector<int64_t> new_ids;  // of those that it did not have
  int64_t num_known = 0;         // how many it had
};

/// The tokenizer with these tokens, as transformers adds them: a new one gets the id behind all others; one that is
/// there keeps its id, and is looked for in texts from now on as the new one says. Throws DataError where the tokenizer is not a
/// tokenizer.json, or a new token would get another's id.
std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizerSource& source);
TokenGrowth growth_of(const TokenizerSource& source);
/// Has the files in `folder`, a tokenizer.json and what lies beside it, hold these tokens, too. Throws DataError.
void write_new_tokens(const std::string& folder, const NewTokens& added);

}  // namespace trainrun
