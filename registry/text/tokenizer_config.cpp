#include <nlohmann/json.hpp>

#include <filesystem>

#include "registry/error.h"
#include "registry/text/tokenizer_files.h"

namespace trainrun {
namespace {

constexpr const char* kRoles[] = {"pad", "bos", "eos", "unk", "sep", "cls", "mask"};

/// "[PAD]", or {"content": "[PAD]", …}.
void read_roles(const JsonNode& root, TokenizerConfig& config) {
  for (const char* role : kRoles) {
    const auto token = root.find(role + std::string("_token"));
    if (!token) continue;
    config.special_tokens[role] = token->value().is_object() ? token->text("content") : token->text();
  }
}

/// {"0": {"content": "[PAD]", "special": true, …}, …}
void read_added(const JsonNode& root, TokenizerConfig& config) {
  const auto tokens = root.find("added_tokens_decoder");
  if (!tokens) return;
  for (const auto& [id, node] : tokens->members()) {
    const bool number = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!number) node.fail("expected the id of a token as the key");
    AddedToken token;
    token.id = std::stoll(id);
    token.content = node.text("content");
    if (token.content.empty()) node.fail("a token cannot be empty");
    token.special = node.flag("special", false);
    token.single_word = node.flag("single_word", false);
    token.lstrip = node.flag("lstrip", false);
    token.rstrip = node.flag("rstrip", false);
    token.normalized = node.flag("normalized", !token.special);
    config.added_tokens.push_back(std::move(token));
  }
}

}  // namespace

bool TokenizerConfig::flag(const std::string& name, bool otherwise) const {
  const auto found = flags.find(name);
  return found == flags.end() ? otherwise : found->second;
}

/// Most of what the files say is about Python's classes: only what these tokenizers need is taken out of them.
TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!std::filesystem::exists(path)) continue;
    const std::string file = path.string();
    const nlohmann::json content = read_json_file(file);
    const JsonNode root(file, content);
    root.members();  // an object
    read_roles(root, config);
    if (name != std::string("tokenizer_config.json")) continue;
    config.file = file;
    config.tokenizer_class = root.find_text("tokenizer_class").value_or("");
    read_added(root, config);
    for (const auto& [key, value] : content.items()) {
      if (value.is_boolean()) config.flags[key] = value.get<bool>();
    }
  }
  return config;
}

}  // namespace trainrun
