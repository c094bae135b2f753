#include "registry/formats/text/vocabulary.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace trainrun {

Vocabulary::Vocabulary(const JsonNode& node) {
  if (!node.value().is_object()) node.fail("expected an object of tokens and their ids");
  ids_.reserve(node.value().size());
  tokens_.reserve(node.value().size());
  for (const auto& [token, id] : node.value().items()) {
    // a node for each of 250,000 tokens would take longer than all the rest
    const bool good = id.is_number_unsigned() && id.get<uint64_t>() <= static_cast<uint64_t>(kMostTokenId);
    if (!good) node.at(token).integer(0, kMostTokenId);
    const auto number = id.get<int64_t>();
    if (!add(token, number)) {
      node.fail("the id " + std::to_string(number) + " is given to \"" + *this->token(number) + "\" and to \"" + token +
                "\"");
    }
  }
}

bool Vocabulary::add(const std::string& token, int64_t id) {
  if (tokens_.contains(id)) return false;
  const auto [place, is_new] = ids_.emplace(token, id);
  if (!is_new) return false;
  tokens_.emplace(id, &place->first);  // a map's keys stay where they are
  highest_id_ = std::max(highest_id_, id);
  return true;
}

}  // namespace trainrun
