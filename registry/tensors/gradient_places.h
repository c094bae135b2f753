#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trainrun {

/// Memory in which the gradients of parameters are wanted, such as the buckets that DataParallel adds up over ranks. A
/// kernel that computes a gradient may write it there (`take_gradient_place`), which saves a copy; nobody has to.
class GradientPlaces {
 public:
  GradientPlaces() = default;
  ~GradientPlaces();
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;

  /// `place`: of the parameter's shape and dtype, without gaps. Once a parameter.
  void add(const at::Tensor& parameter, const at::Tensor& place);
  /// Before each backward pass: all may be taken again.
  void release();

 private:
  std::vector<at::Tensor> parameters_;
};

/// The memory for this parameter's gradient, with any numbers in it: another name, so that autograd keeps it as it is.
/// Undefined where none is wanted, where the pass has taken it already (the parameter is read twice, and its gradients
/// are added up), and where the parameter has a gradient, which is added to.
at::Tensor take_gradient_place(const at::Tensor& parameter);

/// The gradient that this parameter has, of float32 and without gaps, if a kernel may add to it, and give autograd an
/// undefined one instead: nobody would see it. Undefined where there is none, where hooks wait for gradients, where they
/// are wanted in other memory, and in a backward pass for some inputs only (`grad`) or one that is differentiated itself.
at::Tensor gradient_to_add_to(const at::Tensor& parameter);

/// Makes `gradient`, which nobody else holds, the parameter's first, so that others in the same backward pass may add to
/// it; false, and nothing is done, where there is one, or where the function above could not have it.
bool begin_gradient(const at::Tensor& parameter, const at::Tensor& gradient);

}  // namespace trainrun
