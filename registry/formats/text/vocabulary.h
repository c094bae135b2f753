#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "registry/formats/text/json_node.h"

namespace trainrun {

/// Lets maps with texts as keys be asked for a part of a text.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// Tokens and their ids.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;
  ~Vocabulary() = default;
  /// {"token": id, …}. Throws DataError where an id is not a number from 0 to kMostTokenId, or is given twice.
  explicit Vocabulary(const JsonNode& node);

  /// False if the token is there already, or the id is another one's.
  bool add(const std::string& token, int64_t id);
  std::optional<int64_t> find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Null for an id that is nobody's.
  const std::string* token(int64_t id) const {
    const auto found = tokens_.find(id);
    return found == tokens_.end() ? nullptr : found->second;
  }
  size_t size() const { return ids_.size(); }
  /// -1 if there is none.
  int64_t highest_id() const { return highest_id_; }

 private:
  std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>> ids_;
  std::unordered_map<int64_t, const std::string*> tokens_;
  int64_t highest_id_ = -1;
};

}  // namespace trainrun
