#include <ATen/ops/diag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_qr.h>

#include <cmath>

#include "registry/kinds/initializer.h"
#include "registry/kinds/layer.h"

namespace trainrun {
namespace {

/// Inputs and outputs of one position of a weight [out, in, …]. Throws LayerError for fewer than two dimensions.
struct Fans {
  explicit Fans(const at::Tensor& weight) {
    if (weight.dim() < 2) throw LayerError("fan in and fan out need two dimensions or more");
    const int64_t receptive_field = weight[0][0].numel();
    in = static_cast<double>(weight.size(1) * receptive_field);
    out = static_cast<double>(weight.size(0) * receptive_field);
  }
  double in;
  double out;
};

/// torch.nn.init.calculate_gain
double calculate_gain(const std::string& nonlinearity, double negative_slope) {
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2.0 / (1 + negative_slope * negative_slope));
  if (nonlinearity == "selu") return 0.75;
  return 1;
}

struct Uniform {
  double a = 0;
  double b = 1;
  static void describe(Fields<Uniform>& f) {
    f.optional("a", &Uniform::a).doc("the lower bound");
    f.optional("b", &Uniform::b).doc("the upper bound");
  }
  void check(Checker& checker) const {
    if (a > b) checker.fail("a", "must not be above b");
  }
  Initializer build(const InitializerInputs&) const {
    return [a = a, b = b](const at::Tensor& parameter) { parameter.uniform_(a, b); };
  }
};

struct Normal {
  double mean = 0;
  double std = 1;
  static void describe(Fields<Normal>& f) {
    f.optional("mean", &Normal::mean).doc("of the normal distribution");
    f.optional("std", &Normal::std).at_least(0).doc("its standard deviation");
  }
  Initializer build(const InitializerInputs&) const {
    return [mean = mean, std = std](const at::Tensor& parameter) { parameter.normal_(mean, std); };
  }
};

struct TruncNormal {
  double mean = 0;
  double std = 1;
  double a = -2;
  double b = 2;
  static void describe(Fields<TruncNormal>& f) {
    f.optional("mean", &TruncNormal::mean).doc("of the normal distribution");
    f.optional("std", &TruncNormal::std).greater_than(0).doc("its standard deviation");
    f.optional("a", &TruncNormal::a).doc("the lowest value that is drawn");
    f.optional("b", &TruncNormal::b).doc("the highest value that is drawn");
  }
  void check(Checker& checker) const {
    if (a > b) checker.fail("a", "must not be above b");
  }
  /// By the inverse of the distribution function, as torch.nn.init.trunc_normal_.
  Initializer build(const InitializerInputs&) const {
    const auto distribution = [](double x) { return (1 + std::erf(x / std::sqrt(2.0))) / 2; };
    const double low = distribution((a - mean) / std);
    const double high = distribution((b - mean) / std);
    return [=, *this](const at::Tensor& parameter) {
      parameter.uniform_(2 * low - 1, 2 * high - 1).erfinv_().mul_(std * std::sqrt(2.0)).add_(mean).clamp_(a, b);
    };
  }
};

struct Constant {
  double val = 0;
  static void describe(Fields<Constant>& f) { f.required("val", &Constant::val).doc("value of every element"); }
  Initializer build(const InitializerInputs&) const {
    return [val = val](const at::Tensor& parameter) { parameter.fill_(val); };
  }
};

template <int kValue>
struct Fill {
  static void describe(Fields<Fill>&) {}
  Initializer build(const InitializerInputs&) const {
    return [](const at::Tensor& parameter) { parameter.fill_(kValue); };
  }
};

/// Normal, or uniform with the same variance. Source: Glorot & Bengio 2010.
template <bool kNormal>
struct Xavier {
  double gain = 1;
  static void describe(Fields<Xavier>& f) { f.optional("gain", &Xavier::gain).doc("scales the values"); }
  Initializer build(const InitializerInputs&) const {
    return [gain = gain](const at::Tensor& parameter) {
      const Fans fans(parameter);
      const double std = gain * std::sqrt(2.0 / (fans.in + fans.out));
      const double bound = std::sqrt(3.0) * std;
      kNormal ? parameter.normal_(0, std) : parameter.uniform_(-bound, bound);
    };
  }
};

/// Normal, or uniform with the same variance. Source: He et al. 2015.
template <bool kNormal>
struct Kaiming {
  double a = 0;
  std::string mode = "fan_in";
  std::string nonlinearity = "leaky_relu";
  static void describe(Fields<Kaiming>& f) {
    f.optional("a", &Kaiming::a).doc("negative slope of the leaky_relu that follows");
    f.optional("mode", &Kaiming::mode)
        .one_of({"fan_in", "fan_out"})
        .doc("keep the variance in the forward pass, or in the backward pass");
    f.optional("nonlinearity", &Kaiming::nonlinearity)
        .one_of({"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
                 "sigmoid", "tanh", "relu", "leaky_relu", "selu"})
        .doc("the function that follows");
  }
  Initializer build(const InitializerInputs&) const {
    return [*this](const at::Tensor& parameter) {
      const Fans fans(parameter);
      const double std = calculate_gain(nonlinearity, a) / std::sqrt(mode == "fan_in" ? fans.in : fans.out);
      const double bound = std::sqrt(3.0) * std;
      kNormal ? parameter.normal_(0, std) : parameter.uniform_(-bound, bound);
    };
  }
};

struct Orthogonal {
  double gain = 1;
  static void describe(Fields<Orthogonal>& f) { f.optional("gain", &Orthogonal::gain).doc("scales the matrix"); }
  /// Source: Saxe et al. 2013; the operations, in their order, of torch.nn.init.orthogonal_.
  Initializer build(const InitializerInputs&) const {
    return [gain = gain](const at::Tensor& parameter) {
      if (parameter.dim() < 2) throw LayerError("an orthogonal matrix needs two dimensions or more");
      if (parameter.numel() == 0) return;
      const int64_t rows = parameter.size(0);
      const int64_t columns = parameter.numel() / rows;
      at::Tensor drawn = at::empty({rows, columns}, parameter.options()).normal_(0, 1);
      if (rows < columns) drawn.t_();
      auto [q, r] = at::linalg_qr(drawn);
      q.mul_(at::diag(r, 0).sign());
      if (rows < columns) q.t_();
      parameter.view_as(q).copy_(q);
      parameter.mul_(gain);
    };
  }
};

struct Eye {
  static void describe(Fields<Eye>&) {}
  Initializer build(const InitializerInputs&) const {
    return [](const at::Tensor& parameter) {
      if (parameter.dim() != 2) throw LayerError("an identity matrix has two dimensions");
      parameter.copy_(at::eye(parameter.size(0), parameter.size(1), parameter.options()));
    };
  }
};

}  // namespace

void add_initializers(InitializerRegistry& initializers) {
  initializers.add<Uniform>("Uniform", "drawn evenly between a and b");
  initializers.add<Normal>("Normal", "drawn from a normal distribution");
  initializers.add<TruncNormal>("TruncNormal", "drawn from a normal distribution, within a and b");
  initializers.add<Constant>("Constant", "one value everywhere");
  initializers.add<Fill<0>>("Zeros", "zero everywhere");
  initializers.add<Fill<1>>("Ones", "one everywhere");
  initializers.add<Xavier<false>>("XavierUniform", "uniform, scaled by fan in and fan out (Glorot)");
  initializers.add<Xavier<true>>("XavierNormal", "normal, scaled by fan in and fan out (Glorot)");
  initializers.add<Kaiming<false>>("KaimingUniform", "uniform, scaled by fan in or fan out (He)");
  initializers.add<Kaiming<true>>("KaimingNormal", "normal, scaled by fan in or fan out (He)");
  initializers.add<Orthogonal>("Orthogonal", "an orthogonal matrix");
  initializers.add<Eye>("Eye", "the identity matrix");
}

}  // namespace trainrun
