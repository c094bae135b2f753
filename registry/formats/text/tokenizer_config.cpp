#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "registry/formats/files/settings_file.h"
#include "registry/formats/text/tokenizer_files.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

/// Keys that are read by name, here or by the readers of vocabularies and of chat templates; others that end with
/// _token name special tokens.
constexpr std::array<std::string_view, 18> kReadKeys = {
    "added_tokens_decoder",
    "extra_special_tokens",
    "additional_special_tokens",
    "model_specific_special_tokens",
    "tokenizer_class",
    "chat_template",
    "truncation_side",
    "padding_side",
    "split_special_tokens",
    "clean_up_tokenization_spaces",
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
    "do_lower_case",
    "strip_accents",
    "tokenize_chinese_chars",
    "add_prefix_space",
    "add_bos_token",
    "add_eos_token",
    "never_split"};

// Keys that change no token.
constexpr std::string_view kOrigin = "says where the files come from, or by which class they are opened";
constexpr std::string_view kRecipe = "the recipe says how long texts are made, and which fields a model reads";
constexpr std::string_view kSlow = "is of Python's old tokenizers, which its fast ones do not read";
constexpr std::string_view kChats = "is about answers that are taken apart, not about tokens";
constexpr std::array kMeaningless = {
    MeaninglessKey{"name_or_path", kOrigin},
    MeaninglessKey{"_name_or_path", kOrigin},
    MeaninglessKey{"_commit_hash", kOrigin},
    MeaninglessKey{"auto_map", kOrigin},
    MeaninglessKey{"backend", kOrigin},
    MeaninglessKey{"files_loaded", kOrigin},
    MeaninglessKey{"from_slow", kOrigin},
    MeaninglessKey{"init_inputs", kOrigin},
    MeaninglessKey{"is_local", kOrigin},
    MeaninglessKey{"local_files_only", kOrigin},
    MeaninglessKey{"merges", kOrigin},
    MeaninglessKey{"merges_file", kOrigin},
    MeaninglessKey{"processor_class", kOrigin},
    MeaninglessKey{"special_tokens_map_file", kOrigin},
    MeaninglessKey{"tokenizer_file", kOrigin},
    MeaninglessKey{"transformers_version", kOrigin},
    MeaninglessKey{"trust_remote_code", kOrigin},
    MeaninglessKey{"use_fast", kOrigin},
    MeaninglessKey{"vocab", kOrigin},
    MeaninglessKey{"vocab_file", kOrigin},
    MeaninglessKey{"verbose", kOrigin},
    MeaninglessKey{"max_len", kRecipe},
    MeaninglessKey{"max_length", kRecipe},
    MeaninglessKey{"model_input_names", kRecipe},
    MeaninglessKey{"model_max_length", kRecipe},
    MeaninglessKey{"pad_to_multiple_of", kRecipe},
    MeaninglessKey{"pad_token_type_id", kRecipe},
    MeaninglessKey{"stride", kRecipe},
    MeaninglessKey{"truncation_strategy", kRecipe},
    MeaninglessKey{"do_basic_tokenize", kSlow},
    MeaninglessKey{"errors", kSlow},
    MeaninglessKey{"legacy", kSlow},
    MeaninglessKey{"sp_model_kwargs", kSlow},
    MeaninglessKey{"spaces_between_special_tokens", kSlow},
    MeaninglessKey{"trim_offsets", kSlow},
    MeaninglessKey{"use_default_system_prompt", kSlow},
    MeaninglessKey{"unk_id", kSlow},
    MeaninglessKey{"extra_ids", kSlow},
    MeaninglessKey{"chat_control_tokens", kChats},
    MeaninglessKey{"response_schema", kChats},
    MeaninglessKey{"response_template", kChats},
};

constexpr std::string_view kTokenEnd = "_token";

bool names_token(const std::string& key, const nlohmann::json& value) {
  return key.ends_with(kTokenEnd) && (value.is_string() || value.is_object());
}

bool is_known(const std::string& key, const nlohmann::json& value) {
  return names_token(key, value) || std::ranges::find(kReadKeys, key) != kReadKeys.end() ||
         means_nothing(kMeaningless, key);
}

/// {"content": "[PAD]", "special": true, …}
AddedToken token_of(const JsonNode& node, bool special) {
  AddedToken token;
  token.content = node.text("content");
  if (token.content.empty()) node.fail("a token cannot be empty");
  token.special = special || node.flag("special", false);
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

/// "[PAD]", or the same as an object.
AddedToken special_of(const JsonNode& node) {
  if (node.value().is_object()) return token_of(node, /*special=*/true);
  AddedToken token;
  token.content = node.text();
  if (token.content.empty()) node.fail("a token cannot be empty");
  token.special = true;
  return token;
}

/// The special tokens that the files name, by role or in a list.
struct SpecialTokens {
  std::map<std::string, AddedToken> roles;
  std::vector<AddedToken> more;
};

/// What one file says; over what was read before.
void read_specials(const JsonNode& root, SpecialTokens& specials) {
  const auto read_named = [&](const JsonNode& names) {
    for (const auto& [key, node] : names.members()) {
      if (!names_token(key, node.value())) continue;
      specials.roles[key.substr(0, key.size() - kTokenEnd.size())] = special_of(node);
    }
  };
  read_named(root);
  if (const auto named = root.find("model_specific_special_tokens")) read_named(*named);
  // The older name counts where the newer one is not there, or has nothing.
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto extra = root.find(key);
    if (!extra || extra->value().empty()) continue;
    if (extra->value().is_object()) return read_named(*extra);
    specials.more.clear();
    for (const JsonNode& node : extra->items()) specials.more.push_back(special_of(node));
    return;
  }
}

/// In the order in which transformers adds them to a vocabulary that lacks them.
void take_specials(const SpecialTokens& specials, TokenizerConfig& config) {
  static const std::vector<std::string> roles = {"bos", "eos", "unk", "sep", "pad", "cls", "mask"};
  for (const std::string& role : roles) {
    if (specials.roles.contains(role)) config.role_tokens.push_back(specials.roles.at(role));
  }
  config.extra_tokens = specials.more;
  for (const auto& [role, token] : specials.roles) {
    config.special_tokens[role] = token.content;
    if (std::ranges::find(roles, role) == roles.end()) config.named_tokens.push_back(token);
  }
}

/// {"0": {"content": "[PAD]", "special": true, …}, …}
void read_added(const JsonNode& root, TokenizerConfig& config) {
  const auto tokens = root.find("added_tokens_decoder");
  if (!tokens) return;
  for (const auto& [id, node] : tokens->members()) {
    const bool number = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
    if (!number) node.fail("expected the id of a token as the key");
    AddedToken token = token_of(node, /*special=*/false);
    token.id = std::stoll(id);
    config.added_tokens.push_back(std::move(token));
  }
}

/// added_tokens.json: {"<extra>": 32000, …}
void read_older_added(const JsonNode& root, TokenizerConfig& config) {
  std::set<std::string> specials;
  for (const auto* tokens : {&config.role_tokens, &config.extra_tokens}) {
    for (const AddedToken& token : *tokens) specials.insert(token.content);
  }
  for (const auto& [content, node] : root.members()) {
    AddedToken token;
    token.id = node.integer(0, kMostTokenId);
    token.content = content;
    if (content.empty()) node.fail("a token cannot be empty");
    token.special = specials.contains(content);
    token.normalized = !token.special;
    config.added_tokens.push_back(std::move(token));
  }
}

bool is_left(const JsonNode& side) {
  if (side.text() != "left" && side.text() != "right") side.fail("expected left or right");
  return side.text() == "left";
}

void read_settings_of(const JsonNode& root, TokenizerConfig& config) {
  config.file = root.file();
  config.tokenizer_class = root.find_text("tokenizer_class").value_or("");
  read_added(root, config);
  if (const auto side = root.find("truncation_side")) {
    config.truncation_side = is_left(*side) ? Truncation::Side::kLeft : Truncation::Side::kRight;
  }
  if (const auto side = root.find("padding_side")) config.pads_left = is_left(*side);
  for (const auto& [key, value] : root.value().items()) {
    if (value.is_boolean()) config.flags[key] = value.get<bool>();
    if (!value.is_null() && !is_known(key, value)) config.unknown_keys.push_back(key);
  }
  if (config.flag("split_special_tokens", false)) {
    root.at("split_special_tokens")
        .fail("special tokens that are read as ordinary text are not available; write false");
  }
  if (const auto never = root.find("never_split"); never && !never->value().empty()) {
    never->fail("words that are never split are not available; add them to the tokens instead");
  }
}

/// Calls `read` with the file's content, if there is such a file.
template <class Read>
void with_file(const fs::path& path, const Read& read) {
  if (!fs::exists(path)) return;
  const std::string file = path.string();
  const nlohmann::json content = read_json_file(file);
  const JsonNode root(file, content);
  root.members();  // an object
  read(root);
}

}  // namespace

bool TokenizerConfig::flag(const std::string& name, bool otherwise) const {
  const auto found = flags.find(name);
  return found == flags.end() ? otherwise : found->second;
}

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  const fs::path path(folder);
  SpecialTokens specials;
  bool has_decoder = false;
  with_file(path / "tokenizer_config.json", [&](const JsonNode& root) {
    has_decoder = root.value().contains("added_tokens_decoder");
    read_settings_of(root, config);
    read_specials(root, specials);
  });
  // The older files count where tokenizer_config.json was written before it had added_tokens_decoder.
  if (!has_decoder) {
    with_file(path / "special_tokens_map.json", [&](const JsonNode& root) { read_specials(root, specials); });
  }
  take_specials(specials, config);
  if (!has_decoder) {
    with_file(path / "added_tokens.json", [&](const JsonNode& root) { read_older_added(root, config); });
  }
  return config;
}

std::vector<std::string> tokenizer_notes(const std::string& path) {
  const fs::path given(model_folder(path, PublishedPart::kTokenizer));
  if (!fs::exists(given)) return {};
  const fs::path folder = fs::is_directory(given) ? given : given.parent_path();
  const TokenizerConfig config = read_tokenizer_config(folder.string());
  if (config.unknown_keys.empty()) return {};
  return {config.file + ": " + unknown_keys_text(config.unknown_keys)};
}

}  // namespace trainrun
