#pragma once

#include <string>
#include <vector>

#include "runner/interop/accelerate_keys.h"
#include "runner/interop/accelerate_settings.h"

// What the parts of the mapping share (accelerate_config.cpp, accelerate_sharding.cpp).

namespace trainrun::accelerate {

std::string upper(std::string text);
/// A value that switches nothing on: null, no, false, none, '', [], {} or {enabled: false}.
bool is_off(const Value& value);
bool is_on(const Value* value);
/// As a value behind "key=".
std::string in_yaml(const std::string& text);
/// The paths of all values below `value`, itself at `path`, that switch something on.
std::vector<std::string> switched_on(const Value& value, const std::string& path);
/// "section.key", or "key" at the top.
std::string joined_path(const std::string& section, const std::string& key);

/// A mapping of the file, with the prefix that Accelerate lets its keys go without.
struct Section {
  const Value* value = nullptr;  // null: it is not there
  std::string path;
  std::string prefix;

  std::string whole_key(const std::string& key) const { return key.starts_with(prefix) ? key : prefix + key; }
  /// Null also for a value that is null.
  const Value* find(const std::string& key) const;
};

/// What a file comes to, as far as it has been read.
class Draft {
 public:
  void set(const std::string& key, const std::string& yaml, const Value& from);
  bool has(const std::string& key) const;
  void note(const Value& value, const std::string& path, const std::string& message);
  void refuse(const Value& value, const std::string& path, const std::string& message);
  /// As it stands: what is wrong with it the recipe's reader says, at this place.
  void copy(const std::string& key, const Value& value, const std::string& path);
  /// Does with each key what its row says; one without a row is refused.
  void walk(const Section& section, const std::vector<AccelerateKey>& rows);
  void take(const AccelerateKey& row, const Value& value, const std::string& path);
  /// Does the same with the keys of a DeepSpeed file, whose rows have whole paths. Returns the paths of what its rows
  /// call meaningless.
  std::vector<std::string> walk_file(const Value& file, const std::vector<AccelerateKey>& rows);
  void add_meaningless(const std::string& path) { meaningless_.push_back(path); }
  std::vector<Problem>& problems() { return config_.problems; }
  /// With one note that names what has no meaning.
  AccelerateConfig finish(const Value& root);

 private:
  void walk_file(const Value& map, const std::string& path, const std::vector<AccelerateKey>& rows,
                 std::vector<std::string>& without_meaning);

  std::vector<std::string> meaningless_;
  AccelerateConfig config_;
};

}  // namespace trainrun::accelerate
