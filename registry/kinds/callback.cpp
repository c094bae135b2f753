#include "registry/kinds/callback.h"

#include "registry/language/figure_name.h"

namespace trainrun {

std::optional<double> figure_of(const Figures& figures, const std::string& name) {
  for (const std::string& called : {name, present_figure_name(name)}) {
    for (const auto& [known, figure] : figures) {
      if (known == called) return figure;
    }
  }
  return std::nullopt;
}

}  // namespace trainrun
