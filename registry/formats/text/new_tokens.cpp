#include "registry/formats/text/new_tokens.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/formats/text/tokenizer_files.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::array<std::string_view, 7> kRoleKeys = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};
constexpr std::array<std::string_view, 2> kListKeys = {"additional_special_tokens", "extra_special_tokens"};

/// A plain text is what tokenizers makes of a str: looked for in the normalized text, unless it is special.
AddedToken added_token(const NewTokenText& written, bool special) {
  AddedToken token;
  token.special = special;
  token.normalized = !special;
  if (const auto* text = std::get_if<std::string>(&written)) {
    token.content = *text;
    return token;
  }
  const auto& given = std::get<NewToken>(written);
  token.content = given.content;
  token.single_word = given.single_word;
  token.lstrip = given.lstrip;
  token.rstrip = given.rstrip;
  token.normalized = given.normalized.value_or(!special);
  return token;
}

/// Calls `visit(key, token)` for each special token in the order written; the key is "" in a list without one.
template <class Visit>
void for_each_special(const NewTokens& added, const Visit& visit) {
  if (!added.add_special_tokens) return;
  const auto visit_all = [&](const std::string& key, const std::vector<NewTokenText>& list) {
    for (const NewTokenText& token : list) visit(key, added_token(token, /*special=*/true));
  };
  if (const auto* list = std::get_if<std::vector<NewTokenText>>(&*added.add_special_tokens)) {
    return visit_all("", *list);
  }
  for (const auto& [key, value] : std::get<NewTokens::Specials>(*added.add_special_tokens).entries) {
    if (const auto* list = std::get_if<std::vector<NewTokenText>>(&value)) {
      visit_all(key, *list);
    } else if (const auto* text = std::get_if<std::string>(&value)) {
      visit(key, added_token(*text, /*special=*/true));
    } else {
      visit(key, added_token(std::get<NewToken>(value), /*special=*/true));
    }
  }
}

bool is_role(std::string_view key) { return std::ranges::find(kRoleKeys, key) != kRoleKeys.end(); }

/// Where the next token gets its id: as tokenizers counts, by how many tokens the vocabulary has.
int64_t next_id(const Pipeline& parts, const std::vector<AddedToken>& tokens) {
  auto next = static_cast<int64_t>(parts.model->vocabulary().size());
  for (const AddedToken& token : tokens) next = std::max(next, token.id + 1);
  return next;
}

/// What is added once more is found as the new token says; decoding goes on to leave out what was special.
void replace_flags(AddedToken& known, AddedToken token) {
  token.id = known.id;
  token.special = token.special || known.special;
  known = std::move(token);
}

ordered_json entry_of(const AddedToken& token) {
  return {{"id", token.id},          {"content", token.content}, {"single_word", token.single_word},
          {"lstrip", token.lstrip},  {"rstrip", token.rstrip},   {"normalized", token.normalized},
          {"special", token.special}};
}

ordered_json read_ordered(const fs::path& file) {
  return ordered_json::parse(read_file(file.string(), kMostTokenizerBytes));
}
void write_ordered(const fs::path& file, const ordered_json& content) {
  write_file_atomically(file.string(), content.dump(2) + "\n");
}

/// Says in the file which tokens have the roles, and which are special besides.
void write_roles(const fs::path& file, const NewTokens& added) {
  ordered_json content = fs::exists(file) ? read_ordered(file) : ordered_json::object();
  for (const auto& [role, token] : added.roles()) content[role + "_token"] = token;
  const std::vector<std::string> more = added.specials_without_role();
  if (!more.empty()) {
    const bool is_older = content.contains(kListKeys[0]) && !content[std::string(kListKeys[0])].empty();
    ordered_json& list = content[std::string(is_older ? kListKeys[0] : kListKeys[1])];
    if (!list.is_array()) list = ordered_json::array();
    for (const std::string& token : more) {
      const bool is_there = std::ranges::any_of(list, [&](const ordered_json& one) {
        return one == token || (one.is_object() && one.value("content", "") == token);
      });
      if (!is_there) list.push_back(token);
    }
  }
  write_ordered(file, content);
}

}  // namespace

void NewToken::describe(Fields<NewToken>& f) {
  f.required("content", &NewToken::content).not_empty("a token cannot be empty").doc("the token's text");
  f.optional("single_word", &NewToken::single_word).doc("whether it is found only where no letter or digit adjoins it");
  f.optional("lstrip", &NewToken::lstrip).doc("whether it takes the spaces before it");
  f.optional("rstrip", &NewToken::rstrip).doc("whether it takes the spaces behind it");
  f.optional("normalized", &NewToken::normalized)
      .doc("whether it is looked for in the normalized text; null: true, of special tokens false");
}

namespace {

/// What is wrong with the keys and values of special tokens that have roles; "" for nothing.
std::string fault_of(const NewTokens::Specials& specials) {
  for (const auto& [key, value] : specials.entries) {
    const bool takes_list = std::ranges::find(kListKeys, key) != kListKeys.end();
    if (!takes_list && !is_role(key)) {
      std::vector<std::string> known(kRoleKeys.begin(), kRoleKeys.end());
      known.insert(known.end(), kListKeys.begin(), kListKeys.end());
      return "there is no special token " + key + suggestion(key, known);
    }
    if (takes_list == std::holds_alternative<std::vector<NewTokenText>>(value)) continue;
    return key + (takes_list ? " is a list of tokens" : " is one token, not a list");
  }
  return "";
}

}  // namespace

std::optional<std::pair<std::string, std::string>> NewTokens::fault() const {
  const std::string empty = "a token cannot be empty";
  for (const NewTokenText& token : add_tokens) {
    if (added_token(token, false).content.empty()) return {{"add_tokens", empty}};
  }
  if (!add_special_tokens) return std::nullopt;
  const auto* named = std::get_if<Specials>(&*add_special_tokens);
  std::string fault = named ? fault_of(*named) : "";
  for_each_special(*this, [&](const std::string&, const AddedToken& token) {
    if (token.content.empty()) fault = empty;
  });
  if (fault.empty()) return std::nullopt;
  return {{"add_special_tokens", fault}};
}

std::vector<AddedToken> NewTokens::tokens() const {
  std::vector<AddedToken> all;
  for (const NewTokenText& token : add_tokens) all.push_back(added_token(token, /*special=*/false));
  for_each_special(*this, [&](const std::string&, AddedToken token) { all.push_back(std::move(token)); });
  return all;
}

std::map<std::string, std::string> NewTokens::roles() const {
  std::map<std::string, std::string> roles;
  for_each_special(*this, [&](const std::string& key, const AddedToken& token) {
    if (is_role(key)) roles[key.substr(0, key.size() - std::string_view("_token").size())] = token.content;
  });
  return roles;
}

std::vector<std::string> NewTokens::specials_without_role() const {
  std::vector<std::string> found;
  for_each_special(*this, [&](const std::string& key, const AddedToken& token) {
    if (!is_role(key)) found.push_back(token.content);
  });
  return found;
}

std::string NewTokens::key() const {
  ordered_json all = ordered_json::array();
  for (const AddedToken& token : tokens()) all.push_back(entry_of(token));
  return ordered_json({{"tokens", all}, {"roles", roles()}}).dump();
}

TokenGrowth add_new_tokens(Pipeline& parts, const NewTokens& added) {
  TokenGrowth growth;
  growth.before = growth.after = vocab_size_of(*parts.model, parts.added);
  std::vector<AddedToken> tokens = parts.added.tokens();
  const Vocabulary& vocabulary = parts.model->vocabulary();
  for (AddedToken& token : added.tokens()) {
    const auto has_content = [&](const AddedToken& other) { return other.content == token.content; };
    if (const auto known = std::ranges::find_if(tokens, has_content); known != tokens.end()) {
      if (std::ranges::find(growth.new_ids, known->id) == growth.new_ids.end()) ++growth.num_known;
      replace_flags(*known, token);
      continue;
    }
    const auto known = vocabulary.find(token.content);
    token.id = known.value_or(next_id(parts, tokens));
    const std::string* other = known ? nullptr : vocabulary.token(token.id);
    if (other) {
      throw DataError("\"" + token.content + "\" would get the id " + std::to_string(token.id) +
                      ", which is that of \"" + *other + "\": the ids of the vocabulary have gaps");
    }
    if (known) {
      ++growth.num_known;
    } else {
      growth.new_ids.push_back(token.id);
    }
    tokens.push_back(std::move(token));
  }
  parts.added = AddedTokens(std::move(tokens), parts.normalizer.get());
  for (const auto& [role, token] : added.roles()) parts.special_tokens[role] = token;
  growth.after = vocab_size_of(*parts.model, parts.added);
  return growth;
}

void write_new_tokens(const std::string& folder, const NewTokens& added) {
  const fs::path own = fs::path(folder) / "tokenizer.json";
  const auto grown = open_tokenizer(added.in(folder));
  ordered_json content = read_ordered(own);
  ordered_json& list = content["added_tokens"];
  if (!list.is_array()) list = ordered_json::array();
  for (AddedToken token : added.tokens()) {
    token.id = grown->id_of(token.content).value();
    const auto known =
        std::ranges::find_if(list, [&](const ordered_json& one) { return one.value("content", "") == token.content; });
    if (known != list.end()) token.special = token.special || known->value("special", false);
    if (known == list.end()) {
      list.push_back(entry_of(token));
    } else {
      *known = entry_of(token);
    }
  }
  std::ranges::stable_sort(list.get_ref<ordered_json::array_t&>(), {},
                           [](const ordered_json& one) { return one.value("id", int64_t{0}); });
  write_ordered(own, content);
  if (!added.add_special_tokens) return;
  write_roles(fs::path(folder) / "tokenizer_config.json", added);
  const fs::path older = fs::path(folder) / "special_tokens_map.json";
  if (fs::exists(older)) write_roles(older, added);
}

}  // namespace trainrun
