#include "registry/kinds/callback.h"

namespace trainrun {

std::optional<double> figure_of(const Figures& figures, const std::string& name) {
  for (const auto& [known, figure] : figures) {
    if (known == name) return figure;
  }
  return std::nullopt;
}

}  // namespace trainrun
