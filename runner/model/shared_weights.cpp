#include "runner/model/shared_weights.h"

#include <ATen/ops/equal.h>

#include "registry/language/error.h"

namespace trainrun {

void check_shared_weights(const std::string& origin, const std::map<std::string, at::Tensor>& given,
                          const NamedTensors& own) {
  std::map<const at::TensorImpl*, std::string> first;  // the name of each that `given` has
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end()) continue;
    const auto [other, is_new] = first.emplace(tensor.unsafeGetTensorImpl(), name);
    const at::Tensor& value = given.at(other->second);
    if (is_new || value.sizes() != found->second.sizes()) continue;
    if (at::equal(value, found->second.to(value.scalar_type()))) continue;
    throw Error(origin + ": " + other->second + " and " + name +
                " differ, but are one weight in the model; leave one of them out of the file, or give the model two "
                "(tie_word_embeddings: false, or no `share`)");
  }
}

}  // namespace trainrun
