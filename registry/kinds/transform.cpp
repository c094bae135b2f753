#include "registry/kinds/transform.h"

#include "registry/language/error.h"

namespace trainrun {

void Transform::apply_to_pairs(Batch&, const Batch&, const SampleDraws&) const {
  throw Error("a transform that pairs samples does not say how");
}
void Transform::learn(const std::function<std::optional<Batch>()>&) {}
nlohmann::json Transform::learnt() const { return nullptr; }
void Transform::set_learnt(const nlohmann::json&) {}

}  // namespace trainrun
