#include "registry/data/wide_numbers.h"

#include <ATen/ops/allclose.h>

#include <algorithm>

namespace trainrun {

bool fits_float32(const at::Tensor& numbers) {
  constexpr int64_t kPiece = int64_t{1} << 20;  // at a time: files may be large
  const at::Tensor all = numbers.contiguous().flatten();
  for (int64_t begin = 0; begin < all.numel(); begin += kPiece) {
    const at::Tensor piece = all.narrow(0, begin, std::min(kPiece, all.numel() - begin));
    if (!at::allclose(piece.to(at::kFloat).to(at::kDouble), piece, 0, 0, /*equal_nan=*/true)) return false;
  }
  return true;
}

}  // namespace trainrun
