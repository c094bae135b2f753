#include "registry/transform.h"

namespace trainrun {

void Transform::learn(const std::function<std::optional<Batch>()>&) {}
nlohmann::json Transform::learnt() const { return nullptr; }
void Transform::set_learnt(const nlohmann::json&) {}

}  // namespace trainrun
