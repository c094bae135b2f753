#pragma once

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <vector>

#include "registry/kinds/batch.h"
#include "registry/kinds/sample_draws.h"
#include "registry/language/registry.h"

namespace trainrun {

struct DatasetFacts;

/// Samples by index. Constructing a data set opens nothing; `open` reads the files.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Fields, shapes and target. Opens no data, unless the recipe leaves types to be inferred from them; throws
  /// DataError if these data are missing.
  virtual DatasetInfo info() const = 0;
  /// Reads, or makes ready to read. Throws DataError naming file and cause. Called once, before size and get.
  virtual void open() = 0;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// The samples at `indices` ([N] int64, on the CPU), as one batch. Safe to call from several threads.
  virtual Batch get(const at::Tensor& indices) const = 0;
  /// The same for data sets that change samples at random as they read them; row i of `draws` is for `indices[i]`.
  /// Most data sets draw nothing.
  virtual Batch get_drawn(const at::Tensor& indices, const SampleDraws& draws) const;

  /// Learns from the samples at `indices` how all are read: categories, and what replaces missing values. Called once,
  /// after open and before get, for training data; other data use what they learnt. Most data sets learn nothing.
  virtual void learn(const at::Tensor& indices);
  /// What was learnt, as checkpoints keep it; null for nothing.
  virtual nlohmann::json learnt() const;
  /// Called instead of `learn`. Throws DataError if `state` is of another data set.
  virtual void set_learnt(const nlohmann::json& state);

  /// One field of all samples ([size(), …]), for samplers and splits. Throws Error, which names the existing fields.
  virtual at::Tensor column(const std::string& field) const;
  /// How often each sample is drawn in training, relative to the others ([size()] float64); undefined if all alike.
  virtual at::Tensor sampling_weights() const;

  /// What else is known of the data: see dataset_facts.h. Other answers may follow once they are open, or have learnt.
  /// Most data sets know nothing.
  virtual DatasetFacts facts() const;
  /// Has data that would infer from their files how these are to be read be read as other data, whose
  /// `facts().inferred` is given; before `info` and `open`. It then gives that back, as it does of all data that the same
  /// component builds. Null, or data that do not infer: nothing is done.
  virtual void set_inferred(const nlohmann::json& inferred);
};

/// A data set held as tensors with one row for each sample; images may be kept as bytes and are returned as float32 in
/// [0, 1].
class TensorDataset : public Dataset {
 public:
  int64_t size() const override;
  Batch get(const at::Tensor& indices) const override;
  at::Tensor column(const std::string& field) const override;
  DatasetFacts facts() const override;

 protected:
  /// Sets field `name` to `rows` [n, …]; with `divisor` > 0 they are bytes, returned as float32 divided by it.
  void set_field(const std::string& name, at::Tensor rows, double divisor = 0);

 private:
  struct Rows {
    std::string name;
    at::Tensor tensor;
    double divisor;
  };
  std::vector<Rows> fields_;
};

struct DatasetInputs {
  /// Seed of the run, for data that are drawn.
  uint64_t seed = 0;
  /// Whether the rows may hold nothing but the target: a series is forecast from its own past.
  bool target_alone = false;
  /// Columns that tell rows apart, such as those of a series' times: they are no features of rows, unless the recipe
  /// names them among the features or says what they hold.
  std::vector<std::string> no_features = {};
};

/// The parameters that every data set has.
struct DatasetCommon {
  std::optional<std::variant<int64_t, std::vector<int64_t>>> subset;
  static void describe(Fields<DatasetCommon>& f) {
    f.optional("subset", &DatasetCommon::subset)
        .at_least(0)
        .doc("use only this many samples, the first ones; or the samples with these numbers, in this order");
  }
};

struct DatasetKind {
  static constexpr const char* kName = "dataset";
  using Inputs = DatasetInputs;
  using Product = std::unique_ptr<Dataset>;
  using Common = DatasetCommon;
  /// Makes `build` return the subset, if the recipe asks for one.
  static void finish(Component<DatasetKind>& component, const Value& map, Reader& reader);
};
using DatasetRegistry = Registry<DatasetKind>;
const DatasetRegistry& registry_of(const Catalog& catalog, DatasetKind);

}  // namespace trainrun
