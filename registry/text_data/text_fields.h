#pragma once

#include <string>

#include "registry/formats/text/tokenizer.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/text_data/token_windows.h"

namespace trainrun {

/// With what a field of texts that are shorter than the batch's longest is filled up, by its name: what is to be
/// predicted with kNoLabel, tokens with the tokenizer's padding, all else with 0.
inline int64_t text_padding(const std::string& field, const Tokenizer& tokenizer) {
  if (field.ends_with("labels")) return kNoLabel;
  return field.ends_with("input_ids") ? tokenizer.pad_id().value_or(0) : 0;
}

/// `tokenizer`: null as long as the data are not open.
inline FieldFacts text_field(const std::string& field, const Tokenizer* tokenizer) {
  FieldFacts facts;
  if (tokenizer) facts.padding = text_padding(field, *tokenizer);
  return facts;
}

}  // namespace trainrun
