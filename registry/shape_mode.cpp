#include "registry/shape_mode.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <functional>
#include <numeric>
#include <unordered_map>

// A dispatcher mode on a key that nothing else uses. Whatever makes a tensor makes it on the meta device; an operation
// without a meta kernel in C++ has a shape function of ours below, or is run on zeros on the CPU, one operation at a
// time.

namespace trainrun {
namespace {

constexpr auto kModeKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local int depth = 0;
thread_local int64_t flops_seen = 0;

using torch::jit::Stack;
using Tensors = std::vector<at::Tensor>;
using TensorMap = std::function<at::Tensor(const at::Tensor&)>;

c10::IValue map_tensors(const c10::IValue& value, const TensorMap& map) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(map(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (at::Tensor tensor : value.toTensorList()) list.push_back(tensor.defined() ? map(tensor) : tensor);
    return list;
  }
  if (value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType) {
    const auto in = value.toList();
    auto out = c10::impl::GenericList(in.elementType());
    for (c10::IValue item : in) out.push_back(item.isTensor() ? c10::IValue(map(item.toTensor())) : item);
    return out;
  }
  return value;
}

at::Tensor meta_like(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return at::empty(sizes, tensor.options().device(c10::kMeta));
}

int64_t product(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Output sizes of a convolution, as at::convolution checks and computes them; transposed ones too.
std::vector<int64_t> convolution_sizes(const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
                                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                       at::IntArrayRef output_padding, int64_t groups) {
  const int64_t spatial = weight.dim() - 2;
  TORCH_CHECK(input.dim() == weight.dim(), "a convolution with weight ", weight.sizes(), " expects ", spatial + 2,
              " dimensions, not ", input.sizes());
  const int64_t expected = transposed ? weight.size(0) : weight.size(1) * groups;
  TORCH_CHECK(input.size(1) == expected, "it expects ", expected, " channels, ", input.size(1), " flow in");
  std::vector<int64_t> sizes = {input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t i = 0; i < spatial; ++i) {
    const auto at_dim = [&](at::IntArrayRef list) { return list.size() == 1 ? list[0] : list[i]; };
    const int64_t kernel = at_dim(dilation) * (weight.size(i + 2) - 1) + 1;
    const int64_t in = input.size(i + 2);
    const int64_t out = transposed ? (in - 1) * at_dim(stride) - 2 * at_dim(padding) + kernel + at_dim(output_padding)
                                   : (in + 2 * at_dim(padding) - kernel) / at_dim(stride) + 1;
    TORCH_CHECK(in + (transposed ? 0 : 2 * at_dim(padding) - kernel) >= 0 && out > 0, "a window of ", kernel,
                " does not fit an input of ", in, " with a padding of ", at_dim(padding));
    sizes.push_back(out);
  }
  return sizes;
}

void convolution_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const at::Tensor& weight = args[1].toTensor();
  const bool transposed = args[6].toBool();
  const int64_t groups = args[8].toInt();
  const auto sizes = convolution_sizes(input, weight, args[3].toIntVector(), args[4].toIntVector(),
                                       args[5].toIntVector(), transposed, args[7].toIntVector(), groups);
  const at::IntArrayRef positions = transposed ? input.sizes() : at::IntArrayRef(sizes);
  flops_seen += 2 * positions[0] * product(positions.slice(2)) * product(weight.sizes());
  stack->push_back(meta_like(input, sizes));
}

void batch_norm_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const bool has_weight = args[1].isTensor() && args[1].toTensor().defined();
  TORCH_CHECK(!has_weight || args[1].toTensor().size(0) == input.size(1), "it expects ",
              has_weight ? args[1].toTensor().size(0) : 0, " channels, ", input.size(1), " flow in");
  stack->push_back(at::empty_strided(input.sizes(), input.strides(), input.options()));
}

void embedding_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  std::vector<int64_t> sizes = args[1].toTensor().sizes().vec();
  sizes.push_back(args[0].toTensor().size(1));
  stack->push_back(meta_like(args[0].toTensor(), sizes));
}

/// aten::lstm, gru, rnn_tanh, rnn_relu with a batch (not packed): sequence [N, T, D·H] and the states they are given.
void recurrent_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const Tensors states = args[1].isTensorList() ? args[1].toTensorVector() : Tensors{args[1].toTensor()};
  const Tensors weights = args[2].toTensorVector();
  const bool bidirectional = args[7].toBool();
  TORCH_CHECK(input.dim() == 3, "it expects [N, T, C], or [T, N, C], not ", input.sizes());
  TORCH_CHECK(input.size(2) == weights[0].size(1), "it expects ", weights[0].size(1), " features, ", input.size(2),
              " flow in");
  const int64_t directions = bidirectional ? 2 : 1;
  const int64_t positions = input.size(0) * input.size(1);
  for (const at::Tensor& weight : weights) flops_seen += weight.dim() == 2 ? 2 * positions * weight.numel() : 0;
  stack->push_back(meta_like(input, {input.size(0), input.size(1), directions * states[0].size(2)}));
  for (const at::Tensor& state : states) stack->push_back(meta_like(state, state.sizes()));
}

/// aten::_embedding_bag: one vector for each bag, and three tensors for the gradient.
void embedding_bag_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& weight = args[0].toTensor();
  const at::Tensor& offsets = args[2].toTensor();
  stack->push_back(meta_like(weight, {offsets.size(0), weight.size(1)}));
  for (int i = 0; i < 3; ++i) stack->push_back(meta_like(offsets, {0}));
}

/// aten::embedding_renorm_ gives the weight that it changes.
void first_argument(const std::vector<c10::IValue>& args, Stack* stack) { stack->push_back(args[0]); }

/// aten::_safe_softmax, of attention: scores [N, heads, L, S] on the CPU would take gigabytes.
void same_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  stack->push_back(meta_like(args[0].toTensor(), args[0].toTensor().sizes()));
}

using ShapeFunction = void (*)(const std::vector<c10::IValue>&, Stack*);
/// Of the operations that would cost time or memory on zeros.
const std::unordered_map<std::string, ShapeFunction>& shape_functions() {
  static const std::unordered_map<std::string, ShapeFunction> functions = {
      {"aten::convolution", convolution_shape},
      {"aten::batch_norm", batch_norm_shape},
      {"aten::embedding", embedding_shape},
      {"aten::lstm", recurrent_shape},
      {"aten::gru", recurrent_shape},
      {"aten::rnn_tanh", recurrent_shape},
      {"aten::rnn_relu", recurrent_shape},
      {"aten::_safe_softmax", same_shape},
      {"aten::_embedding_bag", embedding_bag_shape},
      {"aten::_embedding_bag_forward_only", embedding_bag_shape},
      {"aten::embedding_renorm_", first_argument},
  };
  return functions;
}

/// Multiplications and additions of matrix products; convolutions count their own.
void count_flops(const std::string& name, const std::vector<c10::IValue>& args) {
  const auto sizes = [&](size_t i) { return args[i].toTensor().sizes(); };
  if (name == "aten::mm" || name == "aten::addmm") {
    const size_t first = name == "aten::mm" ? 0 : 1;
    flops_seen += 2 * product(sizes(first)) * sizes(first + 1).back();
  } else if (name == "aten::bmm" || name == "aten::baddbmm") {
    const size_t first = name == "aten::bmm" ? 0 : 1;
    flops_seen += 2 * product(sizes(first)) * sizes(first + 1).back();
  }
}

void run_on_zeros(const c10::OperatorHandle& op, const std::vector<c10::IValue>& args, Stack* stack) {
  const c10::AutoGradMode no_gradients(false);
  const auto& schema = op.schema().arguments();
  const size_t base = stack->size();
  const auto zeros = [](const at::Tensor& tensor) {
    return tensor.device().is_meta() ? at::zeros(tensor.sizes(), tensor.options().device(c10::kCPU)) : tensor;
  };
  for (size_t i = 0; i < args.size(); ++i) {
    stack->push_back(schema[i].name() == "device" ? c10::IValue(c10::Device(c10::kCPU)) : map_tensors(args[i], zeros));
  }
  op.callBoxed(stack);
  for (size_t i = base; i < stack->size(); ++i) {
    (*stack)[i] = map_tensors((*stack)[i], [](const at::Tensor& tensor) {
      return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
    });
  }
}

void on_meta(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto& schema = op.schema().arguments();
  const size_t base = stack->size() - schema.size();
  const std::vector<c10::IValue> args(stack->begin() + static_cast<std::ptrdiff_t>(base), stack->end());
  const std::string& name = op.schema().name();
  count_flops(name, args);
  if (const auto known = shape_functions().find(name); known != shape_functions().end()) {
    stack->resize(base);
    known->second(args, stack);
    return;
  }
  if (op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    op.callBoxedForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd, *stack);  // its parts come here one by one
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard once(kModeKey);
  for (size_t i = 0; i < schema.size(); ++i) {
    if (schema[i].name() == "device") (*stack)[base + i] = c10::Device(c10::kMeta);
  }
  try {
    op.callBoxed(stack);
  } catch (const c10::NotImplementedError&) {
    stack->resize(base);
    run_on_zeros(op, args, stack);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_meta>());
}

struct ShapeMode::State {
  c10::impl::IncludeDispatchKeyGuard mode{kModeKey};
  at::Tensor generator_state;
};

ShapeMode::ShapeMode() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  at::Tensor saved;
  if (depth == 0) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    saved = generator.get_state();
  }
  state_ = std::make_unique<State>();
  state_->generator_state = std::move(saved);
  ++depth;
}

ShapeMode::~ShapeMode() {
  --depth;
  const at::Tensor saved = state_->generator_state;
  state_.reset();
  if (!saved.defined()) return;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(saved);
}

bool ShapeMode::active() { return depth > 0; }
int64_t ShapeMode::flops() { return flops_seen; }

}  // namespace trainrun
