#include "registry/formats/text/normalizer.h"

#include <openssl/evp.h>

#include <functional>
#include <optional>
#include <vector>

#include "registry/formats/text/byte_letters.h"
#include "registry/formats/text/pattern_matcher.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

/// A normalizer that is one function.
class FunctionNormalizer final : public Normalizer {
 public:
  using Function = std::function<void(NormalizedText&)>;
  explicit FunctionNormalizer(Function function) : function_(std::move(function)) {}
  void apply(NormalizedText& text) const override { function_(text); }

 private:
  Function function_;
};

std::unique_ptr<Normalizer> normalizer_of(FunctionNormalizer::Function function) {
  return std::make_unique<FunctionNormalizer>(std::move(function));
}

class SequenceNormalizer final : public Normalizer {
 public:
  SequenceNormalizer(const JsonNode& node, int depth) {
    node.only({"type", "normalizers"});
    for (const JsonNode& item : node.at("normalizers").items()) parts_.push_back(read_normalizer(item, depth + 1));
  }
  void apply(NormalizedText& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

/// Drops the characters for which `change` gives 0, and puts what it gives in the place of the others.
template <class Change>
void change_characters(NormalizedText& text, const Change& change) {
  std::string result;
  for (size_t at = 0; at < text.text.size();) {
    const size_t begin = at;
    const char32_t character = unicode::next(text.text, at);
    const std::optional<char32_t> changed = change(character);
    if (changed == character) {
      result.append(text.text, begin, at - begin);
    } else if (changed) {
      unicode::append(result, *changed);
    } else if (result.empty()) {
      text.front_removed = true;
    }
  }
  text.text = std::move(result);
}

/// SentencePiece's nmt_nfkc: control characters are dropped, other spaces become blanks.
std::optional<char32_t> nmt(char32_t c) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
    return std::nullopt;
  }
  const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
                     c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  return space ? U' ' : c;
}

std::optional<char32_t> without_mark(char32_t c) { return unicode::is_mark(c) ? std::nullopt : std::optional(c); }

void strip(NormalizedText& text, bool left, bool right) {
  std::string_view rest = text.text;
  while (left && !rest.empty()) {
    size_t at = 0;
    if (!unicode::is_whitespace(unicode::next(rest, at))) break;
    rest.remove_prefix(at);
    text.front_removed = true;
  }
  while (right && !rest.empty()) {
    size_t at = unicode::start_of_last(rest, rest.size());
    const size_t begin = at;
    if (!unicode::is_whitespace(unicode::next(rest, at))) break;
    rest = rest.substr(0, begin);
  }
  text.text = std::string(rest);
}

std::unique_ptr<Normalizer> read_bert(const JsonNode& node) {
  node.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  auto bert = std::make_unique<BertNormalizer>();
  bert->clean_text = node.flag("clean_text");
  bert->handle_chinese_chars = node.flag("handle_chinese_chars");
  bert->lowercase = node.flag("lowercase");
  bert->strip_accents = node.flag("strip_accents", bert->lowercase);
  return bert;
}

std::unique_ptr<Normalizer> read_replace(const JsonNode& node) {
  node.only({"type", "pattern", "content"});
  const auto pattern = std::make_shared<const PatternMatcher>(node.at("pattern"));
  return normalizer_of([pattern, by = node.text("content")](NormalizedText& text) {
    if (by.empty()) {
      pattern->each(text.text, [&](size_t begin, size_t end) { text.front_removed |= begin == 0 && end > 0; });
    }
    text.text = pattern->replaced(text.text, by);
  });
}

std::unique_ptr<Normalizer> read_precompiled(const JsonNode& node) {
  node.only({"type", "precompiled_charsmap"});
  const JsonNode table = node.at("precompiled_charsmap");
  const std::string base64 = table.text();
  std::string bytes(base64.size() / 4 * 3 + 3, '\0');
  const int size = base64.size() >= INT32_MAX ? -1
                                              : EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                                                reinterpret_cast<const unsigned char*>(base64.data()),
                                                                static_cast<int>(base64.size()));
  if (size < 0) table.fail("expected base64");
  size_t padding = 0;
  while (padding < 2 && padding < base64.size() && base64[base64.size() - 1 - padding] == '=') ++padding;
  bytes.resize(static_cast<size_t>(size) - padding);
  try {
    return charsmap_normalizer(bytes);
  } catch (const DataError& error) {
    table.fail(error.what());
  }
}

std::unique_ptr<Normalizer> read_form(const JsonNode& node, unicode::Form form) {
  node.only({"type"});
  return normalizer_of([form](NormalizedText& text) { text.text = unicode::normalized(text.text, form); });
}

/// Those that one line does; null for others.
std::unique_ptr<Normalizer> read_simple(const std::string& type, const JsonNode& node) {
  if (type == "NFC") return read_form(node, unicode::Form::kNfc);
  if (type == "NFD") return read_form(node, unicode::Form::kNfd);
  if (type == "NFKC") return read_form(node, unicode::Form::kNfkc);
  if (type == "NFKD") return read_form(node, unicode::Form::kNfkd);
  if (type == "Strip") {
    node.only({"type", "strip_left", "strip_right"});
    return normalizer_of([left = node.flag("strip_left"), right = node.flag("strip_right")](NormalizedText& text) {
      strip(text, left, right);
    });
  }
  if (type == "Prepend") {
    node.only({"type", "prepend"});
    return normalizer_of([before = node.text("prepend")](NormalizedText& text) {
      if (!text.text.empty()) text.text.insert(0, before);
    });
  }
  if (type != "Lowercase" && type != "StripAccents" && type != "Nmt" && type != "ByteLevel") return nullptr;
  node.only({"type"});
  if (type == "Lowercase") return normalizer_of([](NormalizedText& text) { text.text = unicode::lower(text.text); });
  if (type == "Nmt") return normalizer_of([](NormalizedText& text) { change_characters(text, nmt); });
  if (type == "StripAccents") {
    return normalizer_of([](NormalizedText& text) { change_characters(text, without_mark); });
  }
  return normalizer_of([](NormalizedText& text) { text.text = byte_letters(text.text); });
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonNode& node, int depth) {
  if (depth > kMostNesting) node.fail("normalizers are nested too deeply");
  const std::string type = node.text("type");
  if (type == "Sequence") return std::make_unique<SequenceNormalizer>(node, depth);
  if (type == "BertNormalizer") return read_bert(node);
  if (type == "Replace") return read_replace(node);
  if (type == "Precompiled") return read_precompiled(node);
  if (auto simple = read_simple(type, node)) return simple;
  node.fail("unknown normalizer " + type +
            "; known: BertNormalizer, ByteLevel, Lowercase, NFC, NFD, NFKC, NFKD, Nmt, Precompiled, Prepend, Replace, "
            "Sequence, Strip, StripAccents");
}

}  // namespace trainrun
