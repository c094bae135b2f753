#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "registry/formats/text/json_node.h"
#include "registry/formats/text/split_spans.h"

namespace trainrun {

/// A text that is being split into words. The words point into the text, or into texts that were made from it.
struct WordList {
  struct Word {
    std::string_view text;
    bool first = false;  // whether it begins where the text began that the tokenizer was given
  };
  std::vector<Word> words;
  std::deque<std::string> made;

  std::string_view keep(std::string text) { return made.emplace_back(std::move(text)); }
};

/// Splits a text into the words that the model sees one by one, and changes them: the `pre_tokenizer` of
/// tokenizer.json. Safe to call from several threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(WordList& words) const = 0;
  /// Whether a word reads otherwise with a blank in front, which it does not put there itself.
  virtual bool reads_blanks() const { return false; }
};

/// Throws DataError for a pre-tokenizer that is unknown, or not as it should be.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonNode& node, int depth = 0);

/// GPT-2's: a blank in front if asked for, split by its pattern if asked for, bytes as letters.
std::unique_ptr<PreTokenizer> byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex);
/// BERT's: at spaces, which go, and around punctuation.
std::unique_ptr<PreTokenizer> bert_pre_tokenizer();

/// When Metaspace puts its mark in front of a text that does not begin with it.
enum class PrependScheme { kAlways, kFirst, kNever };
/// Reads and checks the keys of a Metaspace, pre-tokenizer or decoder.
PrependScheme read_prepend_scheme(const JsonNode& node);

/// Splits each word in parts: `find(text, spans)` fills in the spans.
template <class Find>
void split_words(WordList& words, SplitBehavior behavior, const Find& find) {
  std::vector<WordList::Word> parts;
  parts.reserve(words.words.size());
  std::vector<SplitSpan> spans;
  for (const WordList::Word& word : words.words) {
    spans.clear();
    find(word.text, spans);
    arrange_spans(spans, behavior);
    for (const SplitSpan& span : spans) {
      if (span.begin == span.end) continue;
      parts.push_back({word.text.substr(span.begin, span.end - span.begin), word.first && span.begin == 0});
    }
  }
  words.words = std::move(parts);
}

}  // namespace trainrun
