#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "registry/formats/text/json_node.h"
#include "registry/formats/text/normalizer.h"
#include "registry/formats/text/vocabulary.h"

namespace trainrun {

/// A token that is found in a text before the model sees it.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool special = false;      // decoding leaves it out
  bool single_word = false;  // not within a word
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // takes the spaces behind it
  bool normalized = false;   // is looked for in the normalized text, itself normalized
  std::string found_as;      // what is looked for, and what it is decoded to
};

/// Texts that are looked for all at once; of several at one place, the longest is found.
class TextFinder {
 public:
  void add(const std::string& text, size_t which);
  bool empty() const { return nodes_.size() == 1; }
  struct Match {
    size_t begin, end, which;
  };
  /// The first match at `from` or behind it.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  struct Node {
    std::map<char, size_t> children;
    std::optional<size_t> which;
  };
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> begins_{};
};

/// The tokens added to a model's vocabulary.
class AddedTokens {
 public:
  AddedTokens() = default;
  /// A list of tokens, whose ids are the model's, or follow upon them. `normalizer` may be null.
  AddedTokens(const JsonNode& node, const Vocabulary& model, const Normalizer* normalizer);
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  /// A part of a text: an added token, or text between those.
  struct Part {
    std::string_view text;
    std::optional<int64_t> id;
  };
  /// Parts at the tokens that are found in the text as it is; or, `normalized`, in what a normalizer made of it.
  std::vector<Part> split(std::string_view text, bool normalized) const;

  const AddedToken* find(std::string_view content) const;
  const AddedToken* token(int64_t id) const;
  bool is_special(std::string_view content) const { return specials_.find(content) != specials_.end(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  void index(const Normalizer* normalizer);
  void check_id(const JsonNode& node, const AddedToken& token, const Vocabulary& model) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string, size_t, TextHash, std::equal_to<>> by_content_;
  std::unordered_map<int64_t, size_t> by_id_;
  std::unordered_set<std::string, TextHash, std::equal_to<>> specials_;
  TextFinder plain_, in_normalized_;
};

}  // namespace trainrun
