#include "registry/data/hub/path_glob.h"

#include <vector>

namespace trainrun {
namespace {

/// A step of a pattern: one character, or any number of them.
struct GlobStep {
  std::string_view set;  // the character, or what stands between brackets
  bool is_negated = false;
  bool is_set = false;
  bool is_many = false;      // *
  bool takes_slash = false;  // **
  bool is_folders = false;   // **/: nothing, or anything that ends in a slash
  bool is_any = false;       // ?
};

bool is_in(std::string_view set, char c) {
  for (size_t i = 0; i < set.size(); ++i) {
    if (i + 2 < set.size() && set[i + 1] == '-') {
      if (set[i] <= c && c <= set[i + 2]) return true;
      i += 2;
    } else if (set[i] == c) {
      return true;
    }
  }
  return false;
}

bool takes(const GlobStep& step, char c) {
  if (step.is_folders || step.takes_slash) return true;
  if (step.is_many || step.is_any) return c != '/';
  return step.is_set ? is_in(step.set, c) != step.is_negated : c == step.set[0];
}

std::vector<GlobStep> steps_of(std::string_view pattern) {
  std::vector<GlobStep> steps;
  while (!pattern.empty()) {
    GlobStep step;
    size_t size = 1;
    step.set = pattern.substr(0, 1);
    const size_t close = pattern[0] == '[' ? pattern.find(']', 2) : std::string_view::npos;
    if (pattern.starts_with("**/")) {
      step.is_folders = true;
      size = 3;
    } else if (pattern[0] == '*') {
      step.is_many = true;
      step.takes_slash = pattern.starts_with("**");
      size = step.takes_slash ? 2 : 1;
    } else if (pattern[0] == '?') {
      step.is_any = true;
    } else if (close != std::string_view::npos) {
      step.is_set = true;
      step.set = pattern.substr(1, close - 1);
      step.is_negated = step.set.starts_with('!');
      if (step.is_negated) step.set.remove_prefix(1);
      size = close + 1;
    }
    steps.push_back(step);
    pattern.remove_prefix(size);
  }
  return steps;
}

}  // namespace

bool is_glob(std::string_view text) { return text.find_first_of("*?[") != std::string_view::npos; }

bool has_whole_folders(std::string_view pattern) {
  constexpr std::string_view kFolders = "**";
  for (size_t at = pattern.find(kFolders); at != std::string_view::npos; at = pattern.find(kFolders, at + 2)) {
    const size_t end = at + kFolders.size();
    if (at > 0 && pattern[at - 1] != '/') return false;
    if (end < pattern.size() && pattern[end] != '/') return false;
  }
  return true;
}

bool is_hidden_from(std::string_view pattern, std::string_view path) {
  const auto has_dot = [](std::string_view text) {
    return text.starts_with('.') || text.find("/.") != std::string_view::npos;
  };
  return has_dot(path) && !has_dot(pattern);
}

bool matches_glob(std::string_view pattern, std::string_view path) {
  const std::vector<GlobStep> steps = steps_of(pattern);
  // Which beginnings of the path the steps so far may have taken.
  std::vector<bool> reached(path.size() + 1);
  reached[0] = true;
  for (const GlobStep& step : steps) {
    std::vector<bool> next(path.size() + 1);
    bool is_within = false;  // it has begun before
    for (size_t i = 0; i <= path.size(); ++i) {
      if (step.is_folders) {
        next[i] = reached[i] || (is_within && i > 0 && path[i - 1] == '/');
        is_within = is_within || reached[i];
      } else if (step.is_many) {
        is_within = reached[i] || (is_within && takes(step, path[i - 1]));
        next[i] = is_within;
      } else {
        next[i] = i > 0 && reached[i - 1] && takes(step, path[i - 1]);
      }
    }
    reached = std::move(next);
  }
  return reached[path.size()];
}

}  // namespace trainrun
