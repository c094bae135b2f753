#include "runner/data/transform_order.h"

#include <algorithm>
#include <numeric>

namespace trainrun {

std::vector<size_t> application_order(const BatchTransforms& transforms) {
  std::vector<size_t> order(transforms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t end = order.size(); end-- > 0;) {
    for (size_t i = end; i + 1 < order.size(); ++i) {
      if (transforms[order[i]]->values() != Values::kScaled) break;
      if (transforms[order[i + 1]]->values() != Values::kMoved) break;
      std::swap(order[i], order[i + 1]);
    }
  }
  return order;
}

size_t num_pointwise_last(const BatchTransforms& transforms, const std::vector<size_t>& order) {
  const auto is_pointwise = [&](size_t number) {
    const Values values = transforms[number]->values();
    return values == Values::kScaled || values == Values::kPointwise;
  };
  const auto first = std::find_if_not(order.rbegin(), order.rend(), is_pointwise);
  return static_cast<size_t>(first - order.rbegin());
}

}  // namespace trainrun
