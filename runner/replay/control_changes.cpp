#include "runner/replay/control_changes.h"

#include <algorithm>

#include "registry/language/text_forms.h"
#include "registry/language/value.h"
#include "runner/train/run_change.h"

namespace trainrun {
namespace {

bool is_same_change(const RunChange& a, const RunChange& b) {
  if (a.step != b.step || a.key != b.key) return false;
  const auto x = parse_number(a.value), y = parse_number(b.value);
  return x && y ? *x == *y : a.value == b.value;
}

/// Not when lines are logged and checkpoints saved.
bool changes_numbers(const RunChange& change) {
  return !change.key.starts_with("logging.") && !change.key.starts_with("checkpoint.");
}

}  // namespace

std::vector<ControlChange> changes_of_one(const std::string& a, const std::vector<RunChange>& of_a,
                                          const std::string& b, const std::vector<RunChange>& of_b, int64_t until) {
  std::vector<ControlChange> found;
  const auto add = [&](const std::string& run, const std::vector<RunChange>& own, const std::vector<RunChange>& other) {
    for (const RunChange& change : own) {
      const bool is_shared =
          std::ranges::any_of(other, [&](const RunChange& one) { return is_same_change(change, one); });
      if (!is_shared && change.step < until && changes_numbers(change)) found.push_back({run, change});
    }
  };
  add(a, of_a, of_b);
  add(b, of_b, of_a);
  std::ranges::stable_sort(found, {}, [](const ControlChange& one) { return one.change.step; });
  return found;
}

std::vector<ControlChange> newest_before(const std::vector<ControlChange>& changes, int64_t step) {
  std::vector<ControlChange> newest;
  for (const ControlChange& one : changes) {
    if (one.change.step >= step) break;
    if (!newest.empty() && newest[0].change.step < one.change.step) newest.clear();
    newest.push_back(one);
  }
  return newest;
}

std::string control_text(const std::vector<ControlChange>& changes) {
  if (changes.empty()) return "";
  std::vector<std::string> words;
  words.reserve(changes.size());
  for (const ControlChange& one : changes) words.push_back(change_text(one.change, one.run));
  return "trainrun ctl changed " + join_first(words, words.size());
}

}  // namespace trainrun
