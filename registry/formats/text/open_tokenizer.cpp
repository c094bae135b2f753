#include <nlohmann/json.hpp>

#include <array>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/tokenizer_files.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr std::array kOwnFiles = {"tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model"};
constexpr std::array kFilesBeside = {"merges.txt", "tokenizer_config.json", "special_tokens_map.json",
                                     "added_tokens.json", "chat_template.jinja"};

fs::path file_in(const fs::path& folder) {
  if (const auto found = find_tokenizer(folder.string())) return *found;
  throw DataError(folder.string() +
                  ": there is no tokenizer in this folder; expected tokenizer.json, or vocab.txt, or vocab.json and "
                  "merges.txt, or tokenizer.model");
}

/// The classes of BERT and GPT-2 make normalizer and pre-tokenizer anew by these flags, whatever tokenizer.json says.
void follow_flags(nlohmann::json& content, const TokenizerConfig& config) {
  const auto set = [&](const char* part, const char* type, const char* flag, const char* key) {
    const auto found = content.find(part);
    if (found == content.end() || !found->is_object() || found->value("type", nlohmann::json()) != type) return;
    if (config.flags.contains(flag)) (*found)[key] = config.flags.at(flag);
  };
  const auto is_of = [&](const char* family) { return config.tokenizer_class.starts_with(family); };
  if (is_of("Bert") || is_of("DistilBert") || is_of("Electra")) {
    set("normalizer", "BertNormalizer", "do_lower_case", "lowercase");
    set("normalizer", "BertNormalizer", "strip_accents", "strip_accents");
    set("normalizer", "BertNormalizer", "tokenize_chinese_chars", "handle_chinese_chars");
  }
  if (is_of("GPT2") || is_of("Roberta")) set("pre_tokenizer", "ByteLevel", "add_prefix_space", "add_prefix_space");
}

Pipeline read_own(const fs::path& file, const TokenizerConfig& config) {
  const std::string name = file.filename().string();
  if (name == "vocab.json") {
    return read_vocab_and_merges(file.string(), (file.parent_path() / "merges.txt").string(), config);
  }
  if (file.extension() == ".txt") return read_vocab_txt(file.string(), config);
  if (file.extension() == ".model") {
    return read_sentence_piece(file.string(), read_file(file.string(), kMostTokenizerBytes), config);
  }
  if (file.extension() != ".json") {
    throw DataError(file.string() +
                    ": not a tokenizer's file; expected tokenizer.json, vocab.txt, vocab.json or "
                    "tokenizer.model");
  }
  nlohmann::json content = read_json_file(file.string());
  if (content.is_object()) follow_flags(content, config);
  Pipeline parts = read_tokenizer_json(file.string(), content);
  parts.special_tokens = config.special_tokens;
  return parts;
}

Pipeline read_pipeline(const fs::path& file) {
  const TokenizerConfig config = read_tokenizer_config(file.parent_path().string());
  Pipeline parts = read_own(file, config);
  add_missing_tokens(parts, config);
  const bool cleans_bpe = config.flag("clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", false);
  parts.cleans_up = config.flag("clean_up_tokenization_spaces", false) && (cleans_bpe || !parts.model->is_byte_pair());
  const auto file_side = parts.truncation ? parts.truncation->side : Truncation::Side::kRight;
  parts.truncation_side = config.truncation_side.value_or(file_side);
  parts.pads_left = config.pads_left.value_or(parts.padding && parts.padding->left);
  return parts;
}

/// The tokenizer's own file. Throws DataError.
fs::path own_file(const std::string& path) {
  const fs::path given(model_folder(path, PublishedPart::kTokenizer));
  if (!fs::exists(given)) throw DataError(path + ": there is no such file or folder");
  return fs::is_directory(given) ? file_in(given) : given;
}

struct GrownPipeline {
  Pipeline parts;
  TokenGrowth growth;
};

GrownPipeline read_grown(const TokenizerSource& source) {
  const fs::path file = own_file(source.path);
  if (!source.added.empty() && (file.extension() != ".json" || file.filename() == "vocab.json")) {
    throw DataError(file.string() +
                    ": tokens can only be added to a tokenizer.json; save the tokenizer with transformers, "
                    "AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER), and name that folder");
  }
  GrownPipeline made{read_pipeline(file), {}};
  try {
    made.growth = add_new_tokens(made.parts, source.added);
  } catch (const DataError& error) {
    throw DataError(file.string() + ": " + error.what());
  }
  return made;
}

}  // namespace

std::optional<std::string> find_tokenizer(const std::string& folder) {
  for (const char* name : kOwnFiles) {
    const fs::path file = fs::path(folder) / name;
    if (fs::exists(file)) return file.string();
  }
  return std::nullopt;
}

std::vector<std::string> tokenizer_files(const std::string& folder) {
  std::vector<std::string> found;
  const auto add_present = [&](const auto& names) {
    for (const char* name : names) {
      if (fs::is_regular_file(fs::path(folder) / name)) found.emplace_back(name);
    }
  };
  add_present(kOwnFiles);
  add_present(kFilesBeside);
  return found;
}

std::vector<std::string> files_of_tokenizer(const std::string& path) {
  const fs::path given(model_folder(path, PublishedPart::kTokenizer));
  if (!fs::exists(given)) throw DataError(path + ": there is no such file or folder");
  const bool is_folder = fs::is_directory(given);
  const fs::path folder = is_folder ? given : given.parent_path();
  std::vector<std::string> files;
  if (!is_folder) files.push_back(given.string());
  for (const std::string& name : tokenizer_files(folder.string())) {
    if (is_folder || name != given.filename()) files.push_back((folder / name).string());
  }
  return files;
}

std::string tokenizer_digest(const std::string& path) {
  std::string all;
  for (const std::string& file : files_of_tokenizer(path)) {
    all += fs::path(file).filename().string() + "\n" + digest_file(file).sha256 + "\n";
  }
  return sha256(all);
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& path) {
  return std::make_shared<const PipelineTokenizer>(read_pipeline(own_file(path)));
}

std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizerSource& source) {
  return std::make_shared<const PipelineTokenizer>(std::move(read_grown(source).parts));
}

TokenGrowth growth_of(const TokenizerSource& source) { return read_grown(source).growth; }

}  // namespace trainrun
