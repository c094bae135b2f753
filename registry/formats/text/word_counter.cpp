#include "registry/formats/text/word_counter.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "registry/formats/text/gpt2_words.h"

namespace trainrun {

WordCounter::WordCounter() : counts_(static_cast<size_t>(std::max(at::get_num_threads(), 1))) {}

void WordCounter::add(const std::vector<std::string>& texts) {
  const auto num_parts = static_cast<int64_t>(counts_.size());
  const auto count = static_cast<int64_t>(texts.size());
  at::parallel_for(0, num_parts, 1, [&](int64_t begin, int64_t end) {
    std::vector<SplitSpan> spans;
    std::string word;
    for (int64_t part = begin; part < end; ++part) {
      Counts& counts = counts_[static_cast<size_t>(part)];
      for (int64_t i = count * part / num_parts; i < count * (part + 1) / num_parts; ++i) {
        const std::string& text = texts[static_cast<size_t>(i)];
        spans.clear();
        find_gpt2_words(text, spans);
        for (const SplitSpan& span : spans) {
          word.assign(text, span.begin, span.end - span.begin);
          ++counts[word];
        }
      }
    }
  });
}

WordCounter::Counts WordCounter::finish() {
  Counts all = std::move(counts_[0]);
  for (size_t i = 1; i < counts_.size(); ++i) {
    for (auto& [word, count] : counts_[i]) all[word] += count;
    Counts().swap(counts_[i]);
  }
  return all;
}

}  // namespace trainrun
