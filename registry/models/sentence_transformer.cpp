#include <array>
#include <filesystem>

#include "registry/formats/files/file_io.h"
#include "registry/formats/files/settings_file.h"
#include "registry/formats/web/named_sources.h"
#include "registry/graph/graph.h"
#include "registry/language/error.h"
#include "registry/models/sentence_record.h"

// Texts to vectors. Source: Reimers and Gurevych 2019, "Sentence-BERT"; the modules of the package sentence-transformers.

namespace trainrun {

enum class SentencePooling { kMean, kCls, kMax };
template <>
struct Words<SentencePooling> {
  static constexpr std::array kWords = {"mean", "cls", "max"};
};

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/// The fields of one text in a batch: "anchor_input_ids" and others are of the text "anchor_".
constexpr std::array kTexts = {"", "anchor_", "positive_", "negative_"};

constexpr uint64_t kMostModulesBytes = uint64_t{1} << 20;

/// What a folder of sentence-transformers says besides its encoder.
struct FolderModules {
  std::optional<std::string> pooling;
  std::optional<bool> normalize;
};

/// The pooling that 1_Pooling/config.json asks for, in the older and the newer form.
std::string pooling_of(const fs::path& file) {
  const json config = read_settings(file.string());
  const json named = config.value("pooling_mode", json());
  std::vector<std::string> modes;
  if (named.is_string()) modes.push_back(named.get<std::string>());
  if (named.is_array()) modes = named.get<std::vector<std::string>>();
  for (const auto& [key, value] : config.items()) {
    if (!key.starts_with("pooling_mode_") || value != true) continue;
    const std::string mode = key.substr(std::string_view("pooling_mode_").size());
    modes.push_back(mode == "cls_token" ? "cls" : mode == "mean_tokens" ? "mean" : mode == "max_tokens" ? "max" : mode);
  }
  if (modes.size() == 1 && (modes[0] == "mean" || modes[0] == "cls" || modes[0] == "max")) return modes[0];
  throw DataError(file.string() + ": its pooling is " + (modes.empty() ? "not said" : join(modes)) +
                  "; known are mean, cls and max, one of them");
}

FolderModules modules_of(const std::string& folder) {
  FolderModules found;
  const fs::path file = fs::path(folder) / "modules.json";
  if (!fs::exists(file)) return found;
  json modules;
  try {
    modules = json::parse(read_file(file.string(), kMostModulesBytes));
  } catch (const json::exception&) {
    throw DataError(file.string() + ": is not JSON");
  }
  if (!modules.is_array()) throw DataError(file.string() + ": expected a list of modules");
  found.normalize = false;
  for (size_t i = 0; i < modules.size(); ++i) {
    const json& module = modules[i];
    const std::string type = module.is_object() ? module.value("type", "") : "";
    const std::string name = type.substr(type.rfind('.') + 1);
    if (i == 0 && name == "Transformer" && module.value("path", "").empty()) continue;
    if (i == 1 && name == "Pooling") {
      found.pooling = pooling_of(fs::path(folder) / module.value("path", "") / "config.json");
    } else if (i == 2 && name == "Normalize") {
      found.normalize = true;
    } else {
      throw DataError(file.string() + ": module " + std::to_string(i) + " is " +
                      (name.empty() ? "without a type" : name) +
                      "; known are a Transformer, a Pooling and, perhaps, Normalize");
    }
  }
  return found;
}

struct SentenceTransformer : CheckpointOptions {
  std::optional<SentencePooling> pooling;
  std::optional<bool> normalize;
  BatchFields fields = all_fields();

  static void describe(Fields<SentenceTransformer>& f) {
    describe_checkpoint(f);
    f.optional("pooling", &SentenceTransformer::pooling)
        .doc(
            "mean: the mean of a text's tokens; cls: its first token; max: the largest value of each feature; null: as "
            "the folder's modules.json says, else mean");
    f.optional("normalize", &SentenceTransformer::normalize)
        .doc("whether vectors are divided by their length; null: as the folder's modules.json says, else false");
    describe_fields(f);
  }
  void check(Checker& checker) const {
    if (!pretrained && !config) checker.fail("pretrained", "is missing; name a folder, or a config.json under config");
  }

  Layer build(const LayerInputs& in) const {
    const std::string folder = pretrained ? model_folder(*pretrained, PublishedPart::kWeights) : "";
    const std::string file = pretrained ? (fs::path(folder) / "config.json").string() : *config;
    const FolderModules said = pretrained ? modules_of(folder) : FolderModules();
    const std::string mode = pooling ? word_of(*pooling) : said.pooling.value_or("mean");
    const bool normalizes = normalize.value_or(said.normalize.value_or(false));

    LayerInputs inputs = in;
    const std::vector<std::string> texts = texts_of(inputs);
    Listing model;
    const Names read = add_stacked(model, inputs, texts);
    json encoder = {{"name", kEncoder},
                    {"inputs", listed(read)},
                    {pretrained ? "pretrained" : "config", pretrained ? *pretrained : file}};
    if (num_tokens) encoder["num_tokens"] = *num_tokens;
    const std::string type = encoder_type(file);
    if (type != "DistilBertModel") encoder["add_pooling_layer"] = false;
    if (type == "DistilBertModel" && read.size() > 2) encoder["inputs"] = {read[0], read[1]};
    model.add(type, encoder);
    model.add("TokenPooling", {{"name", "pooling"}, {"mode", mode}, {"inputs", {kEncoder, read[1]}}});
    if (normalizes) model.add("L2Normalize", {{"name", "normalize"}});
    if (texts.size() > 1) {
      model.add("Chunk", {{"name", "chunks"}, {"chunks", texts.size()}, {"dim", 0}, {"outputs", texts}});
      model.add("Stack", {{"name", "embeddings"}, {"inputs", texts}, {"dim", 1}});
    }
    auto graph = model.build(inputs);
    graph->register_module(SentenceRecord::kName, std::make_shared<SentenceRecord>(mode, normalizes));
    return whole_model(std::move(graph));
  }

 private:
  static constexpr const char* kEncoder = "auto_model";

  static BatchFields all_fields() {
    BatchFields all;
    for (const std::string text : kTexts) {
      for (const char* role : {kInputIds, kAttentionMask, kTokenTypeIds}) all.push_back(text + role);
    }
    return all;
  }

  /// By config.json. Throws DataError.
  static std::string encoder_type(const std::string& file) {
    const json type = read_settings(file).value("model_type", json());
    if (type == "bert") return "BertModel";
    if (type == "roberta") return "RobertaModel";
    if (type == "distilbert") return "DistilBertModel";
    throw DataError(file + ": model_type: it is of a model of type " + shown_json(type) +
                    "; the encoders of texts are bert, roberta and distilbert");
  }

  /// Names what flows in, and says which texts there are, each by the beginning of its fields' names. Throws LayerError.
  std::vector<std::string> texts_of(LayerInputs& inputs) const {
    inputs.names.resize(inputs.examples.size());
    const size_t own = inputs.num_own();
    if (own == inputs.examples.size()) {  // the recipe lists them
      inputs.require_inputs(2, 3);
      const std::array roles = {kInputIds, kAttentionMask, kTokenTypeIds};
      std::copy_n(roles.begin(), own, inputs.names.begin());
      return {""};
    }
    inputs.names[0] = "";  // it is among the fields, too
    inputs.set_num_own(inputs.examples.size());
    std::vector<std::string> texts;
    for (const std::string text : kTexts) {
      if (!has_role(inputs, text + kInputIds)) continue;
      if (!has_role(inputs, text + kAttentionMask)) throw LayerError("it needs " + text + kAttentionMask + ", too");
      texts.push_back(text);
    }
    if (texts.empty()) throw LayerError("the batch has no texts: it reads " + join(fields));
    return texts;
  }

  /// The tokens of all texts of a batch as one batch of tokens, one text behind the other; returns what they, their mask
  /// and their types are called.
  static Names add_stacked(Listing& model, const LayerInputs& inputs, const std::vector<std::string>& texts) {
    Names read;
    for (const std::string role : {kInputIds, kAttentionMask, kTokenTypeIds}) {
      Names all;
      for (const std::string& text : texts) {
        if (has_role(inputs, text + role)) all.push_back(text + role);
      }
      if (all.size() != texts.size()) continue;
      if (all.size() == 1) {
        read.push_back(all[0]);
        continue;
      }
      model.add("Concat", {{"name", role}, {"inputs", listed(all)}, {"dim", 0}});
      read.push_back(role);
    }
    return read;
  }
};

}  // namespace

void add_sentence_transformers(LayerRegistry& layers) {
  layers.add<SentenceTransformer>(
      "SentenceTransformer",
      "turns texts into vectors, by pooling the token vectors of BERT, RoBERTa or DistilBERT: token ids [N, T] to [N, "
      "D], pairs and triplets to [N, 2, D] and [N, 3, D]");
}

}  // namespace trainrun
