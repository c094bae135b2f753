#pragma once

#include <optional>
#include <string>
#include <unordered_map>

#include "registry/language/value.h"

namespace trainrun {

/// What a tag says of a value where recipes are merged.
enum class MergeTag {
  kReplace,  // `!replace`: the mapping takes the place of what is there, instead of being merged with it
  kRemove    // `!remove`: the key goes
};

/// The tags of the values of recipes and overrides, each known by the place at which its value was written.
class MergeTags {
 public:
  void add(const Place& place, MergeTag tag) { tags_[place.to_string()] = tag; }
  bool has(const Value& value, MergeTag tag) const {
    if (tags_.empty()) return false;
    const auto found = tags_.find(value.place().to_string());
    return found != tags_.end() && found->second == tag;
  }

 private:
  std::unordered_map<std::string, MergeTag> tags_;
};

}  // namespace trainrun
