#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "registry/formats/text/json_node.h"
#include "registry/formats/text/tokenizer.h"

namespace trainrun {

/// Where the tokens of a text, or of a pair of texts, and special tokens go: the `post_processor` of tokenizer.json.
class PostProcessor {
 public:
  /// The texts one after the other.
  PostProcessor();
  /// Throws DataError for a post-processor that is unknown, or not as it should be, or an id of `vocab_size` or more.
  PostProcessor(const JsonNode& node, int64_t vocab_size);
  /// BERT's: [CLS] A [SEP], or [CLS] A [SEP] B [SEP].
  static PostProcessor bert(int64_t cls, int64_t sep);
  /// RoBERTa's: <s> A </s>, or <s> A </s></s> B </s>, all of type 0.
  static PostProcessor roberta(int64_t cls, int64_t sep);

  int64_t special_tokens(bool pair) const;
  Encoding assemble(const std::vector<int64_t>& first, const std::optional<std::vector<int64_t>>& second,
                    bool add_special_tokens) const;

 private:
  struct Piece {
    int text = 0;              // 1 and 2 are the texts, 0 is special tokens
    std::vector<int64_t> ids;  // of special tokens
    int64_t type_id = 0;
  };
  using Template = std::vector<Piece>;
  struct Templates {
    Template single, pair;
  };

  static std::optional<Templates> read(const JsonNode& node, int64_t vocab_size, int depth);
  static Template read_template(const JsonNode& node, const JsonNode& special_tokens, bool pair, int64_t vocab_size);
  static Templates read_template_processing(const JsonNode& node, int64_t vocab_size);
  static std::optional<Templates> read_sequence(const JsonNode& node, int64_t vocab_size, int depth);

  Templates templates_;
};

}  // namespace trainrun
