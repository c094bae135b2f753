#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "registry/formats/text/word_counter.h"

namespace trainrun {

struct BpeTrainerOptions {
  int64_t vocab_size = 30000;  // with the special tokens and the 256 bytes, which there are in any case
  int64_t min_frequency = 2;   // of a pair of tokens that is to become one
  std::vector<std::string> special_tokens;
};

/// A vocabulary of pieces of words, found by byte pair encoding.
struct TrainedBpe {
  std::vector<std::string> tokens;                    // by their ids, in letters for bytes (byte_letters.h)
  std::vector<std::pair<uint32_t, uint32_t>> merges;  // of two tokens into one, in their order
  size_t num_special = 0;                             // the first of the tokens
};

/// Makes the special tokens, then the 256 bytes, then, as long as there is room, one token of the two that follow each
/// other most often within words; of pairs that come equally often the one with the smaller ids. The same vocabulary and
/// merges as those of Hugging Face's BpeTrainer with the alphabet of ByteLevel.
/// Source: Sennrich et al. 2016, "Neural machine translation of rare words with subword units".
TrainedBpe train_bpe(const WordCounter::Counts& words, const BpeTrainerOptions& options);

/// What tokenizer.json holds of it, with GPT-2's pre-tokenizer and decoder, as Hugging Face's library saves it.
std::string tokenizer_json(const TrainedBpe& bpe);

}  // namespace trainrun
