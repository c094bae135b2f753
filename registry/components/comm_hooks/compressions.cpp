#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>

#include "registry/kinds/comm_hook.h"

namespace trainrun {
namespace {

/// Gradients travel as `kType`: divided by the world size first, so that their sum does not overflow (as PyTorch's
/// fp16_compress_hook and bf16_compress_hook).
template <at::ScalarType kType>
class Compression : public CommHook {
 public:
  FutureTensor reduce(const GradientBucket& bucket, Communicator& ranks) override {
    const at::Tensor sent = bucket.values.to(kType).div_(ranks.world_size());
    return ranks.start_sum(sent)->then(
        [values = bucket.values](c10::ivalue::Future& arrived) -> c10::IValue {
          if (arrived.hasError()) std::rethrow_exception(arrived.exception_ptr());
          values.copy_(arrived.value().toTensor());
          return values;
        },
        c10::TensorType::get());
  }
};

struct FP16Compression {
  static void describe(Fields<FP16Compression>&) {}
  std::unique_ptr<CommHook> build(const CommHookInputs&) const { return std::make_unique<Compression<at::kHalf>>(); }
};

struct BF16Compression {
  static void describe(Fields<BF16Compression>&) {}
  std::unique_ptr<CommHook> build(const CommHookInputs&) const {
    return std::make_unique<Compression<at::kBFloat16>>();
  }
};

}  // namespace

void add_compressions(CommHookRegistry& comm_hooks) {
  comm_hooks.add<FP16Compression>("FP16Compression", "gradients are sent as float16: half the bytes");
  comm_hooks.add<BF16Compression>("BF16Compression",
                                  "gradients are sent as bfloat16: half the bytes, float32's range, fewer digits");
}

}  // namespace trainrun
