#include "registry/language/error.h"

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <set>
#include <system_error>
#include <tuple>

#include "registry/language/hints.h"

namespace trainrun {
namespace {

std::string system_text(int error_number) { return std::generic_category().message(error_number); }

std::string to_lines(const std::vector<Problem>& problems) {
  std::string lines;
  for (const Problem& problem : problems) lines += (lines.empty() ? "" : "\n") + problem.to_string();
  return lines;
}

/// Optimal string alignment: insertions, deletions, substitutions and swaps of neighbours.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> cost(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

FileError::FileError(const std::string& path, const std::string& operation, int error_number)
    : Error(path + ": cannot " + operation + ": " + system_text(error_number)), error_number_(error_number) {}

ReadError::ReadError(const std::string& path, const std::string& operation, int error_number)
    : DataError(path + ": cannot " + operation + ": " + system_text(error_number)), error_number_(error_number) {}

bool ReadError::is_missing() const { return error_number_ == ENOENT || error_number_ == ENOTDIR; }

std::string Problem::to_string() const {
  std::string text = place.to_string();
  if (!text.empty()) text += ": ";
  if (!path.empty()) text += path + ": ";
  return text + message;
}

RecipeError::RecipeError(std::vector<Problem> problems) : Error(to_lines(problems)), problems_(std::move(problems)) {}

void sort_problems(std::vector<Problem>& problems) {
  const auto key = [](const Problem& problem) {
    return std::make_tuple(problem.place.file ? *problem.place.file : std::string(), problem.place.line,
                           problem.place.column);
  };
  std::stable_sort(problems.begin(), problems.end(),
                   [&](const Problem& a, const Problem& b) { return key(a) < key(b); });
  std::set<std::string> seen;  // the same at the same place: a block's fault, found at each of its uses
  std::erase_if(problems, [&](const Problem& problem) {
    const std::string place = problem.place.to_string();
    return !seen.insert(place + ": " + (place.empty() ? problem.path + ": " : "") + problem.message).second;
  });
}

namespace {

/// "AdamW" of "torch.optim.AdamW", "accuracy" of "eval/accuracy".
std::string last_part(const std::string& name) {
  const size_t separator = name.find_last_of("./");
  return separator == std::string::npos ? name : name.substr(separator + 1);
}

/// Whether `candidate` is the same word, but for case, '_', a module before it, or what other systems call it.
bool is_same_name(const std::string& word, const std::string& candidate) {
  if (is_other_name(word, candidate)) return true;
  const bool one_is_whole = last_part(candidate) == candidate || last_part(word) == word;
  const bool same_end = one_is_whole && folded(last_part(candidate)) == folded(last_part(word));
  return same_end || folded(candidate) == folded(word);
}

/// The one candidate that holds `wanted` ("HorizontalFlip"), or the longest that `wanted` holds ("training"), or "".
std::string overlapping(const std::string& wanted, const std::vector<std::string>& candidates) {
  constexpr size_t kShortest = 3;  // letters that say something
  std::string longer;
  std::string shorter;
  bool several = false;
  for (const std::string& candidate : candidates) {
    const std::string known = folded(candidate);
    if (wanted.size() >= kShortest && known.find(wanted) != std::string::npos) {
      several = !longer.empty();
      longer = candidate;
    } else if (known.size() >= kShortest && known.size() > folded(shorter).size() &&
               wanted.find(known) != std::string::npos) {
      shorter = candidate;
    }
  }
  return several ? "" : longer.empty() ? shorter : longer;
}

}  // namespace

std::string same_name(const std::string& word, const std::vector<std::string>& candidates) {
  const auto same = std::find_if(candidates.begin(), candidates.end(),
                                 [&](const std::string& candidate) { return is_same_name(word, candidate); });
  return same == candidates.end() ? "" : *same;
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 100;  // the edit distance takes time and memory by the product of the lengths
  if (word.size() > kLongestWord) return "";
  if (const std::string same = same_name(word, candidates); !same.empty()) return same;
  const std::string wanted = folded(word);
  std::string best;
  size_t best_distance = 1 + std::max<size_t>(1, wanted.size() / 3);  // a third of the letters may be wrong
  for (const std::string& candidate : candidates) {
    if (candidate.size() > wanted.size() + kLongestWord) continue;
    const size_t distance = edit_distance(wanted, folded(candidate));
    if (distance < best_distance && distance < wanted.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best.empty() ? overlapping(wanted, candidates) : best;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  if (!near.empty()) return "; did you mean " + near + "?";
  constexpr size_t kMostListed = 24;
  if (candidates.empty() || candidates.size() > kMostListed) return "";
  return "; known: " + join(candidates);
}

std::string join(const std::vector<std::string>& words, const std::string& separator) {
  std::string result;
  for (const std::string& word : words) result += (result.empty() ? "" : separator) + word;
  return result;
}

}  // namespace trainrun
