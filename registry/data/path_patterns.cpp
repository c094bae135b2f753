#include "registry/data/path_patterns.h"

#include <glob.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include "registry/data/hub/path_glob.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"

namespace trainrun {
namespace {

constexpr int64_t kMostPaths = 1'000'000;

/// "0000..0009" is 0000, 0001, …; "a,b" is a, b; nothing for another text.
std::vector<std::string> alternatives(const std::string& text, const std::string& reader) {
  std::vector<std::string> all;
  const size_t dots = text.find("..");
  if (dots != std::string::npos) {
    const std::string from = text.substr(0, dots);
    const std::string to = text.substr(dots + 2);
    const auto is_number = [](const std::string& digits) {
      return !digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == std::string::npos;
    };
    if (!is_number(from) || !is_number(to)) return all;
    const int64_t first = std::stoll(from);
    const int64_t last = std::stoll(to);
    if (last - first >= kMostPaths) throw DataError(reader + ": {" + text + "} stands for more than a million files");
    for (int64_t number = first; number <= last; ++number) {
      const std::string digits = std::to_string(number);
      all.push_back(std::string(from.size() > digits.size() ? from.size() - digits.size() : 0, '0') + digits);
    }
    return all;
  }
  if (text.find(',') == std::string::npos) return all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    all.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return all;
}

/// What the braces of a pattern stand for, the first pair first.
std::vector<std::string> expanded(const std::string& pattern, const std::string& reader) {
  const size_t open = pattern.find('{');
  const size_t close = open == std::string::npos ? open : pattern.find('}', open);
  if (close == std::string::npos) return {pattern};
  std::vector<std::string> middles = alternatives(pattern.substr(open + 1, close - open - 1), reader);
  if (middles.empty()) middles.push_back(pattern.substr(open, close + 1 - open));  // as it is
  const std::vector<std::string> rests = expanded(pattern.substr(close + 1), reader);
  if (static_cast<int64_t>(middles.size() * rests.size()) > kMostPaths) {
    throw DataError(reader + ": " + pattern + " stands for more than a million files");
  }
  std::vector<std::string> all;
  for (const std::string& middle : middles) {
    for (const std::string& rest : rests) all.push_back(pattern.substr(0, open) + middle + rest);
  }
  return all;
}

/// The files that match where ** stands for folders, which glob() does not know. Like glob(), it passes over hidden ones.
void add_in_folders(const std::string& pattern, const std::string& reader, std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  const size_t slash = pattern.rfind('/', pattern.find_first_of("*?["));
  const std::string root = slash == std::string::npos ? "" : pattern.substr(0, slash + 1);
  const std::string inner = pattern.substr(root.size());
  std::vector<std::string> found;
  std::error_code fault;
  const auto options = fs::directory_options::follow_directory_symlink;
  auto entry = fs::recursive_directory_iterator(root.empty() ? "." : root, options, fault);
  for (; !fault && entry != fs::recursive_directory_iterator(); entry.increment(fault)) {
    const std::string path = entry->path().lexically_relative(root.empty() ? "." : root).string();
    std::error_code broken_link;
    if (entry->is_directory(broken_link)) {
      if (is_hidden_from(inner, path)) entry.disable_recursion_pending();
    } else if (matches_glob(inner, path) && !is_hidden_from(inner, path)) {
      found.push_back(root + path);
    }
  }
  const bool is_missing = fault == std::errc::no_such_file_or_directory;
  if (fault && !is_missing) throw DataError(reader + ": " + pattern + ": a folder cannot be read: " + fault.message());
  if (found.empty()) throw DataError(reader + ": there is no file " + pattern);
  std::ranges::sort(found);
  paths.insert(paths.end(), found.begin(), found.end());
}

/// What is there of **, *, ? and [ ]; a name that has none of them is given back, whether it is there or not.
void add_matches(const std::string& pattern, const std::string& reader, std::vector<std::string>& paths) {
  if (pattern.find_first_of("*?[") == std::string::npos) {
    paths.push_back(pattern);
    return;
  }
  if (pattern.find("**") != std::string::npos && has_whole_folders(pattern)) {
    add_in_folders(pattern, reader, paths);
    return;
  }
  glob_t found{};
  const int code = glob(pattern.c_str(), 0, nullptr, &found);
  for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  if (code == GLOB_NOMATCH) throw DataError(reader + ": there is no file " + pattern);
  if (code != 0) throw DataError(reader + ": " + pattern + ": the folder cannot be read");
}

}  // namespace

std::vector<std::string> matching_paths(const std::vector<std::string>& patterns, const std::string& reader) {
  std::vector<std::string> paths;
  for (const std::string& pattern : patterns) {
    std::error_code unreadable;
    if (std::filesystem::exists(pattern, unreadable)) {
      paths.push_back(pattern);
      continue;
    }
    for (const std::string& name : expanded(pattern, reader)) add_matches(name, reader, paths);
  }
  return paths;
}

std::string note_on_empty_files(const std::vector<std::string>& empty, size_t num_files, const std::string& what) {
  constexpr size_t kMostNamed = 5;
  if (empty.empty()) return "";
  return std::to_string(empty.size()) + " of " + std::to_string(num_files) + " files " +
         (empty.size() == 1 ? "has" : "have") + " no " + what + ": " + join_first(empty, kMostNamed, LeftOut::kCount);
}

}  // namespace trainrun
