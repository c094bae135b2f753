#include "runner/base/limits.h"

#include <algorithm>

namespace trainrun {

size_t weight_of(const std::string& text) { return 1 + text.size() / 64; }

size_t weight_of(const Value& value) {
  size_t weight = weight_of(value.text());
  for (const Value& item : value.items()) weight += weight_of(item);
  for (const Value::Entry& entry : value.entries()) weight += weight_of(entry.key) - 1 + weight_of(entry.value);
  return weight;
}

size_t depth_of(const Value& value) {
  size_t depth = 0;
  for (const Value& item : value.items()) depth = std::max(depth, depth_of(item));
  for (const Value::Entry& entry : value.entries()) depth = std::max(depth, depth_of(entry.value));
  return depth + 1;
}

}  // namespace trainrun
