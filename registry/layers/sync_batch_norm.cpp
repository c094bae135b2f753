#include "registry/layers/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "registry/kinds/layer.h"

namespace trainrun {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// All dimensions but the channels'.
std::vector<int64_t> dims_of_statistics(const at::Tensor& input) {
  std::vector<int64_t> dims = {0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

/// [C] as [1, C, 1, …]
at::Tensor along_channels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> sizes(static_cast<size_t>(input.dim()), 1);
  sizes[1] = values.size(0);
  return values.view(sizes);
}

struct Statistics {
  at::Tensor mean;         // [C]
  at::Tensor squares;      // [C], summed squared distances from the mean
  double num_samples = 0;  // per channel, over all ranks
};

Statistics statistics_over_ranks(const at::Tensor& input, Communicator& ranks) {
  const int64_t channels = input.size(1);
  const double own = static_cast<double>(input.numel()) / static_cast<double>(channels);
  const auto [variance, mean] = at::var_mean(input, dims_of_statistics(input), /*correction=*/0);
  // Row r holds what rank r has: the sum over ranks brings them together.
  const at::Tensor all = at::zeros({ranks.world_size(), 2 * channels + 1}, mean.options());
  all[ranks.rank()].copy_(at::cat({mean, variance * own, at::full({1}, own, mean.options())}));
  ranks.sum(all);
  const at::Tensor counts = all.slice(1, 2 * channels);
  const at::Tensor means = all.slice(1, 0, channels);
  Statistics merged;
  merged.num_samples = counts.sum().item<double>();
  merged.mean = (means * counts).sum(0) / merged.num_samples;
  merged.squares = all.slice(1, channels, 2 * channels).sum(0) + (counts * (means - merged.mean).square()).sum(0);
  return merged;
}

struct SyncBatchNormFunction : torch::autograd::Function<SyncBatchNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& running_mean, const at::Tensor& running_var,
                            double momentum, double eps, int64_t ranks_address) {
    Communicator& ranks = *reinterpret_cast<Communicator*>(ranks_address);  // NOLINT(performance-no-int-to-ptr)
    const bool is_double = given.scalar_type() == at::kDouble;
    const at::Tensor input = is_double ? given : given.to(at::kFloat);
    const Statistics found = statistics_over_ranks(input, ranks);
    if (found.num_samples <= 1) {
      throw LayerError(
          "it normalizes over more than one value per channel while training, but all ranks together have one");
    }
    if (running_mean.defined()) {
      running_mean.mul_(1 - momentum).add_(found.mean, momentum);
      running_var.mul_(1 - momentum).add_(found.squares / (found.num_samples - 1), momentum);
    }
    const at::Tensor inverse = (found.squares / found.num_samples + eps).rsqrt();
    const at::Tensor scale = weight.defined() ? inverse * weight : inverse;
    const at::Tensor shift = (bias.defined() ? bias : at::zeros_like(scale)) - found.mean * scale;
    context->save_for_backward({given, weight, found.mean, inverse});
    context->saved_data["num_samples"] = found.num_samples;
    context->saved_data["ranks"] = ranks_address;
    return at::addcmul(along_channels(shift, input), input, along_channels(scale, input)).to(given.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& given = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& mean = saved[2];
    const at::Tensor& inverse = saved[3];
    const int64_t channels = mean.size(0);
    const double num_samples = context->saved_data["num_samples"].toDouble();
    Communicator& ranks =  // NOLINTNEXTLINE(performance-no-int-to-ptr)
        *reinterpret_cast<Communicator*>(context->saved_data["ranks"].toInt());
    const std::vector<int64_t> dims = dims_of_statistics(given);
    const at::Tensor outer = gradients[0].to(mean.scalar_type());
    const at::Tensor centred = given.to(mean.scalar_type()) - along_channels(mean, given);
    const at::Tensor own_sum = outer.sum(dims);
    const at::Tensor own_product = (outer * centred).sum(dims);
    const at::Tensor together = at::cat({own_sum, own_product});
    ranks.sum(together);
    together.div_(num_samples);
    const at::Tensor mean_gradient = together.slice(0, 0, channels);
    const at::Tensor slope = inverse.square() * together.slice(0, channels);
    const at::Tensor scale = weight.defined() ? inverse * weight : inverse;
    const at::Tensor inner = (outer - along_channels(mean_gradient, given) - centred * along_channels(slope, given)) *
                             along_channels(scale, given);
    variable_list result(8);
    result[0] = inner.to(given.scalar_type());
    if (weight.defined()) {
      result[1] = own_product * inverse;  // of this rank's samples: data parallel takes the mean over ranks
      result[2] = own_sum;
    }
    return result;
  }
};

}  // namespace

at::Tensor sync_batch_norm(const at::Tensor& input, const BatchNormTensors& tensors, double momentum, double eps,
                           Communicator& ranks) {
  return SyncBatchNormFunction::apply(input, tensors.weight, tensors.bias, tensors.running_mean, tensors.running_var,
                                      momentum, eps, reinterpret_cast<int64_t>(&ranks));
}

}  // namespace trainrun
