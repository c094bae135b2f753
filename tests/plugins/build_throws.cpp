// A component of every kind whose `build` throws what no trainrun has thrown: std::runtime_error.
#include <stdexcept>

#include "registry/plugin.h"

namespace {

template <class Kind>
struct Broken {
  double lr = 0;

  static void describe(trainrun::Fields<Broken>& f) {
    f.optional("lr", &Broken::lr).doc("nothing; optimizers have one");
  }
  typename Kind::Product build(const typename Kind::Inputs&) const { throw std::runtime_error("there is no device"); }
};

template <class Kind>
void add_broken(trainrun::Registry<Kind>& registry) {
  registry.template add<Broken<Kind>>("Broken", "cannot be built");
}

}  // namespace

TRAINRUN_PLUGIN(catalog) {
  catalog.for_each([](auto& registry) { add_broken(registry); });
}
