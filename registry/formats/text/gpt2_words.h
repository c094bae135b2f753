#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "registry/formats/text/split_spans.h"

namespace trainrun {

/// The words of a text by GPT-2's pattern: an ending such as 's, letters, digits, other signs, each with the blank before
/// it, or spaces. Each one is a match.
void find_gpt2_words(std::string_view text, std::vector<SplitSpan>& spans);

/// The patterns that Llama 3's and Qwen's tokenizers split by, which differ in how many digits are one word: the number
/// of digits, or nothing for another pattern.
std::optional<size_t> digits_of_chat_pattern(std::string_view pattern);
/// The words of an ASCII text by that pattern, without a look at the pattern itself. Each one is a match.
void find_ascii_chat_words(std::string_view text, size_t digits, std::vector<SplitSpan>& spans);

}  // namespace trainrun
