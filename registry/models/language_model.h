#pragma once

#include <string>
#include <vector>

#include "registry/kinds/batch_fields.h"
#include "registry/models/listing.h"
#include "registry/models/model_config.h"

namespace trainrun {

// What the families of language models share. Their lists of layers call what flows in by its role: input_ids [N, T],
// attention_mask [N, T] (0 where padding is), token_type_ids [N, T], position_ids [N, T].

constexpr const char* kInputIds = "input_ids";
constexpr const char* kAttentionMask = "attention_mask";
constexpr const char* kTokenTypeIds = "token_type_ids";
constexpr const char* kPositionIds = "position_ids";

/// Whether a field of a batch is one of texts: input_ids, chosen_input_ids.
inline bool holds_tokens(const std::string& field) { return field.ends_with(kInputIds); }

/// The inputs of a language model under the names of their roles. Those that the recipe lists under `inputs` have the
/// roles that their names say or, if these are other names, the first of `roles` in their order; without `inputs` they
/// are the fields of the batch that have the roles' names. Throws LayerError where they do not fit.
LayerInputs by_role(const LayerInputs& in, const std::vector<std::string>& roles);
bool has_role(const LayerInputs& inputs, const std::string& role);
/// Those of `names` that are inputs, after `first`.
Names with_roles(const std::string& first, const LayerInputs& inputs, const std::vector<std::string>& names);
/// "inputs: …" of a layer that reads these.
nlohmann::json listed(const Names& names);

/// The end of a setting's documentation: "; null: the value in config, else VALUE".
inline std::string otherwise(const std::string& value) { return "; null: the value in config, else " + value; }

/// The parameter `fields` of a model.
template <class Own>
void describe_fields(Fields<Own>& f) {
  f.optional("fields", &Own::fields)
      .doc("without inputs: the fields of the batch that are read, if the batch has them");
}

constexpr int64_t kMostLayers = 1000;
/// ModelConfig::integer, for a number of layers. Throws DataError for one that no model has.
int64_t layer_count(ModelConfig& config, const std::string& key, const std::optional<int64_t>& own, int64_t fallback);

/// Adds the activation that transformers calls so ("gelu_new") under this name.
void add_activation(Listing& layers, const std::string& name, const std::string& activation, const ModelConfig& config,
                    const std::string& key);
/// Adds the positions of the tokens as `position_ids`, if they are not among the inputs.
void add_positions(Listing& layers, const LayerInputs& inputs, const nlohmann::json& parameters);

/// Draws all weights once more as transformers does: of embeddings and Linears normal with deviation `std`, biases and
/// what padding is embedded as 0. Nothing in the shape mode.
void draw_language_weights(const Graph& graph, double std);

/// Throws LayerError unless `heads` divide `features`.
void require_heads(int64_t features, int64_t heads);

/// What a registered language model builds: the graph with the record of its settings.
Layer language_model(std::shared_ptr<Graph> graph, const ModelConfig& config);

}  // namespace trainrun
