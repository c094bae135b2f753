#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "registry/language/error.h"
#include "runner/interop/model_export.h"
#include "tools/export_program.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct ExportArguments {
  RecipeArguments run;
  std::string format = "safetensors";
  std::string output;
  bool merge = false;
  std::string dtype = "f16";
  bool external_data = false;
  ProgramExport program;

  /// The options that one format alone has, by the format's name.
  std::vector<std::pair<const CLI::Option*, std::string>> of_format;
};

struct Format {
  const char* usual_path;
  void (*write)(TrainedRun& run, const std::string& path);
  void (*write_merged)(TrainedRun& run, const std::string& path);  // null: not for --merge
};
/// Those that are of a trained run and take no options of their own; gguf and python do.
const std::map<std::string, Format>& formats() {
  static const std::map<std::string, Format> all = {
      {"safetensors", {"model.safetensors", export_safetensors, export_merged_safetensors}},
      {"onnx", {"model.onnx", export_onnx, export_onnx}},
      {"torchscript", {"model.pt", export_torchscript, nullptr}},
      {"huggingface", {"model", export_huggingface, export_huggingface}},
      {"peft", {"adapter", export_peft, nullptr}},
      {"gguf", {"model.gguf", nullptr, nullptr}}};
  return all;
}

void add_options(CLI::App& verb, ExportArguments& arguments) {
  verb.add_option("run", arguments.run.path,
                  "a run's folder (its best checkpoint, else its newest), or a checkpoint's; for python also a recipe")
      ->required();
  verb.add_option("overrides", arguments.run.overrides, "key=value: device=cpu");
  verb.add_option(
          "--format", arguments.format,
          "safetensors (default): the weights; onnx: the whole model, for ONNX Runtime and others; torchscript: the "
          "whole model, for torch.jit.load; huggingface: a folder that transformers opens with from_pretrained and "
          "pipeline, with tokenizer and model card, adapters merged; peft: a folder with the adapters, which "
          "PeftModel.from_pretrained opens; gguf: a file for llama.cpp, of a decoder of Llama's, Mistral's or Qwen's "
          "kind; python: the recipe as a PyTorch program, NAME.py, which needs no trainrun")
      ->check(CLI::IsMember({"safetensors", "onnx", "torchscript", "huggingface", "peft", "gguf", "python"}));
  verb.add_option("--output,-o", arguments.output,
                  "the file (huggingface, peft: the folder) to write; model.safetensors, model.onnx, model.pt, model, "
                  "adapter, model.gguf or NAME.py by default");
  verb.add_flag("--merge", arguments.merge,
                "merge adapters into the weights, under the names that these have without adapters (safetensors; "
                "huggingface, onnx and gguf always do)");
  const auto of = [&](const char* format, CLI::Option* option) { arguments.of_format.emplace_back(option, format); };
  of("onnx", verb.add_flag("--external-data", arguments.external_data,
                           "onnx: write the weights to a second file, OUTPUT.data, which must stay beside the first; "
                           "weights of more than 2 GB always go there"));
  of("gguf", verb.add_option("--dtype", arguments.dtype, "gguf: the type of the weights; f16 by default")
                 ->check(CLI::IsMember(gguf_types())));
  of("python",
     verb.add_option("--verify", arguments.program.verify,
                     "python: train so many steps here and by the program, from the same weights, and compare "
                     "the losses")
         ->check(whole_from(1)));
  of("python", verb.add_option("--python", arguments.program.python,
                               "python: the Python that has torch, for --verify; python3 by default"));
  of("python", verb.add_option("--tolerance", arguments.program.tolerance,
                               "python: relative difference of losses above which --verify fails; 1e-5 by default"));
}

void require_own_options(const ExportArguments& arguments) {
  for (const auto& [option, format] : arguments.of_format) {
    if (*option && arguments.format != format) {
      throw Error(option->get_name() + " is for --format " + format + ", not for " + arguments.format);
    }
  }
  const auto known = formats().find(arguments.format);
  const bool can_merge = known != formats().end() && known->second.write_merged != nullptr;
  if (arguments.merge && !can_merge) {
    throw Error("--merge is for --format safetensors, huggingface and onnx, not for " + arguments.format);
  }
}

void export_run(const ExportArguments& arguments, Program& program) {
  const Format& format = formats().at(arguments.format);
  const std::string path = arguments.output.empty() ? format.usual_path : arguments.output;
  if (std::filesystem::exists(path)) throw Error(path + " is already there; name another file by --output");
  std::vector<std::string> overrides = export_overrides();
  overrides.insert(overrides.end(), arguments.run.overrides.begin(), arguments.run.overrides.end());
  TrainedRun run(find_trained(arguments.run.path), overrides, program.catalog);
  if (arguments.format == "gguf") {
    export_gguf(run, path, arguments.dtype);
  } else if (arguments.external_data) {
    export_external_onnx(run, path);
  } else {
    (arguments.merge ? format.write_merged : format.write)(run, path);
  }
  if (program.quiet) return;
  for (const std::string& note : run.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
  std::printf("%s\n", path.c_str());
}

}  // namespace

void add_export(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("export", "write a trained model for other programs");
  const auto arguments = std::make_shared<ExportArguments>();
  add_options(*verb, *arguments);
  verb->callback([&program, arguments] {
    require_own_options(*arguments);
    if (arguments->format == "python") {
      export_program(arguments->run, arguments->output, arguments->program, program);
    } else {
      export_run(*arguments, program);
    }
  });
}

}  // namespace trainrun
