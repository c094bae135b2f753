#include "runner/model/token_additions.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "registry/data/characters.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/formats/web/named_sources.h"
#include "registry/formats/web/network.h"
#include "registry/graph/flatten.h"
#include "runner/data/kept_tokenizers.h"
#include "runner/model/model_adapters.h"
#include "runner/model/model_records.h"
#include "runner/model/pretrained_weights.h"

namespace trainrun {
namespace {

constexpr std::array kKeys = {"add_tokens", "add_special_tokens"};
constexpr const char* kTokenizer = "tokenizer";
constexpr const char* kNumTokens = "num_tokens";
/// What the families' models call their embedding of tokens, and the Linear that gives logits for them.
constexpr std::array<std::string_view, 3> kEmbeddings = {"embed_tokens", "wte", "word_embeddings"};
constexpr std::array<std::string_view, 3> kHeads = {"lm_head", "decoder", "vocab_projector"};

bool is_null(const Value& value) {
  return value.is_null() || (value.is_scalar() && value.scalar_type() == ScalarType::kNull);
}

std::string type_of(const Value& component) {
  const Value* type = component.is_map() ? component.find("type") : &component;
  return type && type->is_scalar() ? type->text() : "";
}

template <class Kind>
bool has_parameter(const Registry<Kind>& registry, const std::string& type, const char* name) {
  const auto* entry = registry.find(type);
  return entry && std::ranges::any_of(entry->parameters, [&](const Parameter& one) { return one.name == name; });
}

/// What `dataset` adds, as far as it can be read: faults are reported when the recipe is.
NewTokens read_new_tokens(const Value& dataset, const Catalog& catalog) {
  struct Section : NewTokens {
    static void describe(Fields<Section>& f) { describe_into(f); }
  };
  std::vector<Value::Entry> own;
  for (const char* key : kKeys) {
    if (const Value* value = dataset.find(key)) own.push_back({key, value->place(), *value});
  }
  std::vector<Problem> problems;
  Reader reader(catalog, problems);
  const Fields<Section> fields;
  Section read = fields.read(Value::map(std::move(own), dataset.place()), reader, "dataset");
  return problems.empty() && !read.fault() ? NewTokens(read) : NewTokens();
}

class Additions {
 public:
  Additions(const Catalog& catalog, const Value& dataset, std::vector<Problem>& problems)
      : catalog_(catalog), dataset_(dataset), problems_(problems) {}

  /// Below `dataset`.
  void add_to_data(Value& value, const std::string& path) {
    const Value* named = value.find(kTokenizer);
    const Value tokenizer = named ? *named : Value();  // a copy: entries move when others are added
    const bool has_own = tokenizer.is_scalar() && !is_null(tokenizer) && tokenizer.text() != kCharacters;
    for (const char* key : kKeys) {
      const Value* given = dataset_.find(key);
      if (const Value* own = value.find(key); own && !is_null(*own)) {
        problems_.push_back(
            {own->place(), path + "." + key, std::string("is written once for all data sets, as dataset.") + key});
      } else if (has_own && given) {
        value.set(key, given->place(), *given);
      }
    }
    if (has_own) note_tokenizer(tokenizer, value, path);
    for (Value::Entry& entry : value.entries()) {
      if (std::ranges::find(kKeys, entry.key) == kKeys.end()) add_to_data(entry.value, path + "." + entry.key);
    }
    for (size_t i = 0; i < value.items().size(); ++i) {
      add_to_data(value.items()[i], path + "[" + std::to_string(i) + "]");
    }
  }

  /// Below `model` and `models`.
  void add_to_layers(Value& value, int64_t num_tokens) const {
    const bool is_list_of_layers = value.is_list();
    if (value.is_map() && has_parameter(catalog_.layers, type_of(value), kNumTokens)) {
      const Value* own = value.find(kNumTokens);
      if (!own || is_null(*own)) value.set(kNumTokens, value.place(), number(num_tokens, value.place()));
    }
    for (Value::Entry& entry : value.entries()) add_to_layers(entry.value, num_tokens);
    for (Value& item : value.items()) {
      const bool is_bare = is_list_of_layers && item.is_scalar() && item.scalar_type() == ScalarType::kString;
      if (is_bare && has_parameter(catalog_.layers, item.text(), kNumTokens)) {
        const Place place = item.place();
        item = Value::map({{"type", place, item}, {kNumTokens, place, number(num_tokens, place)}}, place);
      } else {
        add_to_layers(item, num_tokens);
      }
    }
  }

  /// The one tokenizer of the data; "" where there is none, or several, which is reported.
  const std::string& tokenizer() const { return tokenizer_; }
  bool has_several() const { return has_several_; }

 private:
  static Value number(int64_t number, const Place& place) {
    return Value::scalar(std::to_string(number), /*quoted=*/false, place);
  }

  void note_tokenizer(const Value& tokenizer, const Value& component, const std::string& path) {
    const std::string type = type_of(component);
    const bool can_add =
        has_parameter(catalog_.datasets, type, kKeys[0]) || has_parameter(catalog_.transforms, type, kKeys[0]);
    if (!can_add && (catalog_.datasets.find(type) || catalog_.transforms.find(type))) {
      problems_.push_back({tokenizer.place(), path, type + " cannot add tokens to its tokenizer"});
    }
    if (tokenizer_.empty()) tokenizer_ = tokenizer.text();
    if (tokenizer.text() == tokenizer_ || has_several_) return;
    has_several_ = true;
    problems_.push_back({tokenizer.place(), path + "." + kTokenizer,
                         "tokens are added to one tokenizer, but this is '" + tokenizer.text() +
                             "', and others read '" + tokenizer_ + "'"});
  }

  const Catalog& catalog_;
  const Value& dataset_;
  std::vector<Problem>& problems_;
  std::string tokenizer_;
  bool has_several_ = false;
};

bool is_still_to_be_fetched(const std::string& tokenizer) {
  if (network_is_allowed()) return false;
  const auto source = source_of_model(tokenizer, PublishedPart::kTokenizer);
  return source && !source->is_cached;
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::ranges::find(names, last_part(name)) != names.end();
}

/// Of a layer's own weights; undefined where it has none.
at::Tensor weight_of(const FlatLayer& layer) {
  const auto& state = layer.node->layer.state;
  if (!layer.is_leaf() || !state) return {};
  const auto parameters = state->named_parameters(/*recurse=*/false);
  const at::Tensor* weight = parameters.find("weight");
  return weight ? *weight : at::Tensor();
}

/// The layers of the families' models that have a row for each token, of those whose weights are never trained.
struct FrozenRows {
  std::vector<std::string> embeddings, heads;
};

FrozenRows frozen_rows(const Model& model) {
  FrozenRows found;
  if (find_records(model.graph()).empty()) return found;
  for (const FlatLayer& layer : flatten(model.graph()).layers) {
    const bool is_embedding = layer.node->type == "Embedding" && is_one_of(kEmbeddings, layer.name);
    const bool is_head = layer.node->type == "Linear" && is_one_of(kHeads, layer.name);
    if (!is_embedding && !is_head) continue;
    const at::Tensor weight = weight_of(layer);
    if (!weight.defined() || weight.requires_grad()) continue;
    (is_embedding ? found.embeddings : found.heads).push_back(layer.name);
  }
  return found;
}

}  // namespace

Value with_added_tokens(Value recipe, const Catalog& catalog, TokenGrowth& growth, std::vector<Problem>& problems) {
  Value* dataset = recipe.find("dataset");
  if (!dataset || !dataset->is_map()) return recipe;
  const Value given = *dataset;
  const NewTokens added = read_new_tokens(given, catalog);
  Additions additions(catalog, given, problems);
  for (Value::Entry& entry : dataset->entries()) {
    if (std::ranges::find(kKeys, entry.key) == kKeys.end()) additions.add_to_data(entry.value, "dataset." + entry.key);
  }
  if (added.empty() || additions.has_several()) return recipe;
  const char* key = given.find(kKeys[0]) ? kKeys[0] : kKeys[1];
  const auto fail = [&](const std::string& what) {
    problems.push_back({given.find(key)->place(), std::string("dataset.") + key, what});
  };
  if (additions.tokenizer().empty()) {
    fail("no data set of this recipe has a tokenizer");
    return recipe;
  }
  try {
    if (is_still_to_be_fetched(additions.tokenizer())) return recipe;
    growth = growth_of(added.in(additions.tokenizer()));
  } catch (const DataError& error) {
    fail(error.what());
    return recipe;
  }
  for (const char* section : {"model", "models"}) {
    if (Value* layers = recipe.find(section)) additions.add_to_layers(*layers, growth.after);
  }
  return recipe;
}

void check_new_tokens_learn(const Recipe& recipe, const Model& model) {
  if (recipe.dataset.token_growth.new_ids.empty()) return;
  const FrozenRows frozen = frozen_rows(model);
  if (frozen.embeddings.empty()) return;
  const std::string& embedding = frozen.embeddings[0];
  const std::string number = std::to_string(recipe.dataset.token_growth.new_ids.size());
  const std::string what = "the embeddings of the " + number + " new tokens of dataset.add_tokens would never learn: ";
  if (recipe.model.adapters) {
    std::vector<std::string> saved = {last_part(embedding)};
    for (const std::string& head : frozen.heads) saved.push_back(last_part(head));
    throw RecipeError({{recipe.model.adapters->place, recipe.model.adapters->path,
                        what + "beside adapters " + embedding + " is frozen; write modules_to_save: [" + join(saved) +
                            "], so that it is trained and saved as a whole"}});
  }
  if (recipe.model.freeze.empty() || recipe.model.unfreeze_at_epoch) return;
  const NamePattern& pattern = recipe.model.freeze[0];
  throw RecipeError({{pattern.place, "model.freeze", what + embedding + " is frozen; let it be trained"}});
}

std::string added_tokens_text(const Recipe& recipe) {
  const NewTokens& added = recipe.dataset;
  if (added.empty()) return "";
  const TokenGrowth& growth = recipe.dataset.token_growth;
  const std::vector<int64_t>& ids = growth.new_ids;
  const std::vector<std::string> tokenizers = named_tokenizers(recipe);
  std::string text = (tokenizers.empty() ? "the tokenizer" : tokenizers[0]) + ": ";
  if (ids.empty()) {
    text += "no new token";
  } else {
    text += std::to_string(ids.size()) + (ids.size() == 1 ? " new token, id " : " new tokens, ids ") +
            std::to_string(ids.front()) + (ids.size() == 1 ? "" : " to " + std::to_string(ids.back()));
  }
  if (growth.num_known > 0) text += "; " + std::to_string(growth.num_known) + " that it had already";
  return text;
}

std::vector<std::string> new_rows_texts(const Recipe& recipe, const Model& model) {
  if (recipe.dataset.token_growth.new_ids.empty()) return {};
  std::vector<std::string> lines = grown_vocabularies(model.graph());
  for (const FoundRecord& found : find_records(model.graph())) {
    if (found.record->grown_from || found.record->pretrained.empty()) continue;
    lines.push_back(found.record->pretrained + ": its " + found.record->config.at("vocab_size").dump() +
                    " rows have room for the new tokens; embeddings are not resized");
  }
  const FrozenRows frozen = frozen_rows(model);
  if (recipe.model.adapters && !frozen.heads.empty()) {
    lines.push_back(frozen.heads[0] +
                    " is frozen: the model can learn to read the new tokens, but hardly to write them; " +
                    "for that, add " + last_part(frozen.heads[0]) + " to modules_to_save");
  }
  return lines;
}

}  // namespace trainrun
