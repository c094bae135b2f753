#include "registry/formats/text/pre_tokenizer.h"

#include <algorithm>
#include <functional>

#include "registry/formats/text/byte_letters.h"
#include "registry/formats/text/gpt2_words.h"
#include "registry/formats/text/pattern_matcher.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

class SequencePreTokenizer final : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(WordList& words) const override {
    for (const auto& part : parts_) part->apply(words);
  }
  bool reads_blanks() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->reads_blanks(); });
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

/// Splits where a function finds something.
class FunctionSplit final : public PreTokenizer {
 public:
  using Find = std::function<void(std::string_view, std::vector<SplitSpan>&)>;
  FunctionSplit(SplitBehavior behavior, Find find) : behavior_(behavior), find_(std::move(find)) {}
  void apply(WordList& words) const override { split_words(words, behavior_, find_); }

 private:
  SplitBehavior behavior_;
  Find find_;
};

std::unique_ptr<PreTokenizer> splitting(SplitBehavior behavior, FunctionSplit::Find find) {
  return std::make_unique<FunctionSplit>(behavior, std::move(find));
}

/// Each character for which `matches` holds is a match; the runs of others lie between them.
template <class Matches>
std::unique_ptr<PreTokenizer> splitting_at(SplitBehavior behavior, const Matches& matches) {
  return splitting(behavior, [matches](std::string_view text, std::vector<SplitSpan>& spans) {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const bool match = matches(unicode::next(text, at));
      if (!match && !spans.empty() && !spans.back().match) {
        spans.back().end = at;
      } else {
        spans.push_back({begin, at, match});
      }
    }
  });
}

/// Matches of a pattern; or, inverted, what lies between them.
struct PatternFind {
  std::shared_ptr<const PatternMatcher> pattern;
  bool invert = false;

  void operator()(std::string_view text, std::vector<SplitSpan>& spans) const {
    size_t done = 0;
    pattern->each(text, [&](size_t begin, size_t end) {
      if (done != begin) spans.push_back({done, begin, invert});
      spans.push_back({begin, end, !invert});
      done = end;
    });
    if (done != text.size()) spans.push_back({done, text.size(), invert});
  }
};

enum class CharacterKind { kSpace, kWord, kOther };

/// Runs of word characters, and runs of others; spaces are the matches.
void find_whitespace(std::string_view text, std::vector<SplitSpan>& spans) {
  CharacterKind last = CharacterKind::kSpace;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = unicode::next(text, at);
    const CharacterKind kind = unicode::is_whitespace(c) ? CharacterKind::kSpace
                               : unicode::is_word(c)     ? CharacterKind::kWord
                                                         : CharacterKind::kOther;
    if (!spans.empty() && kind == last) {
      spans.back().end = at;
    } else {
      spans.push_back({begin, at, kind == CharacterKind::kSpace});
    }
    last = kind;
  }
}

/// GPT-2's: an optional blank in front, its words, bytes as letters.
class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex)
      : add_prefix_space_(add_prefix_space), use_regex_(use_regex) {}

  void apply(WordList& words) const override {
    if (add_prefix_space_) {
      for (WordList::Word& word : words.words) {
        if (!word.text.starts_with(' ')) word.text = words.keep(" " + std::string(word.text));
      }
    }
    if (use_regex_) split_words(words, SplitBehavior::kIsolated, find_gpt2_words);
    std::string letters;
    std::vector<size_t> ends;
    for (const WordList::Word& word : words.words) {
      append_byte_letters(letters, word.text);
      ends.push_back(letters.size());
    }
    const std::string_view kept = words.keep(std::move(letters));
    size_t begin = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
      words.words[i].text = kept.substr(begin, ends[i] - begin);
      begin = ends[i];
    }
  }
  bool reads_blanks() const override { return !add_prefix_space_; }

 private:
  bool add_prefix_space_, use_regex_;
};

/// SentencePiece's: blanks become a visible mark, which begins each word.
class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(const JsonNode& node) {
    const JsonNode replacement = node.at("replacement");
    mark_ = unicode::encoded(replacement.character());
    find_mark_.pattern = std::make_shared<const PatternMatcher>(mark_);
    scheme_ = read_prepend_scheme(node);
    split_ = node.flag("split", true);
  }

  void apply(WordList& words) const override {
    static const PatternMatcher blank(" ");
    for (WordList::Word& word : words.words) {
      std::string text = blank.replaced(word.text, mark_);
      const bool prepend = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && word.first);
      if (prepend && !text.starts_with(mark_)) text.insert(0, mark_);
      word.text = words.keep(std::move(text));
    }
    if (!split_) return;
    split_words(words, SplitBehavior::kMergedWithNext, find_mark_);
  }

 private:
  std::string mark_;
  PatternFind find_mark_;
  PrependScheme scheme_ = PrependScheme::kAlways;
  bool split_ = true;
};

SplitBehavior read_behavior(const JsonNode& node) {
  const std::string name = node.text();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.fail("unknown behavior " + name + "; known: Contiguous, Isolated, MergedWithNext, MergedWithPrevious, Removed");
}

std::unique_ptr<PreTokenizer> read_fixed_length(const JsonNode& node) {
  node.only({"type", "length"});
  const int64_t most = node.integer("length", 1, kMostTokenId);
  return splitting(SplitBehavior::kIsolated, [most](std::string_view text, std::vector<SplitSpan>& spans) {
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      for (int64_t i = 0; i < most && at < text.size(); ++i) at += unicode::length(text[at]);
      spans.push_back({begin, at, true});
    }
  });
}

std::unique_ptr<PreTokenizer> read_pattern_split(const JsonNode& node) {
  node.only({"type", "pattern", "behavior", "invert"});
  const SplitBehavior behavior = read_behavior(node.at("behavior"));
  const PatternFind find{std::make_shared<const PatternMatcher>(node.at("pattern")), node.flag("invert", false)};
  const auto digits = digits_of_chat_pattern(node.at("pattern").find_text("Regex").value_or(""));
  if (!digits || find.invert) return splitting(behavior, find);
  return splitting(behavior, [find, digits = *digits](std::string_view text, std::vector<SplitSpan>& spans) {
    if (!unicode::is_ascii(text)) return find(text, spans);
    find_ascii_chat_words(text, digits, spans);
  });
}

/// Those that are one split; null for others.
std::unique_ptr<PreTokenizer> read_split(const std::string& type, const JsonNode& node) {
  if (type == "Split") {
    return read_pattern_split(node);
  }
  if (type == "Punctuation") {
    node.only({"type", "behavior"});
    const auto behavior = node.find("behavior");
    return splitting_at(behavior ? read_behavior(*behavior) : SplitBehavior::kIsolated, unicode::is_punctuation);
  }
  if (type == "Digits") {
    node.only({"type", "individual_digits"});
    return splitting_at(node.flag("individual_digits") ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                        unicode::is_numeric);
  }
  if (type == "CharDelimiterSplit") {
    node.only({"type", "delimiter"});
    return splitting_at(SplitBehavior::kRemoved,
                        [delimiter = node.at("delimiter").character()](char32_t c) { return c == delimiter; });
  }
  if (type != "Whitespace" && type != "WhitespaceSplit" && type != "BertPreTokenizer") return nullptr;
  node.only({"type"});
  if (type == "Whitespace") return splitting(SplitBehavior::kRemoved, find_whitespace);
  if (type == "WhitespaceSplit") return splitting_at(SplitBehavior::kRemoved, unicode::is_whitespace);
  return bert_pre_tokenizer();
}

}  // namespace

PrependScheme read_prepend_scheme(const JsonNode& node) {
  node.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const bool add_prefix_space = node.flag("add_prefix_space", true);
  const auto scheme = node.find("prepend_scheme");
  if (!scheme) return add_prefix_space ? PrependScheme::kAlways : PrependScheme::kNever;
  const std::string name = scheme->text();
  if (name == "never") return PrependScheme::kNever;
  if (name != "always" && name != "first") {
    scheme->fail("unknown scheme " + name + "; known: always, first, never");
  }
  if (!add_prefix_space) scheme->fail("\"add_prefix_space\": false contradicts \"" + name + "\"");
  return name == "always" ? PrependScheme::kAlways : PrependScheme::kFirst;
}

std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex) {
  return std::make_unique<ByteLevelPreTokenizer>(add_prefix_space, use_regex);
}

std::unique_ptr<PreTokenizer> bert_pre_tokenizer() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(splitting_at(SplitBehavior::kRemoved, unicode::is_whitespace));
  parts.push_back(splitting_at(SplitBehavior::kIsolated, unicode::is_punctuation));
  return std::make_unique<SequencePreTokenizer>(std::move(parts));
}

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonNode& node, int depth) {
  if (depth > kMostNesting) node.fail("pre-tokenizers are nested too deeply");
  const std::string type = node.text("type");
  if (type == "Sequence") {
    node.only({"type", "pretokenizers"});
    std::vector<std::unique_ptr<PreTokenizer>> parts;
    for (const JsonNode& item : node.at("pretokenizers").items()) parts.push_back(read_pre_tokenizer(item, depth + 1));
    return std::make_unique<SequencePreTokenizer>(std::move(parts));
  }
  if (type == "ByteLevel") {
    node.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    node.flag("trim_offsets", true);  // of offsets in the text, which nobody asks for here
    return byte_level_pre_tokenizer(node.flag("add_prefix_space"), node.flag("use_regex", true));
  }
  if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(node);
  if (type == "FixedLength") return read_fixed_length(node);
  if (auto split = read_split(type, node)) return split;
  node.fail("unknown pre-tokenizer " + type +
            "; known: BertPreTokenizer, ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, Punctuation, "
            "Sequence, Split, Whitespace, WhitespaceSplit");
}

}  // namespace trainrun
