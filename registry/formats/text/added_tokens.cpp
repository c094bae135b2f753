#include "registry/formats/text/added_tokens.h"

#include <algorithm>

#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = unicode::start_of_last(text, text.size());
  return unicode::is_word(unicode::next(text, at));
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && unicode::is_word(unicode::next(text, at));
}

/// Where the spaces at the end of the text begin.
size_t trailing_spaces(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t begin = unicode::start_of_last(text, end);
    size_t at = begin;
    if (!unicode::is_whitespace(unicode::next(text, at))) break;
    end = begin;
  }
  return end;
}

size_t leading_spaces(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    if (!unicode::is_whitespace(unicode::next(text, at))) break;
  }
  return end;
}

AddedToken read_added_token(const JsonNode& node) {
  node.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.id = node.integer("id", 0, kMostTokenId);
  token.content = node.text("content");
  if (token.content.empty()) node.at("content").fail("a token cannot be empty");
  token.special = node.flag("special");
  token.single_word = node.flag("single_word");
  token.lstrip = node.flag("lstrip");
  token.rstrip = node.flag("rstrip");
  token.normalized = node.flag("normalized");
  return token;
}

}  // namespace

void TextFinder::add(const std::string& text, size_t which) {
  size_t node = 0;
  for (const char byte : text) {
    const auto [child, is_new] = nodes_[node].children.emplace(byte, nodes_.size());
    node = child->second;
    if (is_new) nodes_.emplace_back();
  }
  if (!nodes_[node].which) nodes_[node].which = which;
  begins_[static_cast<unsigned char>(text[0])] = true;
}

std::optional<TextFinder::Match> TextFinder::find(std::string_view text, size_t from) const {
  if (empty()) return std::nullopt;
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    size_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = nodes_[node].children.find(text[at]);
      if (child == nodes_[node].children.end()) break;
      node = child->second;
      if (nodes_[node].which) longest = Match{begin, at + 1, *nodes_[node].which};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

void AddedTokens::check_id(const JsonNode& node, const AddedToken& token, const Vocabulary& model) const {
  const auto in_model = model.find(token.content);
  if (in_model && *in_model != token.id) {
    node.fail("\"" + token.content + "\" has the id " + std::to_string(token.id) + ", and " +
              std::to_string(*in_model) + " in the model's vocabulary");
  }
  const std::string* other = model.token(token.id);
  if (other && *other != token.content) {
    node.fail("the id " + std::to_string(token.id) + " of \"" + token.content + "\" is that of \"" + *other +
              "\" in the model's vocabulary");
  }
  if (by_id_.contains(token.id)) node.fail("the id " + std::to_string(token.id) + " is given twice");
  if (by_content_.contains(token.content)) node.fail("\"" + token.content + "\" is listed twice");
}

AddedTokens::AddedTokens(const JsonNode& node, const Vocabulary& model, const Normalizer* normalizer) {
  for (const JsonNode& item : node.items()) {
    AddedToken token = read_added_token(item);
    check_id(item, token, model);
    by_id_.emplace(token.id, tokens_.size());
    by_content_.emplace(token.content, tokens_.size());
    tokens_.push_back(std::move(token));
  }
  index(normalizer);
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer) : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    by_id_.emplace(tokens_[i].id, i);
    by_content_.emplace(tokens_[i].content, i);
  }
  index(normalizer);
}

void AddedTokens::index(const Normalizer* normalizer) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    AddedToken& token = tokens_[i];
    token.found_as = token.content;
    if (token.special) specials_.insert(token.content);
    if (!token.normalized) {
      plain_.add(token.content, i);
      continue;
    }
    NormalizedText content{token.content};
    if (normalizer) normalizer->apply(content);
    token.found_as = content.text;
    if (content.text.empty()) {
      throw DataError("the added token \"" + token.content + "\" is empty once it is normalized, and never found");
    }
    in_normalized_.add(content.text, i);
  }
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text, bool normalized) const {
  std::vector<Part> parts;
  const TextFinder& finder = normalized ? in_normalized_ : plain_;
  size_t done = 0;
  for (auto match = finder.find(text, 0); match; match = finder.find(text, match->end)) {
    const AddedToken& token = tokens_[match->which];
    size_t begin = match->begin, end = match->end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(trailing_spaces(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_spaces(text.substr(end));
    if (done < begin) parts.push_back({text.substr(done, begin - done), std::nullopt});
    parts.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
  return parts;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::token(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace trainrun
