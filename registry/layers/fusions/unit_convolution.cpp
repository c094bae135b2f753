#include "registry/layers/fusions/unit_convolution.h"

#include <string>
#include <utility>
#include <variant>

#include "registry/graph/passing_on.h"
#include "registry/layers/convolutions.h"

namespace trainrun {
namespace {

bool is_one(const Sizes<2>& sizes) { return sizes[0] == 1 && sizes[1] == 1; }

class KernelConvolution : public Operation, public CanPassOnInput {
 public:
  KernelConvolution(const Layer& conv, ConvolutionKernel kernel, ConvolutionKernel passing_on, const Traits& traits)
      : conv_(conv), kernel_(std::move(kernel)), passing_on_(std::move(passing_on)), traits_(traits) {}

  Tensors run(const Tensors& inputs) const override {
    const auto parameters = conv_.state->named_parameters(false);
    const at::Tensor* bias = parameters.find("bias");
    return kernel_(inputs[0], *parameters.find("weight"), bias ? *bias : at::Tensor());
  }
  Traits traits() const override { return traits_; }
  std::shared_ptr<const Operation> passing_on() const override {
    if (!passing_on_) return nullptr;
    Traits traits = traits_;
    traits.view = true;
    return std::make_shared<KernelConvolution>(conv_, passing_on_, nullptr, traits);
  }

 private:
  Layer conv_;
  ConvolutionKernel kernel_, passing_on_;
  Traits traits_;
};

}  // namespace

std::optional<std::array<int64_t, 2>> plain_convolution_padding(const GraphNode& node) {
  const auto* conv = node.options<Convolution<2, false>>();
  if (!conv || !is_one(conv->dilation) || conv->groups != 1 || conv->padding_mode != "zeros") return std::nullopt;
  if (const auto* sizes = std::get_if<Sizes<2>>(&conv->padding)) return std::array{(*sizes)[0], (*sizes)[1]};
  if (std::get<std::string>(conv->padding) != "same") return std::array<int64_t, 2>{0, 0};
  for (const size_t dim : {0, 1}) {
    if (conv->kernel_size[dim] % 2 == 0) return std::nullopt;  // more is added on one side than on the other
  }
  return std::array{conv->kernel_size[0] / 2, conv->kernel_size[1] / 2};
}

std::optional<std::array<int64_t, 2>> unit_convolution_padding(const GraphNode& node) {
  const auto* conv = node.options<Convolution<2, false>>();
  return conv && is_one(conv->stride) ? plain_convolution_padding(node) : std::nullopt;
}

std::shared_ptr<const Operation> convolution_by(const Layer& conv, ConvolutionKernel kernel,
                                                ConvolutionKernel passing_on) {
  return std::make_shared<KernelConvolution>(conv, std::move(kernel), std::move(passing_on), kComputed);
}

}  // namespace trainrun
