#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "registry/components/transforms/fields.h"
#include "registry/components/transforms/scaling.h"
#include "registry/kinds/layer_shapes.h"
#include "registry/kinds/padding_mask.h"
#include "registry/kinds/transform.h"

namespace trainrun {
namespace {

struct Standardize {
  std::string field = "features";
  bool with_mean = true;
  bool with_std = true;
  int64_t dim = 1;

  static void describe(Fields<Standardize>& f) {
    f.optional("field", &Standardize::field)
        .doc("the field of the batch to change: each number of [N, F], each channel of [N, C, …]");
    f.optional("dim", &Standardize::dim)
        .doc(
            "the dimension whose entries each have a mean of their own: 1 for channels, -1 for the features of [N, L, "
            "F]; lists of numbers of unequal length, [N, L], have one mean. Padding neither counts nor is changed");
    f.optional("with_mean", &Standardize::with_mean).doc("subtract the training samples' mean");
    f.optional("with_std", &Standardize::with_std).doc("divide by their standard deviation; where that is 0, by 1");
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const;
};

std::vector<double> list_of(const at::Tensor& numbers) {
  const at::Tensor all = numbers.contiguous();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

/// Mean and standard deviation (of the population, as scikit-learn's StandardScaler) of the training samples, in double
/// precision.
class StandardizeTransform : public Transform, public ScalesNumbers {
 public:
  explicit StandardizeTransform(Standardize options) : options_(std::move(options)) {}

  void describe(DatasetInfo& info) const override {
    const FieldInfo& field = float_field(info, options_.field, "Standardize");
    const auto dims = static_cast<int64_t>(field.shape.size()) + 1;
    const bool fits = dims == 1 ? options_.dim == 1 : dim_of(dims) >= 1 && dim_of(dims) < dims;
    if (dims > 2 && dim_of(dims) == 1 && info.find(mask_name(field.name))) {
      throw LayerError("Standardize: '" + field.name + "' holds lists of unequal length, whose items dim 1 counts; " +
                       "write dim: -1 for a mean of each number of an item");
    }
    if (!fits) {
      throw LayerError("Standardize: dim " + std::to_string(options_.dim) + " of '" + field.name + "' " +
                       batch_text(field.shape) + " is " +
                       (dim_of(dims) == 0 ? "the batch" : "not one of its dimensions"));
    }
  }

  void apply(Batch& batch, const SampleDraws&) const override {
    at::Tensor& field = batch.at(options_.field);
    if (!mean_.defined()) throw Error("Standardize: has not seen the training samples yet");
    std::vector<int64_t> shape(static_cast<size_t>(std::max<int64_t>(field.dim() - 1, 0)), 1);  // [C, 1, 1]
    const int64_t dim = dim_of(field.dim());
    const at::Tensor items = items_of(batch, options_.field);
    const bool is_one = items.defined() && field.dim() == 2;
    if (!shape.empty()) shape[static_cast<size_t>(dim - 1)] = mean_.numel();
    const auto of_channels = [&](const at::Tensor& numbers) { return numbers.to(field.scalar_type()).view(shape); };
    if (!shape.empty() && (is_one ? 1 : field.size(dim)) != mean_.numel()) {
      throw DataError("Standardize: '" + options_.field + "' has " + std::to_string(field.size(dim)) +
                      " channels, those of the training samples had " + std::to_string(mean_.numel()));
    }
    const at::Tensor padding = field;
    if (options_.with_mean) field = field.sub(of_channels(mean_));
    if (options_.with_std) field = field.div(of_channels(std_));
    if (items.defined()) field = at::where(beside(items, field), field, padding);
    field = field.to(at::kFloat);  // numbers with more digits than float32 has come here in float64
  }

  bool learns() const override { return true; }

  /// Chan, Golub, LeVeque 1979: means and sums of squares of batches, merged.
  void learn(const std::function<std::optional<Batch>()>& next) override {
    double count = 0;
    at::Tensor mean;
    at::Tensor squares;
    while (const auto batch = next()) {
      const at::Tensor rows = numbers_of(*batch);
      const auto number = static_cast<double>(rows.size(0));
      if (number == 0) continue;  // empty lists
      const at::Tensor own_mean = rows.mean(0);
      const at::Tensor own_squares = (rows - own_mean).square().sum(0);
      if (!mean.defined()) {
        mean = at::zeros_like(own_mean);
        squares = at::zeros_like(own_mean);
      }
      const at::Tensor difference = own_mean - mean;
      const double together = count + number;
      mean = mean + difference * (number / together);
      squares = squares + own_squares + difference.square() * (count * number / together);
      count = together;
    }
    if (count == 0) throw DataError("Standardize: there are no training samples");
    set(mean, (squares / count).sqrt());
  }

  std::optional<Scaling> scaling(const std::string& field, int64_t dims) const override {
    if (field != options_.field || !mean_.defined()) return std::nullopt;
    Scaling scaling{std::vector<double>(static_cast<size_t>(mean_.numel()), 1),
                    std::vector<double>(static_cast<size_t>(mean_.numel()), 0), dims > 0 ? dims - dim_of(dims + 1) : 0};
    if (options_.with_std) scaling.scale = list_of(std_);
    if (options_.with_mean) scaling.offset = list_of(mean_);
    return scaling;
  }

  nlohmann::json learnt() const override {
    if (!mean_.defined()) return nullptr;
    return {{"mean", list_of(mean_)}, {"std", list_of(std_)}};
  }
  void set_learnt(const nlohmann::json& state) override {
    try {
      set(at::tensor(state.at("mean").get<std::vector<double>>(), at::kDouble),
          at::tensor(state.at("std").get<std::vector<double>>(), at::kDouble));
    } catch (const nlohmann::json::exception& error) {
      throw DataError(std::string("Standardize: its part of the checkpoint cannot be read: ") + error.what());
    }
  }

 private:
  /// [numbers, C], without padding.
  at::Tensor numbers_of(const Batch& batch) const {
    const at::Tensor field = batch.at(options_.field).to(at::kDouble);
    const int64_t dim = dim_of(field.dim());
    const at::Tensor items = items_of(batch, options_.field);
    if (!items.defined()) return field.dim() == 1 ? field.unsqueeze(1) : field.movedim(dim, 0).flatten(1).t();
    const at::Tensor chosen = field.flatten(0, 1).index_select(0, items.flatten().nonzero().flatten());  // [items, …]
    return chosen.dim() == 1 ? chosen.unsqueeze(1) : chosen.movedim(dim - 1, 0).flatten(1).t();
  }
  int64_t dim_of(int64_t dims) const { return options_.dim < 0 ? options_.dim + dims : options_.dim; }
  void set(const at::Tensor& mean, const at::Tensor& std) {
    mean_ = mean;
    std_ = at::where(std == 0, at::tensor(1.0, at::kDouble), std);
  }

  Standardize options_;
  at::Tensor mean_;  // [C] float64
  at::Tensor std_;   // [C] float64
};

std::unique_ptr<Transform> Standardize::build(const TransformInputs&) const {
  return std::make_unique<StandardizeTransform>(*this);
}

}  // namespace

void add_standardize(TransformRegistry& transforms) {
  transforms.add<Standardize>("Standardize", "(x - mean) / std of the training samples, each number or channel");
}

}  // namespace trainrun
