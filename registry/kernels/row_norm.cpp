#include "registry/kernels/row_norm.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <optional>

#include "registry/kernels/bernoulli.h"
#include "registry/kernels/parts.h"
#include "registry/kernels/plain_tensor.h"
#include "registry/kernels/row_norm_simd.h"

namespace trainrun::kernels {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const float* floats(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr<float>() : nullptr; }
float* floats_to(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr<float>() : nullptr; }
const uint16_t* halves(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const uint16_t*>(tensor.const_data_ptr()) : nullptr;
}
uint16_t* halves_to(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<uint16_t*>(tensor.mutable_data_ptr()) : nullptr;
}
bool is_half(const at::Tensor& tensor) { return tensor.defined() && tensor.scalar_type() == at::kBFloat16; }

/// One norm: its sizes, and the tensors that both passes read.
struct Norm {
  NormShape shape;
  at::Tensor weight, bias;
  at::Tensor kept;  // 1 where a dropout keeps what is added; undefined: there is none
  double eps, dropout;
  CpuPath path;

  Norm(const at::Tensor& x, const NormTerms& terms, at::Tensor dropped, double probability, CpuPath by)
      : shape{x.size(-1), static_cast<float>(terms.eps), terms.is_rms},
        weight(terms.weight),
        bias(terms.bias),
        kept(std::move(dropped)),
        eps(terms.eps),
        dropout(probability),
        path(by) {}

  float kept_scale() const { return 1.0F / static_cast<float>(1 - dropout); }  // rounded as ATen rounds it

  AddedRows added(const at::Tensor& tensor) const {
    const bool half = is_half(tensor);
    return {half ? nullptr : floats(tensor), half ? halves(tensor) : nullptr,
            kept.defined() ? static_cast<const uint8_t*>(kept.const_data_ptr()) : nullptr, kept_scale()};
  }
  int64_t rows_of(const at::Tensor& x) const { return x.numel() / shape.features; }

  struct Forward {
    Normalized out;
    at::Tensor statistics;  // [2, rows]: means and factors
  };

  Forward forward(const at::Tensor& x, const at::Tensor& addend, bool wants_plain, bool wants_half) const {
    Forward made;
    if (wants_plain) made.out.y = at::empty_like(x);
    if (wants_half) made.out.half = at::empty(x.sizes(), x.options().dtype(at::kBFloat16));
    if (addend.defined()) made.out.sum = at::empty_like(x);
    const int64_t rows = rows_of(x);
    made.statistics = at::empty({2, rows}, x.options());
    float* const statistics = floats_to(made.statistics);
    const NormForward pass{floats(x),        added(addend),         floats_to(made.out.sum),  floats(weight),
                           floats(bias),     floats_to(made.out.y), halves_to(made.out.half), statistics,
                           statistics + rows};
    at::parallel_for(0, rows, rows_of_thread(shape.features), [&](int64_t begin, int64_t end) {
      TRAINRUN_LOOP_OF(path, norm_forward)(shape, pass, begin, end);
    });
    return made;
  }

  struct Given {
    at::Tensor y, half, sum;  // gradients; undefined: 0
  };
  struct Gradients {
    at::Tensor x, addend, weight, bias;
  };

  /// `x`: what was normalized. `of`: what was added, if anything was; only its type is read.
  Gradients backward(const at::Tensor& x, const at::Tensor& statistics, const Given& given,
                     std::optional<at::ScalarType> of, bool wants_addend) const {
    Gradients made;
    made.x = at::empty_like(x);
    if (wants_addend && of == at::kBFloat16) made.addend = at::empty(x.sizes(), x.options().dtype(at::kBFloat16));
    if (wants_addend && of == at::kFloat && kept.defined()) made.addend = at::empty_like(x);
    const int64_t rows = rows_of(x), parts = std::clamp<int64_t>(rows / 8, 1, kMostParts);
    const at::Tensor sums = at::empty({2, parts, shape.features}, x.options());
    const bool half = is_half(made.addend);
    const float* const means = floats(statistics);
    at::parallel_for(0, parts, std::max<int64_t>(1, parts * kNumbersOfThread / std::max<int64_t>(1, x.numel())),
                     [&](int64_t begin, int64_t end) {
                       const at::Tensor scratch = at::empty({shape.features}, at::kFloat);
                       for (int64_t part = begin; part < end; ++part) {
                         float* const own = floats_to(sums) + part * shape.features;
                         float* const of_weight = weight.defined() ? own : nullptr;
                         float* const of_bias = bias.defined() ? own + parts * shape.features : nullptr;
                         for (float* const sum : {of_weight, of_bias}) {
                           if (sum != nullptr) std::fill_n(sum, shape.features, 0.0F);
                         }
                         const NormBackward pass{floats(x),
                                                 means,
                                                 means + rows,
                                                 floats(weight),
                                                 floats(given.y),
                                                 halves(given.half),
                                                 floats(given.sum),
                                                 floats_to(made.x),
                                                 added({}),
                                                 half ? nullptr : floats_to(made.addend),
                                                 half ? halves_to(made.addend) : nullptr,
                                                 of_weight,
                                                 of_bias};
                         TRAINRUN_LOOP_OF(path, norm_backward)
                         (shape, pass, rows * part / parts, rows * (part + 1) / parts, floats_to(scratch));
                       }
                     });
    const auto summed = [&](int64_t which) {
      return sum_of_parts(floats(sums) + which * parts * shape.features, parts, shape.features);
    };
    const bool reaches_norm = given.y.defined() || given.half.defined();  // else a loss reads the sum alone
    if (reaches_norm && weight.defined()) made.weight = summed(0);
    if (reaches_norm && bias.defined()) made.bias = summed(1);
    if (wants_addend && !made.addend.defined()) made.addend = made.x;
    return made;
  }
};

/// By ATen's operations, which have derivatives themselves. `normalized` is what was normalized. Its gradient is that of
/// another name for it, and so are the others: the search for them ends there, and does not go on to what it was made of.
Norm::Gradients derivable_gradients(const Norm& norm, const at::Tensor& normalized, const Norm::Given& given,
                                    std::optional<at::ScalarType> of) {
  Norm::Gradients made;
  at::Tensor of_y = given.y;
  if (given.half.defined()) {
    const at::Tensor wide = given.half.to(at::kFloat);
    of_y = of_y.defined() ? of_y + wide : wide;
  }
  made.x = given.sum;
  if (of_y.defined()) {
    const auto alias = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.view_as(tensor) : tensor; };
    const at::Tensor sum = alias(normalized), weight = alias(norm.weight), bias = alias(norm.bias);
    const at::IntArrayRef sizes = norm.shape.features;
    const at::Tensor y = norm.shape.is_rms
                             ? at::rms_norm(sum, sizes, optional_of(weight), norm.eps)
                             : at::layer_norm(sum, sizes, optional_of(weight), optional_of(bias), norm.eps);
    variable_list inputs = {sum};
    for (const at::Tensor& parameter : {weight, bias}) {
      if (parameter.defined()) inputs.push_back(parameter);
    }
    const variable_list gradients = torch::autograd::grad({y}, inputs, {of_y}, std::nullopt, true, true);
    made.x = made.x.defined() ? made.x + gradients[0] : gradients[0];
    if (norm.weight.defined()) made.weight = gradients[1];
    if (norm.bias.defined()) made.bias = gradients.back();
  }
  if (!of || !made.x.defined()) return made;
  made.addend = norm.kept.defined() ? made.x * norm.kept * norm.kept_scale() : made.x;
  made.addend = made.addend.to(*of);
  return made;
}

struct RowNorm : torch::autograd::Function<RowNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& addend,
                               const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias,
                               const Norm& norm, bool wants_plain, bool wants_half) {
    const at::AutoDispatchBelowADInplaceOrView no_views;  // which autograd would keep account of, for nobody
    const at::Tensor added = addend.value_or(at::Tensor());
    const Norm::Forward made = norm.forward(x, added, wants_plain, wants_half);
    const at::Tensor& normalized = added.defined() ? made.out.sum : x;
    context->save_for_backward(
        {normalized, weight.value_or(at::Tensor()), bias.value_or(at::Tensor()), norm.kept, made.statistics});
    context->set_materialize_grads(false);
    auto& data = context->saved_data;
    data["eps"] = norm.eps;
    data["is_rms"] = norm.shape.is_rms;
    data["dropout"] = norm.dropout;
    data["path"] = static_cast<int64_t>(norm.path);
    data["outputs"] = (wants_plain ? 1 : 0) + (wants_half ? 2 : 0);
    if (added.defined()) data["added"] = static_cast<int64_t>(added.scalar_type());
    variable_list outputs;
    for (const at::Tensor& output : {made.out.y, made.out.half, made.out.sum}) {
      if (output.defined()) outputs.push_back(output);
    }
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& data = context->saved_data;
    const variable_list saved = context->get_saved_variables();
    const NormTerms terms{saved[1], saved[2], data["eps"].toDouble(), data["is_rms"].toBool()};
    const Norm norm(saved[0], terms, saved[3], data["dropout"].toDouble(), static_cast<CpuPath>(data["path"].toInt()));
    const int64_t outputs = data["outputs"].toInt();
    std::optional<at::ScalarType> added;
    if (data.find("added") != data.end()) added = static_cast<at::ScalarType>(data["added"].toInt());
    size_t next = 0;
    const auto taken = [&](bool is_there) { return is_there ? gradients[next++] : at::Tensor(); };
    Norm::Given given;
    given.y = taken((outputs & 1) != 0);
    given.half = taken((outputs & 2) != 0);
    given.sum = taken(added.has_value());
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    Norm::Gradients made;
    if (c10::GradMode::is_enabled()) {
      made = derivable_gradients(norm, saved[0], given, added);
    } else {
      const at::AutoDispatchBelowADInplaceOrView no_views;
      for (at::Tensor* const gradient : {&given.y, &given.half, &given.sum}) {
        if (gradient->defined()) *gradient = gradient->contiguous();
      }
      made = norm.backward(saved[0], saved[4], given, added, added && context->needs_input_grad(1));
    }
    return {made.x, made.addend, made.weight, made.bias, {}, {}, {}};
  }
};

bool is_vector(const at::Tensor& tensor, int64_t features) {
  return !tensor.defined() || (is_plain_cpu(tensor) && tensor.scalar_type() == at::kFloat && tensor.dim() == 1 &&
                               tensor.size(0) == features && tensor.is_contiguous());
}

}  // namespace

bool supports_row_norm(const at::Tensor& x, const NormAddend& addend, const NormTerms& terms) {
  const at::Tensor& added = addend.tensor;
  const bool fits = is_plain_cpu(x) && x.scalar_type() == at::kFloat && x.dim() > 0 && x.numel() > 0 &&
                    x.is_contiguous() && is_vector(terms.weight, x.size(-1)) && is_vector(terms.bias, x.size(-1));
  if (!fits || !added.defined()) return fits;
  return is_plain_cpu(added) && (added.scalar_type() == at::kFloat || is_half(added)) && added.is_contiguous() &&
         added.sizes() == x.sizes() && addend.dropout >= 0 && addend.dropout < 1;
}

Normalized row_norm(const at::Tensor& x, const NormAddend& addend, const NormTerms& terms, bool wants_plain,
                    bool wants_half, CpuPath path) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
  at::Tensor kept;
  if (addend.tensor.defined() && addend.dropout > 0 && addend.kept.defined()) {
    kept = addend.kept;
  } else if (addend.tensor.defined() && addend.dropout > 0) {
    kept = at::empty(x.sizes(), x.options().dtype(at::kByte));
    bernoulli(kept, 1 - addend.dropout, std::nullopt);
  }
  const Norm norm(x, terms, kept, addend.dropout, path);
  const auto learns = [](const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
  const bool is_trained = learns(x) || learns(addend.tensor) || learns(terms.weight) || learns(terms.bias);
  if (!c10::GradMode::is_enabled() || !is_trained) {
    return norm.forward(x, addend.tensor, wants_plain, wants_half).out;
  }
  const variable_list made = RowNorm::apply(x, optional_of(addend.tensor), optional_of(terms.weight),
                                            optional_of(terms.bias), norm, wants_plain, wants_half);
  size_t next = 0;
  Normalized out;
  if (wants_plain) out.y = made[next++];
  if (wants_half) out.half = made[next++];
  if (addend.tensor.defined()) out.sum = made[next];
  return out;
}

}  // namespace trainrun::kernels
