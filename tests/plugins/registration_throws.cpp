// Throws after it has registered a component.
#include <stdexcept>

#include "registry/plugin.h"

namespace {

struct Early {
  static void describe(trainrun::Fields<Early>&) {}
  trainrun::Layer build(const trainrun::LayerInputs&) const {
    return trainrun::layer_of_function([](const at::Tensor& x) { return x; });
  }
};

}  // namespace

TRAINRUN_PLUGIN(catalog) {
  catalog.layers.add<Early>("Early", "what came in");
  throw std::runtime_error("there is no licence");
}
