#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>

#include "registry/language/error.h"
#include "runner/interop/model_export.h"
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
};

struct Format {
  const char* usual_path;
  void (*write)(TrainedRun& run, const std::string& path);
  void (*write_merged)(TrainedRun& run, const std::string& path);  // null: not for --merge
};
const Format& format_called(const std::string& name) {
  static const std::map<std::string, Format> formats = {
      {"safetensors", {"model.safetensors", export_safetensors, export_merged_safetensors}},
      {"onnx", {"model.onnx", export_onnx, export_onnx}},
      {"torchscript", {"model.pt", export_torchscript, nullptr}},
      {"huggingface", {"model", export_huggingface, export_huggingface}},
      {"peft", {"adapter", export_peft, nullptr}},
      {"gguf", {"model.gguf", nullptr, nullptr}}};  // which also takes a type of weights
  return formats.at(name);
}

}  // namespace

void add_export(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("export", "write a trained model for other programs");
  const auto arguments = std::make_shared<ExportArguments>();
  verb->add_option("run", arguments->run.path,
                   "a run's folder (its best checkpoint, else its newest), or a checkpoint's")
      ->required();
  verb->add_option("overrides", arguments->run.overrides, "key=value: device=cpu");
  verb->add_option(
          "--format", arguments->format,
          "safetensors (default): the weights; onnx: the whole model, for ONNX Runtime and others; torchscript: the "
          "whole model, for torch.jit.load; huggingface: a folder that "
          "transformers opens with from_pretrained and pipeline, with tokenizer and model card, adapters merged; "
          "peft: a folder with the adapters, which PeftModel.from_pretrained opens; gguf: a file for llama.cpp, of a "
          "decoder of Llama's, Mistral's or Qwen's kind")
      ->check(CLI::IsMember({"safetensors", "onnx", "torchscript", "huggingface", "peft", "gguf"}));
  verb->add_option("--output,-o", arguments->output,
                   "the file (huggingface, peft: the folder) to write; model.safetensors, model.onnx, model.pt, "
                   "model, adapter or model.gguf by default");
  verb->add_flag("--merge", arguments->merge,
                 "merge adapters into the weights, under the names that these have without adapters (safetensors; "
                 "huggingface, onnx and gguf always do)");
  verb->add_flag("--external-data", arguments->external_data,
                 "write the weights to a second file, OUTPUT.data, which must stay beside the first (onnx; weights of "
                 "more than 2 GB always go there)");
  CLI::Option* const dtype =
      verb->add_option("--dtype", arguments->dtype, "gguf: the type of the weights; f16 by default")
          ->check(CLI::IsMember(gguf_types()));
  verb->callback([&program, arguments, dtype] {
    const Format& format = format_called(arguments->format);
    if (arguments->merge && !format.write_merged) {
      throw Error("--merge is for --format safetensors, huggingface and onnx, not for " + arguments->format);
    }
    if (arguments->external_data && arguments->format != "onnx") {
      throw Error("--external-data is for --format onnx, not for " + arguments->format);
    }
    const bool is_gguf = arguments->format == "gguf";
    if (*dtype && !is_gguf) throw Error("--dtype is for --format gguf, not for " + arguments->format);
    const std::string path = arguments->output.empty() ? format.usual_path : arguments->output;
    if (std::filesystem::exists(path)) throw Error(path + " is already there; name another file by --output");
    std::vector<std::string> overrides = export_overrides();
    overrides.insert(overrides.end(), arguments->run.overrides.begin(), arguments->run.overrides.end());
    TrainedRun run(find_trained(arguments->run.path), overrides, program.catalog);
    if (is_gguf) {
      export_gguf(run, path, arguments->dtype);
    } else if (arguments->external_data) {
      export_external_onnx(run, path);
    } else {
      (arguments->merge ? format.write_merged : format.write)(run, path);
    }
    if (program.quiet) return;
    for (const std::string& note : run.notes()) std::fprintf(stderr, "note: %s\n", note.c_str());
    std::printf("%s\n", path.c_str());
  });
}

}  // namespace trainrun
