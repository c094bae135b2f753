#include "registry/kernels/plain_tensor.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace trainrun::kernels {

bool is_plain_cpu(const at::Tensor& x) {
  using c10::DispatchKey;
  static const c10::DispatchKeySet plain{DispatchKey::CPU, DispatchKey::AutogradCPU, DispatchKey::ADInplaceOrView,
                                         DispatchKey::AutocastCPU};
  const auto modes = c10::impl::tls_local_dispatch_key_set().included_;
  return plain.has_all(x.key_set()) && c10::default_included_set.has_all(modes) && !x._fw_grad(0).defined();
}

}  // namespace trainrun::kernels
