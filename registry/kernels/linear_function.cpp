#include "registry/kernels/linear_function.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/relu.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "registry/kernels/activation_simd.h"
#include "registry/kernels/matrix_product.h"
#include "registry/kernels/own_products.h"
#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/sparse_product.h"
#include "registry/tensors/gradient_places.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool learns(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

bool is_own_product(const at::Tensor& a, const at::Tensor& b) {
  return uses_own_products() && supports_matrix_product(a, b);
}
/// a b in the type of a, which may be narrower than that of b, or in a wider one.
at::Tensor product_of(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  if (is_own_product(a, b)) return matrix_product(a, b, type);
  const at::Tensor product = at::mm(a, b.to(a.scalar_type()));
  return product.scalar_type() == type ? product : product.to(type);
}

/// a b as the gradient of `weight`, in the memory where it is wanted, if there is some; undefined where it has been added
/// to the one that the weight has, or has become it. `is_sparse`: a holds many zeros.
at::Tensor gradient_of(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, bool is_sparse) {
  const bool is_own = is_own_product(a, b), is_written_once = is_own || a.scalar_type() == weight.scalar_type();
  at::Tensor place = is_written_once ? take_gradient_place(weight) : at::Tensor();
  if (is_sparse) return sparse_product(a, b, place);
  if (is_own) {
    const at::Tensor sum = gradient_to_add_to(weight);  // undefined where there is a place
    if (sum.defined()) return add_matrix_product(sum, a, b), at::Tensor();
    at::Tensor gradient = matrix_product(a, b, weight.scalar_type(), {}, place);
    return begin_gradient(weight, gradient) ? at::Tensor() : gradient;
  }
  if (!place.defined()) return product_of(a, b, weight.scalar_type());
  at::mm_out(place, a, b.to(a.scalar_type()));
  return place;
}

/// x [rows, in] in the type that is computed in; the weight in it, or in float32 where it is cast on the way.
struct Product {
  at::Tensor x, weight;
  bool is_transposed;
  Activation activation;
  CpuPath path;

  at::Tensor weight_in_out() const { return is_transposed ? weight : turned(weight); }

  ActivationShape shape(const at::Tensor& rows) const {
    return {rows.size(1), static_cast<LoopActivation>(activation), rows.scalar_type() == at::kBFloat16};
  }

  /// Casts the weight where the product is ATen's.
  at::Tensor forward(const at::Tensor& bias) {
    at::Tensor factor = weight_in_out();
    if (is_own_product(x, factor)) return matrix_product(x, factor, x.scalar_type(), bias);
    if (weight.scalar_type() != x.scalar_type()) {
      weight = weight.to(x.scalar_type());
      factor = weight_in_out();
    }
    return bias.defined() ? at::addmm(bias.to(x.scalar_type()), x, factor) : at::mm(x, factor);
  }
  /// `y` may be `product`.
  void activate_to(const at::Tensor& product, const at::Tensor& y) const {
    const ActivationShape own = shape(product);
    const void* const from = product.const_data_ptr();
    void* const to = y.mutable_data_ptr();
    at::parallel_for(0, product.size(0), rows_of_thread(product.size(1)),
                     [&](int64_t begin, int64_t end) { TRAINRUN_LOOP_OF(path, activate)(own, from, to, begin, end); });
  }

  struct Summed {
    at::Tensor product, bias;  // gradients
  };
  /// `activated`: what the activation read; of a ReLU what it gave.
  Summed backward_to_product(const at::Tensor& activated, const at::Tensor& grad_y, bool wants_bias) const {
    const bool is_plain = activation == Activation::kNone;
    Summed made{is_plain ? grad_y : at::empty_like(grad_y), {}};
    if (is_plain && !wants_bias) return made;
    const int64_t rows = grad_y.size(0), features = grad_y.size(1);
    const int64_t parts = std::clamp<int64_t>(rows / 8, 1, kMostParts);
    const at::Tensor sums =
        wants_bias ? at::empty({parts, features}, grad_y.options().dtype(at::kFloat)) : at::Tensor();
    float* const to_sums = wants_bias ? sums.mutable_data_ptr<float>() : nullptr;
    const ActivationShape own = shape(grad_y);
    const void* const from = grad_y.const_data_ptr();
    const void* const read = is_plain ? from : activated.const_data_ptr();
    void* const to = is_plain ? const_cast<void*>(from) : made.product.mutable_data_ptr();  // else it is not written
    const int64_t parts_of_thread = std::max<int64_t>(1, parts * kNumbersOfThread / grad_y.numel());
    at::parallel_for(0, parts, parts_of_thread, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        float* const sum = to_sums == nullptr ? nullptr : to_sums + part * features;
        if (sum != nullptr) std::fill_n(sum, features, 0.0F);
        TRAINRUN_LOOP_OF(path, activate_back)
        (own, read, from, to, sum, rows * part / parts, rows * (part + 1) / parts);
      }
    });
    if (wants_bias) made.bias = sum_of_parts(to_sums, parts, features);
    return made;
  }
};

/// By ATen's operations, which have derivatives themselves. The gradients are those of other names for the inputs: the
/// search for them ends there, and does not go on from x to a weight that it was made with.
variable_list derivable_gradients(const at::Tensor& x, const LinearTerms& terms, const at::Tensor& grad_y) {
  variable_list all, inputs, result(3);
  for (const at::Tensor& tensor : {x, terms.weight, terms.bias}) {
    all.push_back(learns(tensor) ? tensor.view_as(tensor) : tensor);
    if (learns(tensor)) inputs.push_back(all.back());
  }
  const at::ScalarType type = x.scalar_type();
  const at::Tensor weight = all[1].to(type);
  const auto bias = all[2].defined() ? std::optional(all[2].to(type)) : std::nullopt;
  at::Tensor y = at::linear(all[0], terms.is_transposed ? weight.t() : weight, bias);
  if (terms.activation == Activation::kRelu) y = at::relu(y);
  if (terms.activation == Activation::kGelu) y = at::gelu(y);
  if (terms.activation == Activation::kGeluTanh) y = at::gelu(y, "tanh");
  const variable_list gradients = torch::autograd::grad({y}, inputs, {grad_y}, std::nullopt, true);
  size_t next = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (learns(all[i])) result[i] = gradients[next++];
  }
  return result;
}

at::Tensor flat_rows(const at::Tensor& x) { return x.dim() == 2 ? x : x.view({-1, x.size(-1)}); }
at::Tensor with_sizes(const at::Tensor& rows, at::IntArrayRef like) {
  if (like.size() == 2) return rows;
  std::vector<int64_t> sizes = like.vec();
  sizes.back() = rows.size(1);
  return at::_unsafe_view(rows, sizes);  // a view of something that nobody else has may be overwritten
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  /// x without gaps, in the type that is computed in.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, bool is_transposed, Activation activation,
                            CpuPath path) {
    const at::AutoDispatchBelowADInplaceOrView no_views;  // which autograd would keep account of, for nobody
    Product product{flat_rows(x), weight, is_transposed, activation, path};
    at::Tensor y = product.forward(bias.value_or(at::Tensor()));
    at::Tensor activated;
    if (activation == Activation::kRelu) {
      product.activate_to(y, y);
    } else if (activation != Activation::kNone) {
      activated = y;
      y = at::empty_like(activated);
      product.activate_to(activated, y);
    }
    y = with_sizes(y, x.sizes());
    if (activation == Activation::kRelu) activated = y;
    const at::Tensor copy = product.weight.is_same(weight) ? at::Tensor() : product.weight;
    // As ATen, which lets a weight change before the backward pass where this does not read it.
    const bool reads_weight = !copy.defined() && x.requires_grad();
    context->save_for_backward({x, reads_weight ? weight : at::Tensor(), activated, copy});
    if (!reads_weight) context->saved_data["weight"] = weight;
    if (bias) context->saved_data["bias"] = *bias;
    context->saved_data["transposed"] = is_transposed;
    context->saved_data["activation"] = static_cast<int64_t>(activation);
    context->saved_data["path"] = static_cast<int64_t>(path);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    auto& data = context->saved_data;
    const auto kept = [&](const char* name) {
      const auto found = data.find(name);
      return found == data.end() ? at::Tensor() : found->second.toTensor();
    };
    const at::Tensor& x = saved[0];
    const at::Tensor bias = kept("bias");
    const at::Tensor weight = saved[1].defined() ? saved[1] : kept("weight");
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const auto activation = static_cast<Activation>(data["activation"].toInt());
    const bool is_transposed = data["transposed"].toBool();
    if (c10::GradMode::is_enabled()) {
      variable_list result = derivable_gradients(x, {weight, bias, is_transposed, activation}, gradients[0]);
      result.resize(6);
      return result;
    }
    const at::AutoDispatchBelowADInplaceOrView no_views;
    const at::Tensor& copy = saved[3].defined() ? saved[3] : weight;
    const Product product{flat_rows(x), copy, is_transposed, activation, static_cast<CpuPath>(data["path"].toInt())};
    const bool wants_bias = bias.defined() && context->needs_input_grad(2);
    const at::Tensor of_y = flat_rows(gradients[0].contiguous());
    // ATen sums in its own order, whose bits are kept where it costs nothing.
    const bool sums_here = wants_bias && (activation != Activation::kNone || of_y.scalar_type() != at::kFloat);
    const at::Tensor activated = saved[2].defined() ? flat_rows(saved[2]) : at::Tensor();
    const Product::Summed summed = product.backward_to_product(activated, of_y, sums_here);
    variable_list result(6);
    const at::Tensor& of_product = summed.product;
    const bool is_sparse = activation == Activation::kRelu && !is_transposed &&
                           copy.scalar_type() == of_product.scalar_type() &&
                           has_many_zeros(of_product, product.x.size(1));
    if (context->needs_input_grad(0)) {
      const at::Tensor of_x = is_sparse ? sparse_product(of_product, copy)
                                        : product_of(of_product, is_transposed ? turned(copy) : copy, x.scalar_type());
      result[0] = with_sizes(of_x, x.sizes());
    }
    if (context->needs_input_grad(1)) {
      result[1] = is_transposed ? gradient_of(weight, turned(product.x), of_product, false)
                                : gradient_of(weight, turned(of_product), product.x, is_sparse);
    }
    if (wants_bias) result[2] = sums_here ? summed.bias.to(of_y.scalar_type()).to(at::kFloat) : of_y.sum(0);
    return result;
  }
};

}  // namespace

bool supports_linear_function(const at::Tensor& x, const LinearTerms& terms) {
  const at::Tensor &weight = terms.weight, &bias = terms.bias;
  if (!c10::GradMode::is_enabled() || x.dim() < 2 || x.numel() == 0 || weight.dim() != 2 || weight.numel() == 0)
    return false;
  if (!is_plain_cpu(x) || !type_of_product(x) || !is_dense_float(weight)) return false;
  const int64_t in = weight.size(terms.is_transposed ? 0 : 1), out = weight.size(terms.is_transposed ? 1 : 0);
  if (x.size(-1) != in) return false;
  if (bias.defined() && (!is_dense_float(bias) || bias.dim() != 1 || bias.size(0) != out)) return false;
  return learns(x) || learns(weight) || learns(bias);
}

at::Tensor linear_function(const at::Tensor& x, const LinearTerms& terms, CpuPath path) {
  const at::ScalarType type = *type_of_product(x);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  const at::Tensor own = (x.scalar_type() == type ? x : x.to(type)).contiguous();
  // What was made of parameters is cast by itself: it may go, which a parameter does not, and only its copy stays.
  const at::Tensor weight = terms.weight.is_leaf() ? terms.weight : terms.weight.to(type);
  return LinearFunction::apply(own, weight, optional_of(terms.bias), terms.is_transposed, terms.activation, path);
}

}  // namespace trainrun::kernels
