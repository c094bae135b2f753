#include "runner/base/secrets.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <mutex>

#include "registry/language/interpolation.h"

namespace trainrun {
namespace {

bool has_environment(const Value& scalar) {
  if (scalar.text().find("${") == std::string::npos) return false;
  const std::vector<TextPiece> pieces = parse_pieces(scalar.text());
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const TextPiece& piece) { return piece.kind == TextPiece::Kind::kEnvironment; });
}

struct Hidden {
  std::mutex mutex;
  std::map<std::string, std::string> shown;  // by value
};

Hidden& hidden() {
  static Hidden all;
  return all;
}

}  // namespace

bool is_named_as_secret(const std::string& variable) {
  std::string name = variable;
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const char* word : {"TOKEN", "SECRET", "PASS", "PWD", "KEY", "CREDENTIAL", "AUTH", "COOKIE", "DSN"}) {
    if (name.find(word) != std::string::npos) return true;
  }
  return false;
}

void hide_secret(const std::string& value, const std::string& shown) {
  constexpr size_t kFewestBytes = 4;
  if (value.size() < kFewestBytes) return;
  const std::lock_guard<std::mutex> lock(hidden().mutex);
  hidden().shown[value] = shown;
}

std::string without_secrets(std::string text) {
  const std::lock_guard<std::mutex> lock(hidden().mutex);
  for (const auto& [value, shown] : hidden().shown) {
    for (size_t at = 0; (at = text.find(value, at)) != std::string::npos; at += shown.size()) {
      text.replace(at, value.size(), shown);
    }
  }
  return text;
}

bool may_be_secret(const std::string& variable, const std::string& value, const std::string& section) {
  if (is_named_as_secret(variable)) return true;
  const bool is_free_text =
      section == "dataset" || section == "logging" || section == "name" || section == "output_dir";
  if (!is_free_text || Value::scalar(value, /*quoted=*/false, {}).scalar_type() != ScalarType::kString) return false;
  std::error_code not_there;
  return !std::filesystem::exists(value, not_there);
}

Value with_secrets_kept(Value recipe, const Value& kept, size_t& num_kept) {
  if (recipe.is_scalar() && kept.is_scalar() && has_environment(kept)) {
    ++num_kept;
    return Value::scalar(kept.text(), kept.quoted(), recipe.place());
  }
  for (size_t i = 0; i < std::min(recipe.items().size(), kept.items().size()); ++i) {
    recipe.items()[i] = with_secrets_kept(std::move(recipe.items()[i]), kept.items()[i], num_kept);
  }
  for (Value::Entry& entry : recipe.entries()) {
    const Value* other = kept.find(entry.key);
    if (other) entry.value = with_secrets_kept(std::move(entry.value), *other, num_kept);
  }
  return recipe;
}

}  // namespace trainrun
