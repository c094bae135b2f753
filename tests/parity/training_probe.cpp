#include "tests/parity/training_probe.h"

#include "runner/model/recipe_loader.h"
#include "runner/train/job.h"
#include "runner/train/train_loop.h"

namespace trainrun {

nlohmann::json train_recipe(const std::string& path, const std::vector<std::string>& overrides, Catalog& catalog,
                            NamedTensors& state) {
  const LoadedRecipe loaded = load_recipe(path, overrides, catalog);
  Job::Options options;
  options.quiet = true;
  Job job(loaded, options);
  const int signal = train(job);
  for (const auto& [name, tensor] : job.model->state_dict()) state.emplace_back(name, tensor.detach().clone());
  return {{"steps", job.progress.step}, {"signal", signal}};
}

}  // namespace trainrun
