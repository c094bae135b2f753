#include "registry/kernels/bernoulli_fill.h"
#include "registry/kernels/bernoulli_paths.h"

namespace trainrun::kernels {

void bernoulli_fill(Twister& twister, uint64_t limit, One one, void* to, int64_t count) {
  fill(twister, limit, one, to, count);
}

}  // namespace trainrun::kernels
