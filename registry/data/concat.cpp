// Data sets one after the other.
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <numeric>

#include "registry/data/joined_datasets.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

struct Concat {
  std::vector<Component<DatasetKind>> datasets;
  std::optional<std::vector<double>> weights;

  static void describe(Fields<Concat>& f) {
    f.required("datasets", &Concat::datasets)
        .not_empty("expected at least one data set")
        .doc("one after the other; their fields must be alike");
    f.optional("weights", &Concat::weights)
        .at_least(0)
        .doc("relative frequency with which samples of each are drawn in training; null: each sample once");
  }
  void check(Checker& checker) const {
    std::vector<const Component<DatasetKind>*> all;
    for (const Component<DatasetKind>& dataset : datasets) all.push_back(&dataset);
    if (const std::string fault = tokenizers_fault(all); !fault.empty()) checker.fail("datasets", fault);
    if (!weights) return;
    if (weights->size() != datasets.size()) {
      checker.fail("weights", "expected " + std::to_string(datasets.size()) + ", one for each data set, found " +
                                  std::to_string(weights->size()));
    }
    if (std::accumulate(weights->begin(), weights->end(), 0.0) == 0) checker.fail("weights", "are all 0");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs& inputs) const;
};

class ConcatDataset : public JoinedDatasets {
 public:
  ConcatDataset(std::vector<std::unique_ptr<Dataset>> parts, std::optional<std::vector<double>> weights)
      : JoinedDatasets("Concat", std::move(parts)), weights_(std::move(weights)) {}

  /// weights[i] is the share of data set i, however many samples it has.
  at::Tensor sampling_weights() const override {
    if (!weights_) return {};
    std::vector<at::Tensor> weights;
    for (size_t i = 0; i < parts().size(); ++i) {
      const int64_t size = parts()[i]->size();
      weights.push_back(
          at::full({size}, (*weights_)[i] / static_cast<double>(std::max<int64_t>(size, 1)), at::kDouble));
    }
    return at::cat(weights);
  }

 private:
  std::optional<std::vector<double>> weights_;
};

std::unique_ptr<Dataset> Concat::build(const DatasetInputs& inputs) const {
  std::vector<std::unique_ptr<Dataset>> parts;
  for (const Component<DatasetKind>& dataset : datasets) parts.push_back(dataset.build(inputs));
  return std::make_unique<ConcatDataset>(std::move(parts), weights);
}

}  // namespace

void add_concat(DatasetRegistry& datasets) { datasets.add<Concat>("Concat", "several data sets one after the other"); }

}  // namespace trainrun
