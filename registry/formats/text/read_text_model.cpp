#include <nlohmann/json.hpp>

#include "registry/formats/text/text_model.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

/// Names the place in the file in the errors of a model that is made from it.
template <class Make>
std::unique_ptr<TextModel> made_from(const JsonNode& node, const Make& make) {
  try {
    return make();
  } catch (const DataError& error) {
    node.fail(error.what());
  }
}

/// ["a", "b"], or "a b" as older files have it.
Merges read_merges(const JsonNode& node) {
  if (!node.value().is_array()) node.fail("expected a list");
  Merges merges;
  merges.reserve(node.value().size());
  for (size_t i = 0; i < node.value().size(); ++i) {
    const nlohmann::json& item = node.value()[i];
    if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.emplace_back(item[0].get<std::string>(), item[1].get<std::string>());
      continue;
    }
    const std::string text = item.is_string() ? item.get<std::string>() : "";
    if (text.starts_with("#version")) continue;
    const size_t blank = text.find(' ');
    if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
      JsonNode(node.file(), item, node.path() + "[" + std::to_string(i) + "]")
          .fail("expected two tokens, as [\"a\", \"b\"] or \"a b\"");
    }
    merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
  }
  return merges;
}

std::unique_ptr<TextModel> read_byte_pair(const JsonNode& node) {
  node.only({"type", "vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
             "fuse_unk", "byte_fallback", "ignore_merges"});
  if (const auto dropout = node.find("dropout"); dropout && dropout->number() != 0) {
    dropout->fail("tokens that change from one call to the next are not supported; expected null or 0");
  }
  BytePairOptions options;
  options.unknown = node.find_text("unk_token");
  options.continuing_prefix = node.find_text("continuing_subword_prefix").value_or("");
  options.word_suffix = node.find_text("end_of_word_suffix").value_or("");
  options.fuse_unknown = node.flag("fuse_unk", false);
  options.byte_fallback = node.flag("byte_fallback", false);
  options.ignore_merges = node.flag("ignore_merges", false);
  const Merges merges = read_merges(node.at("merges"));
  Vocabulary vocabulary(node.at("vocab"));
  return made_from(node, [&] { return byte_pair_model(std::move(vocabulary), merges, options); });
}

std::unique_ptr<TextModel> read_word_piece(const JsonNode& node) {
  node.only({"type", "vocab", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word"});
  WordPieceOptions options;
  options.unknown = node.find_text("unk_token").value_or(options.unknown);
  options.continuing_prefix = node.find_text("continuing_subword_prefix").value_or(options.continuing_prefix);
  if (const auto most = node.find("max_input_chars_per_word")) options.most_characters = most->integer(0, INT32_MAX);
  Vocabulary vocabulary(node.at("vocab"));
  return made_from(node, [&] { return word_piece_model(std::move(vocabulary), options); });
}

/// Files of the first versions name no type.
std::string type_of(const JsonNode& node) {
  if (const auto type = node.find_text("type")) return *type;
  if (node.find("merges")) return "BPE";
  if (node.find("max_input_chars_per_word")) return "WordPiece";
  const auto vocab = node.find("vocab");
  return vocab && vocab->value().is_array() ? "Unigram" : "WordLevel";
}

}  // namespace

std::unique_ptr<TextModel> read_text_model(const JsonNode& node) {
  const std::string type = type_of(node);
  if (type == "BPE") return read_byte_pair(node);
  if (type == "WordPiece") return read_word_piece(node);
  if (type == "Unigram") return read_unigram_model(node);
  if (type != "WordLevel") node.fail("unknown model " + type + "; known: BPE, Unigram, WordLevel, WordPiece");
  node.only({"type", "vocab", "unk_token"});
  Vocabulary vocabulary(node.at("vocab"));
  return made_from(node, [&] { return word_level_model(std::move(vocabulary), node.text("unk_token")); });
}

}  // namespace trainrun
