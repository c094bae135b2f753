#pragma once

#include <optional>
#include <string>

namespace trainrun {

/// What Hugging Face's hub keeps under a name.
enum class HubKind { kModel, kDataset };

/// A repository of the hub at one of its revisions.
struct HubName {
  HubKind kind = HubKind::kModel;
  std::string id;                 // "org/name" or "name"
  std::string revision = "main";  // a branch, a tag, or a commit

  /// As a recipe writes it: "org/name@revision", without "@main".
  std::string text() const;
  /// "models--org--name", its folder in the hub's cache.
  std::string folder() const;
};

/// The name that a value "org/name@revision" or "name" is. Nothing where it is a path, which begins with '.', '/' or '~',
/// has more folders, or ends as files do ("a/tokenizer.json"), or where the hub has no such names.
std::optional<HubName> hub_name_of(const std::string& value, HubKind kind = HubKind::kModel);

/// Whether this is the full name of a commit: 40 hexadecimal digits.
bool is_commit(const std::string& text);

}  // namespace trainrun
