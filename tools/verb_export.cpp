#include <cstdio>
#include <filesystem>
#include <memory>

#include "registry/error.h"
#include "runner/interop/model_export.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct ExportArguments {
  RecipeArguments run;
  std::string format = "safetensors";
  std::string output;
};

}  // namespace

void add_export(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("export", "write a trained model for other programs");
  const auto arguments = std::make_shared<ExportArguments>();
  verb->add_option("run", arguments->run.path,
                   "a run's folder (its best checkpoint, else its newest), or a checkpoint's")
      ->required();
  verb->add_option("overrides", arguments->run.overrides, "key=value: device=cpu");
  verb->add_option("--format", arguments->format, "safetensors (default): the weights; torchscript: the whole model")
      ->check(CLI::IsMember({"safetensors", "torchscript"}));
  verb->add_option("--output,-o", arguments->output, "the file to write; model.safetensors or model.pt by default");
  verb->callback([&program, arguments] {
    const bool is_script = arguments->format == "torchscript";
    std::string path = arguments->output;
    if (path.empty()) path = is_script ? "model.pt" : "model.safetensors";
    if (std::filesystem::exists(path)) throw Error(path + " is already there; name another file by --output");
    std::vector<std::string> overrides = export_overrides();
    overrides.insert(overrides.end(), arguments->run.overrides.begin(), arguments->run.overrides.end());
    TrainedRun run(find_trained(arguments->run.path), overrides, program.catalog);
    (is_script ? export_torchscript : export_safetensors)(run, path);
    if (!program.quiet) std::printf("%s\n", path.c_str());
  });
}

}  // namespace trainrun
