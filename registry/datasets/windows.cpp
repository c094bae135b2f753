#include <ATen/TensorOperators.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include "registry/catalog.h"
#include "registry/datasets/data_details.h"

namespace trainrun {
namespace {

struct Windows {
  Component<DatasetKind> dataset;
  int64_t length = 0;
  int64_t horizon = 1;
  int64_t stride = 1;

  static void describe(Fields<Windows>& f) {
    f.required("dataset", &Windows::dataset).doc("rows in the order of time, such as a CSV table's");
    f.required("length", &Windows::length).at_least(1).unit("rows").doc("length of the past that the model sees");
    f.optional("horizon", &Windows::horizon).at_least(1).unit("rows").doc("length of the future that it is to predict");
    f.optional("stride", &Windows::stride)
        .at_least(1)
        .unit("rows")
        .doc("distance from the beginning of one window to that of the next");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs& inputs) const;
};

/// A sample is `length` rows of the base, each field [length, …], and the targets of the `horizon` rows that follow.
/// The past of a target that is a number goes into `features`, behind the others.
class WindowsDataset : public Dataset, public DetailedDataset {
 public:
  WindowsDataset(const Windows& options, std::unique_ptr<Dataset> base) : options_(options), base_(std::move(base)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    const DatasetInfo rows = base_->info();
    info.target = rows.target;
    if (rows.num_samples) info.num_samples = windows_of(*rows.num_samples);
    const FieldInfo& target = target_of(rows);
    const bool with_past = has_past(target);
    bool has_features = false;
    for (const FieldInfo& row : rows.fields) {
      if (row.name == rows.target) continue;
      FieldInfo field = row;
      if (with_past && field.name == kFeatures && takes_past(field)) {
        field.shape[0] += 1;
        has_features = true;
      }
      field.shape.insert(field.shape.begin(), options_.length);
      info.fields.push_back(field);
    }
    if (with_past && !has_features) {
      info.fields.insert(info.fields.begin(), {kFeatures, {options_.length, 1}, target.dtype, std::nullopt});
    }
    FieldInfo future = target;
    future.shape.clear();
    if (with_past) future.shape = {options_.horizon};
    info.fields.push_back(future);
    return info;
  }

  void open() override {
    require_all_drawn(*base_, "Windows");
    base_->open();
    size_ = windows_of(base_->size());
    if (size_ > 0) return;
    throw DataError("Windows: " + std::to_string(base_->size()) + " rows hold no window of " +
                    std::to_string(options_.length) + " and the " + std::to_string(options_.horizon) + " after it");
  }
  int64_t size() const override { return size_; }

  Batch get(const at::Tensor& indices) const override {
    const int64_t n = indices.numel();
    const Batch past = base_->get(rows_of(indices, 0, options_.length).flatten());
    const std::string target = base_->info().target;
    const at::Tensor& targets = past.at(target);
    const bool with_past = targets.is_floating_point();
    Batch batch;
    const auto windows = [&](const at::Tensor& rows) {
      std::vector<int64_t> sizes = rows.sizes().vec();
      sizes[0] = options_.length;
      sizes.insert(sizes.begin(), n);
      return rows.reshape(sizes);
    };
    bool has_features = false;
    for (const Batch::Field& field : past.fields()) {
      if (field.name == target) continue;
      at::Tensor rows = field.tensor;
      if (with_past && field.name == kFeatures && rows.dim() == 2 && rows.is_floating_point()) {
        rows = at::cat({rows, targets.reshape({-1, 1})}, 1);
        has_features = true;
      }
      batch.set(field.name, windows(rows));
    }
    if (with_past && !has_features) batch.set(kFeatures, windows(targets.reshape({-1, 1})));
    const Batch future = base_->get(rows_of(indices, options_.length, options_.horizon).flatten());
    const at::Tensor& next = future.at(target);
    batch.set(target, with_past ? next.reshape({n, options_.horizon}) : next);
    return batch;
  }

  void learn(const at::Tensor& indices) override {
    const at::Tensor rows = rows_of(indices, 0, options_.length + options_.horizon);
    base_->learn(std::get<0>(at::_unique(rows, true)));
  }
  nlohmann::json learnt() const override { return base_->learnt(); }
  nlohmann::json inferred() const override { return inferred_of(*base_); }
  void set_inferred(const nlohmann::json& inferred) override { read_as_inferred(*base_, inferred); }
  /// Of the target its first row to come, of the others the first row of the past.
  std::string place(int64_t index, const std::string& field) const override {
    const bool is_target = field == base_->info().target;
    return place_of_sample(*base_, index * options_.stride + (is_target ? options_.length : 0), field);
  }
  std::vector<std::string> names_within(const std::string& field) const override {
    std::vector<std::string> names = names_within_field(*base_, field);
    const DatasetInfo rows = base_->info();
    if (field == kFeatures && has_past(*rows.find(rows.target))) names.push_back(rows.target);
    return names;
  }
  void set_learnt(const nlohmann::json& state) override { base_->set_learnt(state); }

 private:
  static constexpr const char* kFeatures = "features";

  int64_t windows_of(int64_t rows) const {
    const int64_t room = rows - options_.length - options_.horizon;
    return room < 0 ? 0 : room / options_.stride + 1;
  }
  /// [N, count]: the rows from `offset` on of each window.
  at::Tensor rows_of(const at::Tensor& indices, int64_t offset, int64_t count) const {
    return (indices * options_.stride).unsqueeze(1) + at::arange(offset, offset + count, at::kLong);
  }
  static bool has_past(const FieldInfo& target) { return at::isFloatingType(target.dtype); }
  static bool takes_past(const FieldInfo& features) {
    return features.shape.size() == 1 && at::isFloatingType(features.dtype);
  }
  const FieldInfo& target_of(const DatasetInfo& rows) const {
    const FieldInfo& target = *rows.find(rows.target);
    const bool single = target.shape.empty() || target.shape == std::vector<int64_t>{1};
    if (!single) throw DataError("Windows: '" + target.name + "' must be one number or class in each row");
    if (!has_past(target) && options_.horizon > 1) {
      throw DataError("Windows: one class is predicted, that of the next row; horizon must be 1");
    }
    return target;
  }

  Windows options_;
  std::unique_ptr<Dataset> base_;
  int64_t size_ = 0;
};

std::unique_ptr<Dataset> Windows::build(const DatasetInputs& inputs) const {
  return std::make_unique<WindowsDataset>(*this, dataset.build(inputs));
}

}  // namespace

void add_windows(DatasetRegistry& datasets) {
  datasets.add<Windows>("Windows", "the rows of another data set as sliding windows: forecasts of what comes next");
}

}  // namespace trainrun
