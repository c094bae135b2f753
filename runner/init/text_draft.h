#pragma once

#include <string>
#include <vector>

#include "runner/init/draft.h"
#include "runner/init/table_draft.h"

namespace trainrun {

/// A small language model of characters, or of the tokens that a tokenizer learns from a large text.
Draft draft_language_model(const std::vector<std::string>& paths, const InitOptions& options);

/// Whether a table is one of texts and their classes: it has a column of sentences, and no other to learn from.
bool reads_as_texts(const TableSight& table, const TableTarget& target);
/// Classes, or quantities, of texts or pairs of texts.
Draft draft_texts(const TableSight& table, const TableTarget& target, const TableFiles& files,
                  const InitOptions& options);

/// Adapters for a language model that learns to answer as in these conversations.
Draft draft_chats(const std::string& path, const InitOptions& options);

/// A folder of a pretrained model.
struct PretrainedFolder {
  std::string source;  // as recipes name it
  std::string type;    // "bert", "llama", as its config.json says
};
/// Throws Error where the folder has no config.json.
PretrainedFolder look_at_weights(const std::string& folder);
/// Of the models in Hugging Face's cache, the first that classifies texts; nothing: there is none.
std::optional<PretrainedFolder> find_text_model();

}  // namespace trainrun
