#include "runner/interop/tokenizer_export.h"

#include <algorithm>
#include <array>

#include "registry/formats/files/digest.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/text/chat_template.h"
#include "registry/formats/text/json_node.h"
#include "registry/formats/text/unicode.h"
#include "registry/formats/web/named_sources.h"
#include "registry/language/error.h"
#include "runner/generate/chat_format.h"
#include "runner/generate/text_codec.h"
#include "runner/interop/export_files.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kTemplate = "chat_template.jinja";

std::string content_of(const fs::path& file) { return read_file(file.string(), kMostTokenizerBytes); }

void copy_text(const fs::path& from, const fs::path& to) { write_file_atomically(to.string(), content_of(from)); }

/// The name by which transformers looks for a file of this kind.
std::string usual_name(const fs::path& file) {
  std::string name = file.filename().string();
  if (name == "vocab.json" || name == "spiece.model") return name;
  if (file.extension() == ".txt") return "vocab.txt";
  return file.extension() == ".model" ? "tokenizer.model" : "tokenizer.json";
}

/// What makes characters tokens: a vocabulary of them, and nothing that joins any.
json characters_json(const std::string& characters) {
  json vocabulary = json::object();
  for (size_t at = 0; at < characters.size();) {
    const auto number = static_cast<int64_t>(vocabulary.size());
    vocabulary[unicode::encoded(unicode::next(characters, at))] = number;
  }
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", json::array()}}}};
}

void copy_files(const TokenizerOfData& tokenizer, const fs::path& folder) {
  const fs::path from = tokenizer.file.parent_path();
  const bool is_whole = fs::is_directory(tokenizer.given);
  for (const std::string& name : tokenizer_files(from.string())) {
    const bool is_beside = name != "tokenizer.json" && !name.starts_with("vocab.") && !name.ends_with(".model");
    const bool is_needed = is_beside && (name != "merges.txt" || tokenizer.file.filename() == "vocab.json");
    if (is_whole || is_needed) copy_text(from / name, folder / name);
  }
  if (!is_whole) copy_text(tokenizer.file, folder / usual_name(tokenizer.file));
}

/// Whether the files beside a tokenizer's own say which special tokens there are.
bool names_specials(const json& config, const fs::path& folder) {
  const bool has_own = std::ranges::any_of(config.items(), [](const auto& item) {
    return item.key().ends_with("_token") && !item.value().is_null() && !item.value().is_boolean();
  });
  return has_own || fs::exists(folder / "special_tokens_map.json");
}

/// Padding and its like, where no file says which tokens these are: those that have the usual names.
void add_specials(const fs::path& folder, json& config) {
  struct Usual {
    const char* key;
    std::array<const char*, 2> names;
  };
  static constexpr std::array kUsual = {Usual{"pad_token", {"[PAD]", "<pad>"}}, Usual{"unk_token", {"[UNK]", "<unk>"}},
                                        Usual{"cls_token", {"[CLS]", "[CLS]"}}, Usual{"sep_token", {"[SEP]", "[SEP]"}},
                                        Usual{"mask_token", {"[MASK]", "<mask>"}}};
  const auto tokenizer = open_tokenizer(folder.string());
  for (const auto& [key, names] : kUsual) {
    for (const char* name : names) {
      const auto id = tokenizer->id_of(name);
      if (id && tokenizer->is_special(*id) && !config.contains(key)) config[key] = name;
    }
  }
}

/// By which class transformers is to read the files, so that they make the tokens that they made here.
std::string class_for(const fs::path& folder, const std::string& model_type) {
  if (fs::exists(folder / "tokenizer.json")) return "PreTrainedTokenizerFast";  // as the file says, and no flags
  if (fs::exists(folder / "vocab.txt")) return "BertTokenizer";
  if (fs::exists(folder / "vocab.json")) return model_type == "roberta" ? "RobertaTokenizer" : "GPT2Tokenizer";
  return "";
}

/// The most positions that the model has, as far as a text's tokens can have them.
int64_t positions_in(const json& config) {
  for (const char* key : {"max_position_embeddings", "n_positions"}) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_number_integer()) continue;
    const bool counts_from_padding = config.value("model_type", "") == "roberta";
    return found->get<int64_t>() - (counts_from_padding ? config.value("pad_token_id", int64_t{1}) + 1 : 0);
  }
  return 0;
}

void set_template(const TokenizerOfData& tokenizer, const fs::path& folder, json& config) {
  if (!tokenizer.chat_template) return;
  const std::string text = chat_template_text(tokenizer.given.string(), *tokenizer.chat_template);
  auto& own = config["chat_template"];
  if (own.is_array()) {  // several by their names
    std::erase_if(own.get_ref<json::array_t&>(), [](const json& one) { return one.value("name", "") == "default"; });
    own.push_back({{"name", "default"}, {"template", text}});
    fs::remove(folder / kTemplate);
    return;
  }
  config.erase("chat_template");
  write_file_atomically((folder / kTemplate).string(), text);
}

std::shared_ptr<const Tokenizer> write_tokenizer(const TokenizerOfData& tokenizer, const json& config,
                                                 std::optional<int64_t> max_length, const fs::path& folder) {
  if (tokenizer.has_characters()) {
    write_json_file(folder / "tokenizer.json", characters_json(tokenizer.characters));
  } else {
    copy_files(tokenizer, folder);
  }
  if (!tokenizer.added.empty()) write_new_tokens(folder.string(), tokenizer.added);
  json own = fs::exists(folder / kConfig) ? read_json_file((folder / kConfig).string()) : json::object();
  const std::string model_type = config.value("model_type", "");
  if (const std::string name = class_for(folder, model_type); !own.contains("tokenizer_class") && !name.empty()) {
    own["tokenizer_class"] = name;
  }
  if (!own.contains("model_input_names")) {
    own["model_input_names"] = model_type == "bert" ? json{"input_ids", "token_type_ids", "attention_mask"}
                                                    : json{"input_ids", "attention_mask"};
  }
  if (!names_specials(own, folder)) add_specials(folder, own);
  const int64_t positions = positions_in(config);
  if (max_length) {
    own["model_max_length"] = positions > 0 ? std::min(*max_length, positions) : *max_length;
  } else if (positions > 0 && !own.contains("model_max_length")) {
    own["model_max_length"] = positions;
  }
  set_template(tokenizer, folder, own);
  write_json_file(folder / kConfig, own);
  return open_tokenizer(folder.string());
}

}  // namespace

std::optional<TokenizerOfData> tokenizer_of_data(const TrainedRun& run, const std::string& pretrained) {
  const ChatSource source = chat_source_of(run.recipe());
  std::string named = source.tokenizer;
  const bool is_of_data = !named.empty();
  if (!is_of_data) {
    if (auto characters = characters_in(run.contract().dataset))
      return TokenizerOfData{{}, {}, {}, std::move(*characters), true};
    // Of no folder at all none is looked for: "" would be the current folder, which may hold any tokenizer.
    if (pretrained.empty() || !find_tokenizer(pretrained)) return std::nullopt;
    named = pretrained;
  }
  const fs::path given(model_folder(named, PublishedPart::kTokenizer));
  const auto file = fs::is_directory(given) ? find_tokenizer(given.string()) : std::optional(given.string());
  if (file && fs::exists(*file)) {
    return TokenizerOfData{given, *file, source.chat_template, {}, is_of_data, is_of_data ? source.added : NewTokens()};
  }
  throw DataError("export: the tokenizer of the training data is not there any more: " + named +
                  "; put it back, or name where it is now: dataset.train.tokenizer=PATH");
}

std::string digest_of(const TokenizerOfData& tokenizer) {
  if (tokenizer.has_characters()) return sha256(tokenizer.characters);
  return sha256(content_of(tokenizer.file) + (tokenizer.added.empty() ? "" : tokenizer.added.key()));
}

std::shared_ptr<const Tokenizer> export_tokenizer(TrainedRun& run, const TokenizerOfData& tokenizer, const json& config,
                                                  std::optional<int64_t> max_length, const fs::path& folder) {
  try {
    return write_tokenizer(tokenizer, config, max_length, folder);
  } catch (const DataError&) {
    if (tokenizer.is_of_data) throw;
    run.add_notes({"the tokenizer in " + tokenizer.given.string() +
                   " is copied as it is, since it cannot be read here; the training data do not use it"});
    return nullptr;
  }
}

}  // namespace trainrun
