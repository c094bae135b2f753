#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "registry/language/error.h"
#include "runner/interop/model_export.h"
#include "tools/export_program.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct ExportArguments {
  RecipeArguments run;
  std::string format = "safetensors";
  std::string output;
  bool merge = false;
  ProgramExport program;
};

struct Format {
  const char* usual_path;
  void (*write)(TrainedRun& run, const std::string& path);
  void (*write_merged)(TrainedRun& run, const std::string& path);  // null: not for --merge
};
const Format& format_called(const std::string& name) {
  static const std::map<std::string, Format> formats = {
      {"safetensors", {"model.safetensors", export_safetensors, export_merged_safetensors}},
      {"torchscript", {"model.pt", export_torchscript, nullptr}},
      {"huggingface", {"model", export_huggingface, export_huggingface}},
      {"peft", {"adapter", export_peft, nullptr}}};
  return formats.at(name);
}

}  // namespace

void add_export(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("export", "write a trained model for other programs");
  const auto arguments = std::make_shared<ExportArguments>();
  verb->add_option("run", arguments->run.path,
                   "a run's folder (its best checkpoint, else its newest), or a checkpoint's; for python also a recipe")
      ->required();
  verb->add_option("overrides", arguments->run.overrides, "key=value: device=cpu");
  verb->add_option(
          "--format", arguments->format,
          "safetensors (default): the weights; torchscript: the whole model; huggingface: a folder that "
          "transformers opens with from_pretrained and pipeline, with tokenizer and model card, adapters merged; "
          "peft: a folder with the adapters, which PeftModel.from_pretrained opens; python: the recipe as a PyTorch "
          "program, NAME.py, which needs no trainrun")
      ->check(CLI::IsMember({"safetensors", "torchscript", "huggingface", "peft", "python"}));
  verb->add_option("--output,-o", arguments->output,
                   "the file (huggingface, peft: the folder) to write; model.safetensors, model.pt, model or adapter "
                   "by default");
  verb->add_flag("--merge", arguments->merge,
                 "merge adapters into the weights, under the names that these have without adapters (safetensors; "
                 "huggingface always does)");
  verb->add_option("--verify", arguments->program.verify,
                   "python: train so many steps here and by the program, from the same weights, and compare the losses")
      ->check(CLI::PositiveNumber);
  verb->add_option("--python", arguments->program.python,
                   "the Python that has torch, for --verify; python3 by default");
  verb->add_option("--tolerance", arguments->program.tolerance,
                   "relative difference of losses above which --verify fails; 1e-5 by default");
  verb->callback([&program, arguments] {
    if (arguments->format == "python") {
      return export_program(arguments->run, arguments->output, arguments->program, program);
    }
    const Format& format = format_called(arguments->format);
    if (arguments->merge && !format.write_merged) {
      throw Error("--merge is for --format safetensors and huggingface, not for " + arguments->format);
    }
    const std::string path = arguments->output.empty() ? format.usual_path : arguments->output;
    if (std::filesystem::exists(path)) throw Error(path + " is already there; name another file by --output");
    std::vector<std::string> overrides = export_overrides();
    overrides.insert(overrides.end(), arguments->run.overrides.begin(), arguments->run.overrides.end());
    TrainedRun run(find_trained(arguments->run.path), overrides, program.catalog);
    (arguments->merge ? format.write_merged : format.write)(run, path);
    if (program.quiet) return;
    for (const std::string& note : run.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
    std::printf("%s\n", path.c_str());
  });
}

}  // namespace trainrun
