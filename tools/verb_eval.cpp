#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>

#include "runner/evaluation.h"
#include "tools/verbs.h"

namespace trainrun {

void add_eval(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("eval", "evaluate what was trained");
  const auto arguments = std::make_shared<RecipeArguments>();
  const auto as_json = std::make_shared<bool>(false);
  verb->add_option("run", arguments->path, "a run's folder (its best checkpoint, else its newest), or a checkpoint's")
      ->required();
  verb->add_option("overrides", arguments->overrides, "key=value: dataset.eval.root=other");
  verb->add_flag("--json", *as_json, "print one JSON object");
  verb->callback([&program, arguments, as_json] {
    const TrainedModel trained = find_trained(arguments->path);
    const auto figures = evaluate_trained(trained, arguments->overrides, program.catalog);
    nlohmann::ordered_json object = {{"checkpoint", trained.checkpoint}};
    if (!*as_json) std::printf("%s\n", trained.checkpoint.c_str());
    for (const auto& [name, value] : figures) {
      object[name] = value;
      if (!*as_json) std::printf("%s %.6g\n", name.c_str(), value);
    }
    if (*as_json) std::printf("%s\n", object.dump().c_str());
  });
}

}  // namespace trainrun
