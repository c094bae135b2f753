#pragma once

#include <memory>
#include <string>

#include "registry/formats/text/json_node.h"

namespace trainrun {

/// A piece of text on its way to the model.
struct NormalizedText {
  std::string text;
  /// Whether something was taken away before what is now the first character. (Whether Metaspace marks a word as the
  /// first one depends on it.)
  bool front_removed = false;
};

/// Changes a text before it is split: the `normalizer` of tokenizer.json. Safe to call from several threads.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;
};

/// Throws DataError for a normalizer that is unknown, or not as it should be.
std::unique_ptr<Normalizer> read_normalizer(const JsonNode& node, int depth = 0);

/// BERT's: cleans, puts spaces around Chinese characters, strips accents, turns into lower case.
struct BertNormalizer : Normalizer {
  bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
  void apply(NormalizedText& text) const override;
};

/// SentencePiece's table of replacements (`precompiled_charsmap`): `table` holds its bytes. Throws DataError.
std::unique_ptr<Normalizer> charsmap_normalizer(const std::string& table);

}  // namespace trainrun
