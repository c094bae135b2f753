#include "runner/interop/python/sampling.h"

#include <nlohmann/json.hpp>

#include "runner/interop/python/expression.h"

namespace trainrun::python {
namespace {

constexpr const char* kWeighted = R"(class WeightedSampler(Sampler):
    """Draws samples by weight, in each epoch others."""

    def __init__(self, weights, num_samples, replacement=True):
        self.weights, self.num_samples, self.replacement, self.epoch = weights, num_samples, replacement, 0

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        generator = torch.Generator().manual_seed(SEED + self.epoch)
        return iter(torch.multinomial(self.weights, self.num_samples, self.replacement, generator=generator).tolist())

    def set_epoch(self, epoch):
        self.epoch = epoch
)";

constexpr const char* kStratified = R"(class StratifiedSampler(Sampler):
    """A random order in which every stretch has its share of each class."""

    def __init__(self, labels):
        self.labels, self.epoch = labels, 0

    def __len__(self):
        return len(self.labels)

    def __iter__(self):
        generator = torch.Generator().manual_seed(SEED + self.epoch)
        rows, places = [], []
        for label in range(int(self.labels.max()) + 1):
            own = (self.labels == label).nonzero().flatten()
            if len(own) == 0:
                continue
            rows.append(own[torch.randperm(len(own), generator=generator)])
            places.append((torch.arange(len(own)) + torch.rand(len(own), dtype=torch.double, generator=generator)) / len(own))
        return iter(torch.cat(rows)[torch.cat(places).argsort(stable=True)].tolist())

    def set_epoch(self, epoch):
        self.epoch = epoch
)";

}  // namespace

Sampling write_sampling(const Recipe& recipe, SourceFile& file) {
  Sampling sampling;
  const auto chosen = recipe.dataloader.chosen_sampler();
  if (!chosen && !recipe.dataloader.shuffle) return sampling;
  sampling.argument = ", sampler=sampler";
  sampling.each_epoch = {"sampler.set_epoch(epoch)"};
  if (!chosen) {
    file.import("from torch.utils.data.distributed import DistributedSampler");
    sampling.statements = {"sampler = DistributedSampler(train_data, num_replicas=1, rank=0, seed=SEED)"};
    return sampling;
  }
  file.import("from torch.utils.data import Sampler");
  const std::string labels = "train_data.tensors[" + quoted(chosen->field.value_or("label")) + "]";
  if (chosen->type == "Stratified") {
    file.define("StratifiedSampler", kStratified);
    sampling.statements = {"sampler = StratifiedSampler(" + labels + ")"};
    return sampling;
  }
  file.define("WeightedSampler", kWeighted);
  const auto* name = std::get_if<std::string>(&chosen->weights);
  if (name && *name == "balanced") {
    sampling.statements = {"labels = " + labels, "weights = labels.bincount().double().reciprocal()[labels]"};
  } else if (name) {
    sampling.statements = {"weights = train_data.tensors[" + quoted(*name) + "].double().flatten()"};
  } else {
    const std::string list = literal(nlohmann::json(std::get<std::vector<double>>(chosen->weights)));
    sampling.statements = {"weights = torch.tensor(" + list + ", dtype=torch.double)[" + labels + "]"};
  }
  const std::string count = chosen->num_samples ? std::to_string(*chosen->num_samples) : "len(train_data)";
  sampling.statements.push_back("sampler = WeightedSampler(weights, " + count +
                                (chosen->replacement ? ")" : ", replacement=False)"));
  return sampling;
}

}  // namespace trainrun::python
