#include "registry/kernels/plain_tensor.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/as_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace trainrun::kernels {

bool is_plain_cpu(const at::Tensor& x) {
  using c10::DispatchKey;
  static const c10::DispatchKeySet plain{DispatchKey::CPU, DispatchKey::AutogradCPU, DispatchKey::ADInplaceOrView,
                                         DispatchKey::AutocastCPU};
  const auto modes = c10::impl::tls_local_dispatch_key_set().included_;
  return plain.has_all(x.key_set()) && c10::default_included_set.has_all(modes) && !x._fw_grad(0).defined();
}

bool is_dense_float(const at::Tensor& x) {
  return is_plain_cpu(x) && x.scalar_type() == at::kFloat && x.is_contiguous();
}

at::Tensor turned(const at::Tensor& x) {
  return at::as_strided(x, {x.size(1), x.size(0)}, {x.stride(1), x.stride(0)}, x.storage_offset());
}

std::optional<at::ScalarType> type_of_product(const at::Tensor& x) {
  const at::ScalarType own = x.scalar_type();
  if (!at::autocast::is_autocast_enabled(at::kCPU)) return own == at::kFloat ? std::optional(own) : std::nullopt;
  const bool fits =
      at::autocast::get_autocast_dtype(at::kCPU) == at::kBFloat16 && (own == at::kFloat || own == at::kBFloat16);
  return fits ? std::optional(at::kBFloat16) : std::nullopt;
}

}  // namespace trainrun::kernels
