#include "registry/formats/text/word_starts.h"

#include <algorithm>
#include <array>
#include <string>

#include "registry/language/error.h"

namespace trainrun {
namespace {

struct WordMark {
  const char* text;
  bool continues;  // a token with it continues a word, and does not begin one
};
constexpr std::array kWordMarks = {WordMark{"##", true}, WordMark{"\u0120", false}, WordMark{"\u2581", false}};

}  // namespace

std::vector<bool> word_starts(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens(static_cast<size_t>(tokenizer.vocab_size()));
  std::array<int64_t, kWordMarks.size()> counts{};
  for (size_t id = 0; id < tokens.size(); ++id) {
    tokens[id] = tokenizer.token_of(static_cast<int64_t>(id)).value_or("");
    for (size_t mark = 0; mark < counts.size(); ++mark) counts[mark] += tokens[id].starts_with(kWordMarks[mark].text);
  }
  const auto most = std::max_element(counts.begin(), counts.end());
  if (*most == 0) {
    throw DataError(
        "the tokens do not say which of them begin words: none begins with ## (WordPiece), \u0120 (byte-level "
        "BPE) or \u2581 (SentencePiece)");
  }
  const WordMark& mark = kWordMarks[static_cast<size_t>(most - counts.begin())];
  std::vector<bool> starts;
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool is_added = tokenizer.is_added(static_cast<int64_t>(id));
    starts.push_back(is_added || tokens[id].starts_with(mark.text) != mark.continues);
  }
  return starts;
}

}  // namespace trainrun
