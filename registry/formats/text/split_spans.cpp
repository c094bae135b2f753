#include "registry/formats/text/split_spans.h"

#include <algorithm>

namespace trainrun {
namespace {

/// Joins neighbours that are both matches, or both none.
void join_equal(std::vector<SplitSpan>& spans) {
  size_t kept = 0;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (kept > 0 && spans[kept - 1].match == spans[i].match) {
      spans[kept - 1].end = spans[i].end;
    } else {
      spans[kept++] = spans[i];
    }
  }
  spans.resize(kept);
}

/// Joins a match to what lies before it, unless that is a match too.
void join_to_previous(std::vector<SplitSpan>& spans) {
  size_t kept = 0;
  bool after_match = false;
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool match = spans[i].match;
    if (match && !after_match && kept > 0) {
      spans[kept - 1].end = spans[i].end;
    } else {
      spans[kept++] = spans[i];
    }
    after_match = match;
  }
  spans.resize(kept);
}

/// The same from the other end.
void join_to_next(std::vector<SplitSpan>& spans) {
  size_t kept = spans.size();
  bool before_match = false;
  for (size_t i = spans.size(); i-- > 0;) {
    const bool match = spans[i].match;
    if (match && !before_match && kept < spans.size()) {
      spans[kept].begin = spans[i].begin;
    } else {
      spans[--kept] = spans[i];
    }
    before_match = match;
  }
  spans.erase(spans.begin(), spans.begin() + static_cast<std::ptrdiff_t>(kept));
}

}  // namespace

void arrange_spans(std::vector<SplitSpan>& spans, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const SplitSpan& span) { return span.match; });
      return;
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kMergedWithPrevious:
      return join_to_previous(spans);
    case SplitBehavior::kMergedWithNext:
      return join_to_next(spans);
    case SplitBehavior::kContiguous:
      return join_equal(spans);
  }
}

}  // namespace trainrun
