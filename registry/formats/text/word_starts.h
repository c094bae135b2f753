#pragma once

#include <vector>

#include "registry/formats/text/tokenizer.h"

namespace trainrun {

/// Of each id, whether its token begins a word, where another token is before it: without WordPiece's "##", with the mark
/// of a blank that byte-level BPE ("Ġ") and SentencePiece ("▁") put in front of words, or added to the vocabulary. Throws
/// DataError where the vocabulary knows none of these marks. Goes through the whole vocabulary.
std::vector<bool> word_starts(const Tokenizer& tokenizer);

}  // namespace trainrun
