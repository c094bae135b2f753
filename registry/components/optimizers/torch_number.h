#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sqrt.h>

#include <cmath>
#include <compare>

namespace trainrun {

/// A number that rounds as in torch.optim.LBFGS, where it is a Python float or, if computed from a tensor, a tensor
/// without dimensions. A Python float that meets a float32 tensor, be it in a comparison, is rounded to float32. That
/// decides where a line search goes: a step of float32(0.025) is above the lower bound 0.025, yet PyTorch takes them
/// for equal. Operations are computed in float64 and then rounded, which for float32 gives the same as one rounding.
class TorchNumber {
 public:
  enum class Kind { kPythonFloat, kFloat32, kFloat64 };

  TorchNumber(double value = 0, Kind kind = Kind::kPythonFloat)  // NOLINT(google-explicit-constructor)
      : value_(kind == Kind::kFloat32 ? static_cast<float>(value) : value), kind_(kind) {}
  /// What a float32 or float64 tensor of one element holds.
  static TorchNumber of(const at::Tensor& tensor) {
    return {tensor.item<double>(), tensor.scalar_type() == at::kDouble ? Kind::kFloat64 : Kind::kFloat32};
  }

  double value() const { return value_; }

  friend TorchNumber operator+(TorchNumber a, TorchNumber b) {
    convert(a, b);
    return {a.value_ + b.value_, a.kind_};
  }
  friend TorchNumber operator-(TorchNumber a, TorchNumber b) {
    convert(a, b);
    return {a.value_ - b.value_, a.kind_};
  }
  friend TorchNumber operator*(TorchNumber a, TorchNumber b) {
    convert(a, b);
    return {a.value_ * b.value_, a.kind_};
  }
  /// PyTorch divides a Python float by a tensor by multiplying it by the tensor's reciprocal.
  friend TorchNumber operator/(TorchNumber a, TorchNumber b) {
    if (!a.is_tensor() && b.is_tensor()) return TorchNumber(1 / b.value_, b.kind_) * a;
    convert(a, b);
    return {a.value_ / b.value_, a.kind_};
  }
  TorchNumber operator-() const { return {-value_, kind_}; }
  friend std::partial_ordering operator<=>(TorchNumber a, TorchNumber b) {
    convert(a, b);
    return a.value_ <=> b.value_;
  }
  friend TorchNumber abs(TorchNumber a) { return {std::abs(a.value_), a.kind_}; }
  /// LibTorch's, which is not always the nearest number.
  friend TorchNumber sqrt(TorchNumber a) {
    const auto dtype = a.kind_ == Kind::kFloat32 ? at::kFloat : at::kDouble;
    return {at::scalar_tensor(a.value_, dtype).sqrt().item<double>(), a.kind_};
  }

 private:
  bool is_tensor() const { return kind_ != Kind::kPythonFloat; }
  /// Makes a Python float that meets a tensor one of the same dtype.
  static void convert(TorchNumber& a, TorchNumber& b) {
    if (!a.is_tensor()) a = {a.value_, b.kind_};
    if (!b.is_tensor()) b = {b.value_, a.kind_};
  }

  double value_;
  Kind kind_;
};

}  // namespace trainrun
