#include "runner/interop/gguf/gguf_tokenizer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>

#include "registry/formats/files/file_io.h"
#include "registry/formats/text/byte_letters.h"
#include "registry/formats/text/json_node.h"
#include "registry/formats/text/sentence_piece_model.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{1} << 30;

using PieceType = SentencePieceModel::Type;  // whose numbers GGUF took over

/// How texts are split before tokens are joined, by llama.cpp's names for it.
struct KnownSplit {
  const char* name;
  const char* pattern;  // of a Split in tokenizer.json; "": ByteLevel's own
};
constexpr std::array kSplits = {
    KnownSplit{"gpt-2", ""},
    KnownSplit{"llama-bpe", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
                            R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    KnownSplit{"qwen2", R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
                        R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

[[noreturn]] void refuse_tokenizer(const std::string& what) {
  throw DataError("export: --format gguf: " + what +
                  "; write --format huggingface, whose folder has the tokenizer as it is");
}

/// The pattern by which a text is split; nothing: by something else than a pattern and bytes.
std::optional<std::string> split_pattern(const json& pre_tokenizer) {
  if (!pre_tokenizer.is_object()) return std::nullopt;
  const std::string type = pre_tokenizer.value("type", "");
  if (type == "ByteLevel") return "";
  const json parts = pre_tokenizer.value("pretokenizers", json::array());
  if (type != "Sequence" || parts.size() != 2 || parts[1].value("type", "") != "ByteLevel") return std::nullopt;
  if (parts[0].value("type", "") != "Split" || parts[0].value("behavior", "") != "Isolated") return std::nullopt;
  const json pattern = parts[0].value("pattern", json::object());
  return pattern.contains("Regex") && pattern["Regex"].is_string() ? std::optional(pattern["Regex"].get<std::string>())
                                                                   : std::nullopt;
}

std::string name_of_split(const json& pre_tokenizer) {
  const auto pattern = split_pattern(pre_tokenizer);
  const auto* const known =
      std::ranges::find_if(kSplits, [&](const KnownSplit& split) { return pattern && *pattern == split.pattern; });
  if (known != kSplits.end()) return known->name;
  refuse_tokenizer(
      "the tokenizer splits texts in a way that GGUF has no name for here (known: that of GPT-2, Llama 3 and Qwen2)");
}

/// One line for each merge: "a b".
std::vector<std::string> merges_of(const json& model) {
  std::vector<std::string> merges;
  for (const json& merge : model.value("merges", json::array())) {
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
  }
  return merges;
}

/// The tokens by their numbers, and what they are for.
struct GgufTokens {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;

  GgufTokens(const Tokenizer& tokenizer, int64_t rows) {
    for (int64_t id = 0; id < std::max(rows, tokenizer.vocab_size()); ++id) {
      const auto token = tokenizer.token_of(id);
      tokens.push_back(token.value_or("[PAD" + std::to_string(id) + "]"));
      types.push_back(static_cast<int32_t>(type_of(tokenizer, id, token.has_value())));
    }
  }

 private:
  static PieceType type_of(const Tokenizer& tokenizer, int64_t id, bool is_there) {
    if (!is_there) return PieceType::kUnused;
    if (tokenizer.is_special(id)) return PieceType::kControl;
    return tokenizer.is_added(id) ? PieceType::kUserDefined : PieceType::kNormal;
  }
};

/// Whether the tokens are characters of one byte each: however a text is split, they are the same.
bool are_bytes(const std::vector<std::string>& tokens) {
  return std::ranges::all_of(tokens, [](const std::string& token) {
    return token.size() == 1 && static_cast<unsigned char>(token[0]) < 0x80;
  });
}

void add_byte_pairs(GgufFile& file, const json& content, GgufTokens list) {
  const json model = content.value("model", json::object());
  if (model.value("type", "") != "BPE" || model.value("byte_fallback", false)) {
    refuse_tokenizer(
        "the tokenizer is neither pairs of bytes (as GPT-2's, Llama 3's and Qwen2's) nor a tokenizer.model of "
        "SentencePiece");
  }
  const std::vector<std::string> merges = merges_of(model);
  const json split = content.value("pre_tokenizer", json());
  const bool is_of_bytes = split.is_null() && merges.empty() && are_bytes(list.tokens);
  if (is_of_bytes) std::ranges::transform(list.tokens, list.tokens.begin(), byte_letters);
  file.set("tokenizer.ggml.model", std::string("gpt2"));
  file.set("tokenizer.ggml.pre", is_of_bytes ? std::string(kSplits[0].name) : name_of_split(split));
  file.set("tokenizer.ggml.tokens", std::move(list.tokens));
  file.set("tokenizer.ggml.token_type", std::move(list.types));
  file.set("tokenizer.ggml.merges", merges);
}

void add_pieces(GgufFile& file, const fs::path& path, GgufTokens list) {
  const SentencePieceModel model = read_sentence_piece_model(read_file(path.string(), kMostBytes));
  if (model.kind != SentencePieceModel::Kind::kBytePair) refuse_tokenizer("the tokenizer.model is not of the kind BPE");
  constexpr float kUnscored = -1000;  // as llama.cpp's converter has it for tokens that are not the model's
  std::vector<float> scores(list.tokens.size(), kUnscored);
  for (size_t id = 0; id < std::min(model.pieces.size(), scores.size()); ++id) {
    scores[id] = model.pieces[id].score;
    list.tokens[id] = model.pieces[id].text;
    list.types[id] = static_cast<int32_t>(model.pieces[id].type);
  }
  file.set("tokenizer.ggml.model", std::string("llama"));
  file.set("tokenizer.ggml.pre", std::string("default"));
  file.set("tokenizer.ggml.tokens", std::move(list.tokens));
  file.set("tokenizer.ggml.scores", std::move(scores));
  file.set("tokenizer.ggml.token_type", std::move(list.types));
  file.set("tokenizer.ggml.add_space_prefix", model.dummy_prefix);
}

void add_chat_template(GgufFile& file, const fs::path& folder) {
  const fs::path own = folder / "chat_template.jinja", config = folder / "tokenizer_config.json";
  if (fs::exists(own)) {
    file.set("tokenizer.chat_template", read_file(own.string(), kMostBytes));
  } else if (fs::exists(config)) {
    const json found = read_json_file(config.string()).value("chat_template", json());
    if (found.is_string()) file.set("tokenizer.chat_template", found.get<std::string>());
  }
}

/// Which tokens begin, end and fill up a text, and whether encoding adds them.
void add_special_tokens(GgufFile& file, const Tokenizer& tokenizer) {
  constexpr std::array kRoles = {std::pair("bos", "bos"), std::pair("eos", "eos"), std::pair("unk", "unknown"),
                                 std::pair("pad", "padding")};
  for (const auto& [role, name] : kRoles) {
    const auto id = tokenizer.special_id(role);
    if (id) file.set(std::string("tokenizer.ggml.") + name + "_token_id", static_cast<uint32_t>(*id));
  }
  const Encoding encoding = tokenizer.encode("a");
  if (encoding.ids.empty()) return;
  const auto adds = [&](bool at_end, const char* role) {
    const size_t place = at_end ? encoding.ids.size() - 1 : 0;
    return encoding.special[place] && tokenizer.special_id(role) == encoding.ids[place];
  };
  file.set("tokenizer.ggml.add_bos_token", adds(false, "bos"));
  file.set("tokenizer.ggml.add_eos_token", adds(true, "eos"));
}

}  // namespace

void add_tokenizer(GgufFile& file, const fs::path& folder, const Tokenizer& tokenizer, int64_t rows) {
  GgufTokens list(tokenizer, rows);
  if (fs::exists(folder / "tokenizer.json")) {
    add_byte_pairs(file, read_json_file((folder / "tokenizer.json").string()), std::move(list));
  } else if (fs::exists(folder / "tokenizer.model")) {
    add_pieces(file, folder / "tokenizer.model", std::move(list));
  } else {
    refuse_tokenizer("the tokenizer is neither a tokenizer.json nor a tokenizer.model");
  }
  add_special_tokens(file, tokenizer);
  add_chat_template(file, folder);
}

}  // namespace trainrun
