#include "registry/graph/fusion.h"

#include <algorithm>

#include "registry/language/registry.h"

namespace trainrun {

void FusionRegistry::add(Fusion fusion) {
  fusion.origin = origin_;
  const auto other =
      std::find_if(fusions_.begin(), fusions_.end(), [&](const Fusion& known) { return known.name == fusion.name; });
  if (other != fusions_.end()) detail::throw_duplicate("fusion", fusion.name, other->origin, origin_);
  fusions_.push_back(std::move(fusion));
}

}  // namespace trainrun
