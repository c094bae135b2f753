#pragma once

#include <nlohmann/json.hpp>

#include <memory>

#include "registry/batch.h"
#include "registry/registry.h"

namespace trainrun {

/// Samples by index. Made without opening anything; `open` reads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Fields, shapes, target. Opens no data; throws DataError where a recipe leaves that to the data and it is not
  /// there.
  virtual DatasetInfo info() const = 0;
  /// Reads, or makes ready to read. Throws DataError naming file and cause. Called once, before size and get.
  virtual void open() = 0;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// The samples at `indices` ([N] int64, on the CPU), as one batch. Safe to call from several threads.
  virtual Batch get(const at::Tensor& indices) const = 0;

  /// Learns from the samples at `indices` what all are read by: categories, what stands for missing values. Called
  /// once, after open and before get, for training data; other data takes over what it learnt. Most learn nothing.
  virtual void learn(const at::Tensor& indices);
  /// What was learnt, as checkpoints keep it; null: nothing.
  virtual nlohmann::json learnt() const;
  /// Instead of `learn`. Throws DataError where `state` is of another data set.
  virtual void set_learnt(const nlohmann::json& state);

  /// One field of all samples ([size(), …]): what samplers and splits go by. Throws Error naming the fields there are.
  virtual at::Tensor column(const std::string& field) const;
  /// How often each sample is to be drawn in training, relative to the others ([size()] float64); undefined: all alike.
  virtual at::Tensor sampling_weights() const;
};

/// A data set held as tensors, one row a sample; images may be kept as bytes and are given as float32 in [0, 1].
class TensorDataset : public Dataset {
 public:
  int64_t size() const override;
  Batch get(const at::Tensor& indices) const override;
  at::Tensor column(const std::string& field) const override;

 protected:
  /// Sets field `name` to `rows` [n, …]; `divisor` > 0: bytes given as float32 divided by it.
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
  /// Seed of the run, for data that is drawn.
  uint64_t seed = 0;
};

/// What every data set may say.
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
  /// Has `build` give the subset where one is asked for.
  static void finish(Component<DatasetKind>& component, const Value& map, Reader& reader);
};
using DatasetRegistry = Registry<DatasetKind>;
const DatasetRegistry& registry_of(const Catalog& catalog, DatasetKind);

}  // namespace trainrun
