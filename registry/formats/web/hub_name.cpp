#include "registry/formats/web/hub_name.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace trainrun {
namespace {

constexpr size_t kMostLetters = 96;  // of each part of a name
constexpr size_t kCommitLength = 40;

bool is_word(std::string_view part) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  const auto is_edge = [](char c) { return c == '-' || c == '.'; };
  return !part.empty() && part.size() <= kMostLetters && std::ranges::all_of(part, is_allowed) &&
         !is_edge(part.front()) && !is_edge(part.back()) && part.find("--") == std::string_view::npos &&
         part.find("..") == std::string_view::npos;
}

/// Whether it ends as files do that a recipe names where a name of the hub may stand.
bool is_file(std::string_view value) {
  constexpr std::array<std::string_view, 10> kEndings = {".json", ".txt", ".model", ".jinja", ".safetensors",
                                                         ".bin",  ".pt",  ".pth",   ".gguf",  ".git"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return value.ends_with(ending); });
}

bool is_revision(std::string_view text) {
  const auto is_allowed = [](char c) {
    return c > ' ' && c != 127 && std::string_view("~^:?*[\\@%#").find(c) == std::string_view::npos;
  };
  return !text.empty() && text.front() != '/' && text.front() != '.' && std::ranges::all_of(text, is_allowed) &&
         text.find("..") == std::string_view::npos;
}

}  // namespace

std::string HubName::text() const { return id + (revision == "main" ? "" : "@" + revision); }

std::string HubName::folder() const {
  std::string name = (kind == HubKind::kModel ? "models--" : "datasets--") + id;
  if (const auto slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
  return name;
}

std::optional<HubName> hub_name_of(const std::string& value, HubKind kind) {
  HubName name;
  name.kind = kind;
  name.id = value.substr(0, value.find('@'));
  if (name.id.size() < value.size()) {
    name.revision = value.substr(name.id.size() + 1);
    if (!is_revision(name.revision)) return std::nullopt;
  }
  const auto slash = name.id.find('/');
  const bool is_one = slash == std::string::npos;
  if (is_file(name.id) || (!is_one && !is_word(name.id.substr(0, slash)))) return std::nullopt;
  if (!is_word(is_one ? name.id : name.id.substr(slash + 1))) return std::nullopt;
  return name;
}

bool is_commit(const std::string& text) {
  return text.size() == kCommitLength &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace trainrun
