#pragma once

#include <memory>
#include <string>
#include <vector>

#include "registry/formats/text/json_node.h"

namespace trainrun {

/// Makes a text of tokens, which are joined after the last decoder: the `decoder` of tokenizer.json. Safe to call from
/// several threads.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// Throws DataError for a decoder that is unknown, or not as it should be.
std::unique_ptr<Decoder> read_decoder(const JsonNode& node, int depth = 0);

std::unique_ptr<Decoder> word_piece_decoder(const std::string& prefix, bool cleanup);
std::unique_ptr<Decoder> byte_level_decoder();

}  // namespace trainrun
