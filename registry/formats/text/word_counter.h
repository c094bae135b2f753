#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace trainrun {

/// How often each word comes in texts, by GPT-2's pattern (`find_gpt2_words`); a word includes the blank before it. It
/// takes memory for the different words alone, once for each thread.
class WordCounter {
 public:
  using Counts = std::unordered_map<std::string, int64_t>;

  WordCounter();
  /// Counts on LibTorch's threads. The texts must be valid UTF-8; no word reaches from one text into another.
  void add(const std::vector<std::string>& texts);
  /// All that were added. The last call on this object.
  Counts finish();

 private:
  std::vector<Counts> counts_;  // of each thread
};

}  // namespace trainrun
