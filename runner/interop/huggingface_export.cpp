#include <algorithm>
#include <filesystem>

#include "registry/language/text_forms.h"
#include "registry/tensors/files/safetensors.h"
#include "runner/generate/chat_format.h"
#include "runner/interop/export_files.h"
#include "runner/interop/exported_data.h"
#include "runner/interop/exported_model.h"
#include "runner/interop/generation_export.h"
#include "runner/interop/model_card.h"
#include "runner/interop/model_export.h"
#include "runner/interop/tokenizer_export.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Python that opens the folder and asks the model.
std::string usage_of(const std::string& task, bool has_chat) {
  if (task.empty() || task == "feature-extraction") {
    return "from transformers import AutoModel, AutoTokenizer\n\nmodel = AutoModel.from_pretrained(\"FOLDER\")\n"
           "tokenizer = AutoTokenizer.from_pretrained(\"FOLDER\")\n";
  }
  if (task == "sentence-similarity") {
    return "from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer(\"FOLDER\")\n"
           "vectors = model.encode([\"…\", \"…\"])\nprint(model.similarity(vectors, vectors))\n";
  }
  const std::string begin =
      "from transformers import pipeline\n\nmodel = pipeline(\"" + task + "\", model=\"FOLDER\")\n";
  if (task == "text-classification") return begin + "print(model(\"…\", top_k=None, truncation=True))\n";
  if (task == "fill-mask") return begin + "print(model(f\"… {model.tokenizer.mask_token} …\"))\n";
  if (task != "text-generation") return begin + "print(model(\"…\"))\n";
  return begin + "print(model(" + (has_chat ? "[{\"role\": \"user\", \"content\": \"…\"}]" : "\"…\"") +
         ", max_new_tokens=100))\n";
}

/// What of the training data's conversations no file of the folder can say.
void add_remarks_on_chats(const ChatSource& chat, std::vector<std::string>& remarks) {
  if (!chat.holds_chats) return;
  if (chat.system) {
    remarks.push_back(
        "In the training data, conversations without a system message of their own began with this one: " +
        json(*chat.system).dump(-1, ' ', false) + ".");
  }
  std::vector<std::string> variables;
  for (const auto& [name, value] : chat.variables) {
    variables.push_back("`" + name + "=" + std::visit([](const auto& one) { return json(one).dump(); }, value) + "`");
  }
  if (!variables.empty()) {
    remarks.push_back("The chat template was given " + join(variables) + "; hand this to `apply_chat_template`, too.");
  }
}

bool generates(const std::string& architecture) { return pipeline_tag_of(architecture) == "text-generation"; }

}  // namespace

void export_huggingface(TrainedRun& run, const std::string& folder) {
  const EvaluationScope scope(run.callbacks());
  if (export_vision_model(run, folder)) return;
  const auto [found, tensors] = exported_language_model(run, "huggingface");
  json config = found.record->config;
  const auto architecture = config.at("architectures").at(0).get<std::string>();
  const auto tokenizer = tokenizer_of_data(run, found.record->pretrained);
  const bool has_head = std::ranges::any_of(tensors, [](const auto& item) { return item.first == "lm_head.weight"; });
  if (has_head && config.contains("tie_word_embeddings")) config["tie_word_embeddings"] = false;
  CardSubject subject{"transformers", architecture, pipeline_tag_of(architecture), found.record->pretrained};
  subject.labels = name_outputs(run, config);
  NewFolder made(folder);
  const fs::path& path = made.path();
  write_safetensors((path / "model.safetensors").string(), tensors, file_metadata(run));
  std::shared_ptr<const Tokenizer> written;
  if (tokenizer) {
    const auto max_length = generates(architecture) ? std::nullopt : most_tokens(run.contract());
    written = export_tokenizer(run, *tokenizer, config, max_length, path);
  } else {
    subject.remarks.emplace_back(
        "The training data were tokens, not texts, and name no tokenizer, so the folder has none.");
  }
  if (generates(architecture)) {
    set_special_tokens(config, written.get());
    write_json_file(path / "generation_config.json", generation_config_of(run, *found.record, written.get()));
  }
  write_json_file(path / "config.json", config);
  if (export_sentence_modules(run, config, path.string())) {
    subject.library = "sentence-transformers";
    subject.task = "sentence-similarity";
  }
  const ChatSource chat = chat_source_of(run.recipe());
  subject.usage = usage_of(subject.task, chat.holds_chats);
  for (std::string& way : ways_back(run.contract())) subject.remarks.push_back(std::move(way));
  add_remarks_on_chats(chat, subject.remarks);
  write_file_atomically((path / "README.md").string(), model_card(run, subject));
  made.finish();
}

}  // namespace trainrun
