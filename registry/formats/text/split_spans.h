#pragma once

#include <cstddef>
#include <vector>

namespace trainrun {

/// What becomes of the matches that a text is split at.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
/// A part of a text: a match, or what lies between two of them.
struct SplitSpan {
  size_t begin, end;
  bool match;
};
/// Merges or drops spans, which cover a text from its start to its end, as `behavior` says.
void arrange_spans(std::vector<SplitSpan>& spans, SplitBehavior behavior);

}  // namespace trainrun
