#include "runner/recipe/recipe_position.h"

namespace trainrun {

std::string find_key(const Value& value, const std::string& name, const Position& here) {
  std::string best;
  const auto take = [&](std::string found) {
    if (!found.empty() && (best.empty() || found.size() < best.size())) best = std::move(found);
  };
  for (const Value::Entry& entry : value.entries()) {
    const Position next = here.child(entry.value, entry.key);
    if (next.region == Region::kBlocks) continue;
    take(entry.key == name ? next.path() : find_key(entry.value, name, next));
  }
  for (size_t i = 0; i < value.items().size(); ++i) take(find_key(value.items()[i], name, here.item(i)));
  return best;
}

}  // namespace trainrun
