#include "registry/graph/shape_functions.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/Pool.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <unordered_map>

namespace trainrun {
namespace {

using torch::jit::Stack;
using Tensors = std::vector<at::Tensor>;

thread_local int64_t flops_seen = 0;

at::Tensor meta_like(const at::Tensor& tensor, at::IntArrayRef sizes) {
  return at::empty(sizes, tensor.options().device(c10::kMeta));
}

at::Tensor optional_tensor(const c10::IValue& value) { return value.isTensor() ? value.toTensor() : at::Tensor(); }

/// Output sizes of a convolution, as at::convolution checks and computes them; transposed ones too.
std::vector<int64_t> convolution_sizes(const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
                                       at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                       at::IntArrayRef output_padding, int64_t groups) {
  const int64_t spatial = weight.dim() - 2;
  TORCH_CHECK(input.dim() == weight.dim(), "a convolution with weight ", weight.sizes(), " expects ", spatial + 2,
              " dimensions, not ", input.sizes());
  const int64_t expected = transposed ? weight.size(0) : weight.size(1) * groups;
  TORCH_CHECK(input.size(1) == expected, "it expects ", expected, " channels, but the input has ", input.size(1));
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
  count_flops(2 * positions[0] * num_elements(positions.slice(2)) * num_elements(weight.sizes()));
  stack->push_back(meta_like(input, sizes));
}

void batch_norm_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const bool has_weight = args[1].isTensor() && args[1].toTensor().defined();
  TORCH_CHECK(!has_weight || args[1].toTensor().size(0) == input.size(1), "it expects ",
              has_weight ? args[1].toTensor().size(0) : 0, " channels, but the input has ", input.size(1));
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
  TORCH_CHECK(input.size(2) == weights[0].size(1), "it expects ", weights[0].size(1), " features, but the input has ",
              input.size(2));
  const int64_t directions = bidirectional ? 2 : 1;
  const int64_t positions = input.size(0) * input.size(1);
  for (const at::Tensor& weight : weights) count_flops(weight.dim() == 2 ? 2 * positions * weight.numel() : 0);
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

/// Of each element by itself, and aten::_safe_softmax: scores [N, heads, L, S] on the CPU would take gigabytes.
void same_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  stack->push_back(meta_like(args[0].toTensor(), args[0].toTensor().sizes()));
}

/// aten::native_layer_norm: the output, and the mean and inverse deviation of each row, for the gradient.
void layer_norm_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const std::vector<int64_t> normalized = args[1].toIntVector();
  at::native::_check_layer_norm_inputs(input, normalized, optional_tensor(args[2]), optional_tensor(args[3]));
  stack->push_back(meta_like(input, input.sizes()));
  std::vector<int64_t> rows = input.sizes().vec();
  std::fill(rows.end() - static_cast<std::ptrdiff_t>(normalized.size()), rows.end(), 1);
  for (int i = 0; i < 2; ++i) stack->push_back(meta_like(input, rows));
}

/// aten::native_group_norm, whose inputs at::group_norm has checked: the output, and two figures for each group.
void group_norm_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  stack->push_back(meta_like(input, input.sizes()));
  for (int i = 0; i < 2; ++i) stack->push_back(meta_like(input, {args[3].toInt(), args[6].toInt()}));
}

/// aten::nll_loss2d_forward, of scores [N, C, H, W] and classes [N, H, W]: the loss, and the weights' sum.
void nll_loss_2d_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& scores = args[0].toTensor();
  const at::Tensor& target = args[1].toTensor();
  TORCH_CHECK(scores.dim() == 4 && target.dim() == 3 && scores.size(0) == target.size(0) &&
                  scores.sizes().slice(2) == target.sizes().slice(1),
              "scores ", scores.sizes(), " do not match classes ", target.sizes());
  const at::Tensor weight = optional_tensor(args[2]);
  TORCH_CHECK(!weight.defined() || weight.numel() == scores.size(1), "weight has ",
              weight.defined() ? weight.numel() : 0, " classes, but the scores have ", scores.size(1));
  const bool reduced = args[3].toInt() != at::Reduction::None;
  stack->push_back(meta_like(scores, reduced ? at::IntArrayRef() : target.sizes()));
  stack->push_back(meta_like(scores, {}));
}

/// aten::where.self: of the shape to which its inputs broadcast.
void where_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& yes = args[1].toTensor();
  const at::Tensor& no = args[2].toTensor();
  const auto sizes = at::infer_size(args[0].toTensor().sizes(), at::infer_size(yes.sizes(), no.sizes()));
  stack->push_back(at::empty(sizes, yes.options().dtype(at::result_type(yes, no)).device(c10::kMeta)));
}

/// aten::_adaptive_avg_pool2d: batch and channels, and the sizes that were asked for.
void adaptive_pool_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  std::vector<int64_t> sizes = input.sizes().slice(0, 2).vec();
  for (const int64_t size : args[1].toIntVector()) sizes.push_back(size);
  stack->push_back(meta_like(input, sizes));
}

/// aten::max_unpool2d, max_unpool3d: batch and channels, and the sizes that were asked for.
void max_unpool_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const std::vector<int64_t> asked = args[2].toIntVector();
  std::vector<int64_t> sizes = input.sizes().slice(0, input.dim() - static_cast<int64_t>(asked.size())).vec();
  sizes.insert(sizes.end(), asked.begin(), asked.end());
  stack->push_back(meta_like(input, sizes));
}

/// aten::channel_shuffle.
void channel_shuffle_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const int64_t groups = args[1].toInt();
  TORCH_CHECK(input.dim() > 2 && input.size(1) % groups == 0, "Number of channels must be divisible by groups. Got ",
              input.size(1), " channels and ", groups, " groups.");
  same_shape(args, stack);
}

/// aten::log_sigmoid_forward: the output, and a buffer for the gradient.
void log_sigmoid_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  same_shape(args, stack);
  same_shape(args, stack);
}

/// aten::binary_cross_entropy_with_logits: one number, or one for each element.
void binary_cross_entropy_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& output = args[0].toTensor();
  const at::Tensor& target = args[1].toTensor();
  TORCH_CHECK(output.sizes() == target.sizes(), "the target ", target.sizes(), " is not like the output ",
              output.sizes());
  std::vector<int64_t> sizes = output.sizes().vec();
  for (const size_t i : {2, 3}) {
    if (const at::Tensor weight = optional_tensor(args[i]); weight.defined())
      sizes = at::infer_size(sizes, weight.sizes());
  }
  if (args[4].toInt() != at::Reduction::None) sizes.clear();
  stack->push_back(meta_like(output, sizes));
}

/// aten::max_pool3d_with_indices: the values and where they were.
void max_pool_3d_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const auto number = [&](size_t list, size_t i) {
    const std::vector<int64_t> all = args[list].toIntVector();
    return all.size() == 1 ? all[0] : all[i];
  };
  const size_t step = args[2].toIntVector().empty() ? 1 : 2;
  std::vector<int64_t> sizes = input.sizes().vec();
  for (size_t i = 0; i < 3; ++i) {
    int64_t& size = sizes[sizes.size() - 3 + i];
    size = at::native::pooling_output_shape<int64_t>(size, number(1, i), number(3, i), number(step, i), number(4, i),
                                                     args[5].toBool());
    TORCH_CHECK(size >= 1, "no window of the pooling fits ", input.sizes());
  }
  stack->push_back(meta_like(input, sizes));
  stack->push_back(at::empty(sizes, input.options().dtype(at::kLong).device(c10::kMeta)));
}

/// aten::reflection_pad2d.
void reflection_pad_2d_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const std::vector<int64_t> padding = args[1].toIntVector();  // left, right, top, bottom
  std::vector<int64_t> sizes = input.sizes().vec();
  for (size_t i = 0; i < 4; ++i) {
    const int64_t before = input.size(-1 - static_cast<int64_t>(i / 2));
    TORCH_CHECK(padding[i] < before, "a padding of ", padding[i], " is not less than the input's ", before);
    sizes[sizes.size() - 1 - i / 2] += padding[i];
  }
  TORCH_CHECK(sizes.back() > 0 && sizes[sizes.size() - 2] > 0, "the padding leaves nothing of ", input.sizes());
  stack->push_back(meta_like(input, sizes));
}

/// How many blocks of a kernel there are in an image: `args` from `first` are kernel_size, dilation, padding, stride.
int64_t num_blocks(at::IntArrayRef image, const std::vector<c10::IValue>& args, size_t first) {
  int64_t blocks = 1;
  for (size_t i = 0; i < 2; ++i) {
    const auto number = [&](size_t list) { return args[first + list].toIntVector()[i]; };
    const int64_t room = image[i] + 2 * number(2) - number(1) * (number(0) - 1) - 1;
    TORCH_CHECK(room >= 0, "no block of ", number(0), " fits an image of ", image, " with a padding of ", number(2));
    blocks *= room / number(3) + 1;
  }
  return blocks;
}

/// aten::im2col: [N, C, H, W] to [N, C·kernel, blocks].
void im2col_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  TORCH_CHECK(input.dim() == 4, "it expects [N, C, H, W], not ", input.sizes());
  const int64_t kernel = num_elements(args[1].toIntVector());
  stack->push_back(
      meta_like(input, {input.size(0), input.size(1) * kernel, num_blocks(input.sizes().slice(2), args, 1)}));
}

/// aten::col2im: [N, C·kernel, blocks] to [N, C, H, W].
void col2im_shape(const std::vector<c10::IValue>& args, Stack* stack) {
  const at::Tensor& input = args[0].toTensor();
  const std::vector<int64_t> image = args[1].toIntVector();
  const int64_t kernel = num_elements(args[2].toIntVector());
  TORCH_CHECK(input.dim() == 3 && input.size(1) % kernel == 0, "it expects [N, C times ", kernel, ", blocks], not ",
              input.sizes());
  const int64_t blocks = num_blocks(image, args, 2);
  TORCH_CHECK(input.size(2) == blocks, "an image of ", at::IntArrayRef(image), " has ", blocks, " blocks, not ",
              input.size(2));
  stack->push_back(meta_like(input, {input.size(0), input.size(1) / kernel, image[0], image[1]}));
}

const std::unordered_map<std::string, ShapeFunction>& shape_functions() {
  static const std::unordered_map<std::string, ShapeFunction> functions = {
      {"aten::convolution", convolution_shape},
      {"aten::batch_norm", batch_norm_shape},
      {"aten::embedding", embedding_shape},
      {"aten::lstm.input", recurrent_shape},
      {"aten::gru.input", recurrent_shape},
      {"aten::rnn_tanh.input", recurrent_shape},
      {"aten::rnn_relu.input", recurrent_shape},
      {"aten::_safe_softmax", same_shape},
      {"aten::relu", same_shape},
      {"aten::abs", same_shape},
      {"aten::hardswish", same_shape},
      {"aten::hardtanh", same_shape},
      {"aten::_prelu_kernel", same_shape},
      {"aten::rrelu_with_noise", same_shape},
      {"aten::relu_", first_argument},
      {"aten::hardswish_", first_argument},
      {"aten::hardtanh_", first_argument},
      {"aten::rrelu_with_noise_", first_argument},
      {"aten::channel_shuffle", channel_shuffle_shape},
      {"aten::log_sigmoid_forward", log_sigmoid_shape},
      {"aten::binary_cross_entropy_with_logits", binary_cross_entropy_shape},
      {"aten::max_pool3d_with_indices", max_pool_3d_shape},
      {"aten::reflection_pad2d", reflection_pad_2d_shape},
      {"aten::im2col", im2col_shape},
      {"aten::col2im", col2im_shape},
      {"aten::native_layer_norm", layer_norm_shape},
      {"aten::native_group_norm", group_norm_shape},
      {"aten::nll_loss2d_forward", nll_loss_2d_shape},
      {"aten::where.self", where_shape},
      {"aten::_adaptive_avg_pool2d", adaptive_pool_shape},
      {"aten::max_unpool2d", max_unpool_shape},
      {"aten::max_unpool3d", max_unpool_shape},
      {"aten::_embedding_bag", embedding_bag_shape},
      {"aten::_embedding_bag_forward_only", embedding_bag_shape},
      {"aten::embedding_renorm_", first_argument},
  };
  return functions;
}

}  // namespace

ShapeFunction find_shape_function(const std::string& operation) {
  const auto known = shape_functions().find(operation);
  return known == shape_functions().end() ? nullptr : known->second;
}

void count_flops(int64_t flops) { flops_seen += flops; }
int64_t flops_counted() { return flops_seen; }

int64_t num_elements(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace trainrun
