#include <nlohmann/json.hpp>

#include "registry/formats/text/tokenizer_files.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

Truncation read_truncation(const JsonNode& node) {
  node.only({"direction", "max_length", "strategy", "stride"});
  Truncation truncation;
  truncation.max_length = node.integer("max_length", 0, kMostTokenId);
  const std::string strategy = node.text("strategy");
  if (strategy == "OnlyFirst") {
    truncation.strategy = Truncation::Strategy::kOnlyFirst;
  } else if (strategy == "OnlySecond") {
    truncation.strategy = Truncation::Strategy::kOnlySecond;
  } else if (strategy != "LongestFirst") {
    node.at("strategy").fail("unknown strategy " + strategy + "; known: LongestFirst, OnlyFirst, OnlySecond");
  }
  node.integer("stride", 0, kMostTokenId);  // of the rest of a text that was cut, which nobody asks for here
  if (const auto direction = node.find("direction")) {
    if (direction->text() != "Left" && direction->text() != "Right") direction->fail("expected Left or Right");
    if (direction->text() == "Left") truncation.side = Truncation::Side::kLeft;
  }
  return truncation;
}

Padding read_padding(const JsonNode& node) {
  node.only({"strategy", "direction", "pad_to_multiple_of", "pad_id", "pad_type_id", "pad_token"});
  Padding padding;
  const JsonNode strategy = node.at("strategy");
  if (strategy.value().is_object()) {
    strategy.only({"Fixed"});
    padding.length = strategy.integer("Fixed", 0, kMostTokenId);
  } else if (strategy.text() != "BatchLongest") {
    strategy.fail("expected \"BatchLongest\" or {\"Fixed\": length}");
  }
  const JsonNode direction = node.at("direction");
  if (direction.text() != "Left" && direction.text() != "Right") direction.fail("expected Left or Right");
  padding.left = direction.text() == "Left";
  if (const auto multiple = node.find("pad_to_multiple_of")) padding.multiple_of = multiple->integer(1, kMostTokenId);
  padding.id = node.integer("pad_id", 0, kMostTokenId);
  padding.type_id = node.integer("pad_type_id", 0, kMostTokenId);
  node.text("pad_token");
  return padding;
}

/// The errors of normalizing a token do not know the file.
AddedTokens read_added_tokens(const JsonNode& root, const Pipeline& parts) {
  const auto node = root.find("added_tokens");
  if (!node) return {};
  try {
    return {*node, parts.model->vocabulary(), parts.normalizer.get()};
  } catch (const DataError& error) {
    if (std::string(error.what()).starts_with(root.file())) throw;
    node->fail(error.what());
  }
}

}  // namespace

Pipeline read_tokenizer_json(const std::string& file, const nlohmann::json& content) {
  const JsonNode root(file, content);
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  if (const auto version = root.find("version"); version && version->text() != "1.0") {
    version->fail("unknown version " + version->text() + "; known: 1.0");
  }
  Pipeline parts;
  if (const auto node = root.find("normalizer")) parts.normalizer = read_normalizer(*node);
  if (const auto node = root.find("pre_tokenizer")) parts.pre_tokenizer = read_pre_tokenizer(*node);
  parts.model = read_text_model(root.at("model"));
  parts.added = read_added_tokens(root, parts);
  if (const auto node = root.find("post_processor")) {
    parts.post_processor = PostProcessor(*node, vocab_size_of(*parts.model, parts.added));
  }
  if (const auto node = root.find("decoder")) parts.decoder = read_decoder(*node);
  if (const auto node = root.find("truncation")) parts.truncation = read_truncation(*node);
  if (const auto node = root.find("padding")) parts.padding = read_padding(*node);
  return parts;
}

}  // namespace trainrun
