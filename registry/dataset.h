#pragma once

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
};

/// A data set held as tensors, one row a sample; images may be kept as bytes and are given as float32 in [0, 1].
class TensorDataset : public Dataset {
 public:
  int64_t size() const override;
  Batch get(const at::Tensor& indices) const override;

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

struct DatasetKind {
  static constexpr const char* kName = "dataset";
  using Inputs = DatasetInputs;
  using Product = std::unique_ptr<Dataset>;
  using Common = NoCommon;
};
using DatasetRegistry = Registry<DatasetKind>;
const DatasetRegistry& registry_of(const Catalog& catalog, DatasetKind);

}  // namespace trainrun
