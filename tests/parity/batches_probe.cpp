#include "tests/parity/batches_probe.h"

#include "runner/data/data.h"
#include "runner/model/recipe_loader.h"

namespace trainrun {

NamedTensors batches_of(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                        const WantedBatches& wanted) {
  const LoadedRecipe loaded = load_recipe(path, overrides, catalog);
  const auto data = open_data(loaded.recipe.dataset.train, loaded.recipe);
  share_learnt(*data, nullptr);
  const DatasetInfo info = data->info();
  DataTransforms transforms(loaded.recipe, &info, {});
  transforms.learn(loaded.recipe, *data);
  const DataLoader loader(*data, transforms.training(),
                          loader_options(loaded.recipe, data.get(), true, wanted.rank, wanted.world_size));
  NamedTensors fields;
  const auto stream = loader.iterate(wanted.epoch, wanted.start);
  for (int64_t number = wanted.start; const auto batch = stream->next(); ++number) {
    for (const Batch::Field& field : batch->fields()) {
      fields.emplace_back(std::to_string(number) + "." + field.name, field.tensor);
    }
  }
  return fields;
}

}  // namespace trainrun
