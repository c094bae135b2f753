#include "registry/formats/text/post_processor.h"

#include <nlohmann/json.hpp>

namespace trainrun {
namespace {

/// The id in ["[SEP]", 102].
int64_t read_token_pair(const JsonNode& node, int64_t vocab_size) {
  const std::vector<JsonNode> items = node.items();
  if (items.size() != 2) node.fail("expected a token and its id, as [\"[SEP]\", 102]");
  items[0].text();
  return items[1].integer(0, vocab_size - 1);
}

}  // namespace

PostProcessor::PostProcessor() : templates_{{{1, {}, 0}}, {{1, {}, 0}, {2, {}, 1}}} {}

PostProcessor PostProcessor::bert(int64_t cls, int64_t sep) {
  PostProcessor processor;
  processor.templates_ = {{{0, {cls}, 0}, {1, {}, 0}, {0, {sep}, 0}},
                          {{0, {cls}, 0}, {1, {}, 0}, {0, {sep}, 0}, {2, {}, 1}, {0, {sep}, 1}}};
  return processor;
}

PostProcessor PostProcessor::roberta(int64_t cls, int64_t sep) {
  PostProcessor processor;
  processor.templates_ = {{{0, {cls}, 0}, {1, {}, 0}, {0, {sep}, 0}},
                          {{0, {cls}, 0}, {1, {}, 0}, {0, {sep, sep}, 0}, {2, {}, 0}, {0, {sep}, 0}}};
  return processor;
}

PostProcessor::PostProcessor(const JsonNode& node, int64_t vocab_size) : PostProcessor() {
  if (auto templates = read(node, vocab_size, 0)) templates_ = std::move(*templates);
}

/// Nothing if the post-processor leaves the tokens as they are.
std::optional<PostProcessor::Templates> PostProcessor::read(const JsonNode& node, int64_t vocab_size, int depth) {
  if (depth > kMostNesting) node.fail("post-processors are nested too deeply");
  const std::string type = node.text("type");
  if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) node.flag(key, true);  // all of offsets
    return std::nullopt;
  }
  if (type == "BertProcessing") {
    node.only({"type", "sep", "cls"});
    const int64_t sep = read_token_pair(node.at("sep"), vocab_size);
    return bert(read_token_pair(node.at("cls"), vocab_size), sep).templates_;
  }
  if (type == "RobertaProcessing") {
    node.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    node.flag("trim_offsets", true);
    node.flag("add_prefix_space", true);
    const int64_t sep = read_token_pair(node.at("sep"), vocab_size), cls = read_token_pair(node.at("cls"), vocab_size);
    return roberta(cls, sep).templates_;
  }
  if (type == "TemplateProcessing") return read_template_processing(node, vocab_size);
  if (type == "Sequence") return read_sequence(node, vocab_size, depth);
  node.fail("unknown post-processor " + type +
            "; known: BertProcessing, ByteLevel, RobertaProcessing, Sequence, TemplateProcessing");
}

std::optional<PostProcessor::Templates> PostProcessor::read_sequence(const JsonNode& node, int64_t vocab_size,
                                                                     int depth) {
  node.only({"type", "processors"});
  std::optional<Templates> found;
  for (const JsonNode& item : node.at("processors").items()) {
    auto templates = read(item, vocab_size, depth + 1);
    if (!templates) continue;
    if (found) item.fail("a second post-processor that adds special tokens is not supported");
    found = std::move(templates);
  }
  return found;
}

PostProcessor::Templates PostProcessor::read_template_processing(const JsonNode& node, int64_t vocab_size) {
  node.only({"type", "single", "pair", "special_tokens"});
  const JsonNode special_tokens = node.at("special_tokens");
  return {read_template(node.at("single"), special_tokens, false, vocab_size),
          read_template(node.at("pair"), special_tokens, true, vocab_size)};
}

PostProcessor::Template PostProcessor::read_template(const JsonNode& node, const JsonNode& special_tokens, bool pair,
                                                     int64_t vocab_size) {
  Template pieces;
  for (const JsonNode& item : node.items()) {
    item.only({"SpecialToken", "Sequence"});
    const auto special = item.find("SpecialToken"), sequence = item.find("Sequence");
    if (special.has_value() == sequence.has_value()) item.fail("expected one of \"SpecialToken\" and \"Sequence\"");
    const JsonNode piece = special ? *special : *sequence;
    piece.only({"id", "type_id"});
    const std::string id = piece.text("id");
    Piece made{0, {}, piece.integer("type_id", 0, kMostTokenId)};
    if (special) {
      const JsonNode token = special_tokens.at(id);
      token.only({"id", "ids", "tokens"});
      for (const JsonNode& number : token.at("ids").items()) made.ids.push_back(number.integer(0, vocab_size - 1));
      for (const JsonNode& text : token.at("tokens").items()) text.text();
    } else {
      if (id != "A" && !(pair && id == "B")) piece.at("id").fail(pair ? "expected A or B" : "expected A");
      made.text = id == "A" ? 1 : 2;
    }
    pieces.push_back(std::move(made));
  }
  return pieces;
}

int64_t PostProcessor::special_tokens(bool pair) const {
  int64_t count = 0;
  for (const Piece& piece : pair ? templates_.pair : templates_.single) {
    count += static_cast<int64_t>(piece.ids.size());
  }
  return count;
}

Encoding PostProcessor::assemble(const std::vector<int64_t>& first, const std::optional<std::vector<int64_t>>& second,
                                 bool add_special_tokens) const {
  Encoding encoding;
  for (const Piece& piece : second ? templates_.pair : templates_.single) {
    if (piece.text == 0 && !add_special_tokens) continue;
    const std::vector<int64_t>& ids = piece.text == 0 ? piece.ids : piece.text == 1 ? first : *second;
    encoding.ids.insert(encoding.ids.end(), ids.begin(), ids.end());
    encoding.type_ids.insert(encoding.type_ids.end(), ids.size(), piece.type_id);
    encoding.special.insert(encoding.special.end(), ids.size(), piece.text == 0);
  }
  return encoding;
}

}  // namespace trainrun
