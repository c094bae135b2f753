#include "registry/formats/text/decoder.h"

#include <array>
#include <functional>

#include "registry/formats/text/byte_letters.h"
#include "registry/formats/text/pattern_matcher.h"
#include "registry/formats/text/pre_tokenizer.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

using Tokens = std::vector<std::string>;

/// A decoder that is one function.
class FunctionDecoder final : public Decoder {
 public:
  using Function = std::function<void(Tokens&)>;
  explicit FunctionDecoder(Function function) : function_(std::move(function)) {}
  void apply(Tokens& tokens) const override { function_(tokens); }

 private:
  Function function_;
};

std::unique_ptr<Decoder> decoder_of(FunctionDecoder::Function function) {
  return std::make_unique<FunctionDecoder>(std::move(function));
}

class SequenceDecoder final : public Decoder {
 public:
  SequenceDecoder(const JsonNode& node, int depth) {
    node.only({"type", "decoders"});
    for (const JsonNode& item : node.at("decoders").items()) parts_.push_back(read_decoder(item, depth + 1));
  }
  void apply(Tokens& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

/// Takes the blanks of written English out that splitting at punctuation put in.
std::string without_artifacts(std::string token) {
  static const std::array<std::pair<PatternMatcher, std::string>, 11> rules = {{{PatternMatcher(" ."), "."},
                                                                                {PatternMatcher(" ?"), "?"},
                                                                                {PatternMatcher(" !"), "!"},
                                                                                {PatternMatcher(" ,"), ","},
                                                                                {PatternMatcher(" ' "), "'"},
                                                                                {PatternMatcher(" n't"), "n't"},
                                                                                {PatternMatcher(" 'm"), "'m"},
                                                                                {PatternMatcher(" do not"), " don't"},
                                                                                {PatternMatcher(" 's"), "'s"},
                                                                                {PatternMatcher(" 've"), "'ve"},
                                                                                {PatternMatcher(" 're"), "'re"}}};
  for (const auto& [pattern, by] : rules) token = pattern.replaced(token, by);
  return token;
}

void fuse(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens = {all};
}

/// A token that has characters which stand for no byte is taken as it is.
void decode_byte_letters(Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    if (!append_bytes_of(bytes, token)) bytes += token;
  }
  tokens = {unicode::valid(bytes)};
}

/// The byte that "<0x0A>" spells, or -1.
int spelled_byte(const std::string& token) {
  const auto digit = [&](size_t i) {
    const char c = token[i];
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  return digit(3) < 0 || digit(4) < 0 ? -1 : digit(3) * 16 + digit(4);
}

/// Bytes in a row that are no UTF-8 together become U+FFFD each.
void decode_spelled_bytes(Tokens& tokens) {
  Tokens decoded;
  std::string bytes;
  const auto flush = [&] {
    if (unicode::is_valid(bytes)) {
      if (!bytes.empty()) decoded.push_back(bytes);
    } else {
      decoded.insert(decoded.end(), bytes.size(), unicode::encoded(unicode::kReplacement));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    const int byte = spelled_byte(token);
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush();
    decoded.push_back(std::move(token));
  }
  flush();
  tokens = std::move(decoded);
}

std::unique_ptr<Decoder> read_metaspace_decoder(const JsonNode& node) {
  const bool marked = read_prepend_scheme(node) != PrependScheme::kNever;
  const auto mark = std::make_shared<const PatternMatcher>(unicode::encoded(node.at("replacement").character()));
  return decoder_of([marked, mark](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = mark->replaced(tokens[i], i == 0 && marked ? "" : " ");
  });
}

/// Up to `start` of the character at the start of each token go, and up to `stop` at its end.
std::unique_ptr<Decoder> read_strip_decoder(const JsonNode& node) {
  node.only({"type", "content", "start", "stop"});
  const std::string content = unicode::encoded(node.at("content").character());
  const int64_t start = node.integer("start", 0, kMostTokenId), stop = node.integer("stop", 0, kMostTokenId);
  return decoder_of([content, start, stop](Tokens& tokens) {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start && rest.starts_with(content); ++i) rest.remove_prefix(content.size());
      for (int64_t i = 0; i < stop && rest.ends_with(content); ++i) rest.remove_suffix(content.size());
      token = std::string(rest);
    }
  });
}

std::unique_ptr<Decoder> read_replace_decoder(const JsonNode& node) {
  node.only({"type", "pattern", "content"});
  const auto pattern = std::make_shared<const PatternMatcher>(node.at("pattern"));
  return decoder_of([pattern, by = node.text("content")](Tokens& tokens) {
    for (std::string& token : tokens) token = pattern->replaced(token, by);
  });
}

/// The suffix of a word is a blank, but for the last one.
std::unique_ptr<Decoder> read_bpe_decoder(const JsonNode& node) {
  node.only({"type", "suffix"});
  const JsonNode suffix = node.at("suffix");
  if (suffix.text().empty()) suffix.fail("expected what ends a word, such as \"</w>\"");
  return decoder_of([suffix = std::make_shared<const PatternMatcher>(suffix.text())](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = suffix->replaced(tokens[i], i + 1 == tokens.size() ? "" : " ");
  });
}

}  // namespace

std::unique_ptr<Decoder> word_piece_decoder(const std::string& prefix, bool cleanup) {
  return decoder_of([prefix, cleanup](Tokens& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix)) {
        tokens[i].erase(0, prefix.size());
      } else if (i > 0) {
        tokens[i].insert(0, " ");
      }
      if (cleanup) tokens[i] = without_artifacts(tokens[i]);
    }
  });
}

std::unique_ptr<Decoder> byte_level_decoder() { return decoder_of(decode_byte_letters); }

std::unique_ptr<Decoder> read_decoder(const JsonNode& node, int depth) {
  if (depth > kMostNesting) node.fail("decoders are nested too deeply");
  const std::string type = node.text("type");
  if (type == "Sequence") return std::make_unique<SequenceDecoder>(node, depth);
  if (type == "Metaspace") return read_metaspace_decoder(node);
  if (type == "Strip") return read_strip_decoder(node);
  if (type == "Replace") return read_replace_decoder(node);
  if (type == "BPEDecoder") return read_bpe_decoder(node);
  if (type == "WordPiece") {
    node.only({"type", "prefix", "cleanup"});
    return word_piece_decoder(node.text("prefix"), node.flag("cleanup"));
  }
  if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"})
      node.flag(key, true);  // of no effect here
    return byte_level_decoder();
  }
  if (type == "ByteFallback" || type == "Fuse") {
    node.only({"type"});
    return decoder_of(type == "Fuse" ? fuse : decode_spelled_bytes);
  }
  node.fail("unknown decoder " + type +
            "; known: BPEDecoder, ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip, WordPiece");
}

}  // namespace trainrun
