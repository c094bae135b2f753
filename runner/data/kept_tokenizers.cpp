#include "runner/data/kept_tokenizers.h"

#include <algorithm>
#include <filesystem>

#include "registry/data/characters.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/language/error.h"
#include "runner/recipe/recipe.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTokenizerKey = "tokenizer";
constexpr uint64_t kMostTokenizerFileBytes = uint64_t{1} << 30;  // of one of a tokenizer's files

void find_texts(const Value& value, const std::string& key, std::vector<std::string>& found) {
  const Value* own = value.find(key);
  const bool is_text = own && own->is_scalar() && !own->is_null();
  if (is_text && std::ranges::find(found, own->text()) == found.end()) found.push_back(own->text());
  for (const Value::Entry& entry : value.entries()) find_texts(entry.value, key, found);
  for (const Value& item : value.items()) find_texts(item, key, found);
}

void replace_texts(Value& value, const std::string& key, const std::string& from, const std::string& to) {
  Value* own = value.find(key);
  if (own && own->is_scalar() && own->text() == from) *own = Value::scalar(to, true, own->place());
  for (Value::Entry& entry : value.entries()) replace_texts(entry.value, key, from, to);
  for (Value& item : value.items()) replace_texts(item, key, from, to);
}

/// "": it cannot be read.
std::string digest_now(const std::string& path) {
  try {
    return tokenizer_digest(path);
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::vector<std::string> texts_under(const Value& value, const std::string& key) {
  std::vector<std::string> found;
  find_texts(value, key, found);
  return found;
}

std::vector<std::string> named_tokenizers(const Recipe& recipe) {
  std::vector<std::string> found;
  find_texts(recipe.dataset.train.written, kTokenizerKey, found);
  for (size_t i = 0; recipe.dataset.eval && i < recipe.dataset.eval->sets.size(); ++i) {
    find_texts(recipe.dataset.eval->sets[i].data.written, kTokenizerKey, found);
  }
  std::erase(found, kCharacters);
  return found;
}

json keep_tokenizers(const Recipe& recipe, const std::string& folder) {
  json kept;
  for (const std::string& path : named_tokenizers(recipe)) {
    const std::vector<std::string> files = files_of_tokenizer(path);
    const std::string copy = "tokenizers/" + std::to_string(kept.size());
    const bool is_file = !files.empty() && fs::is_regular_file(path);
    const std::string named = is_file ? copy + "/" + fs::path(files[0]).filename().string() : copy;
    const std::string digest = tokenizer_digest(path);
    if (digest_now(folder + "/" + named) != digest) {
      create_folders(folder + "/" + copy);
      for (const std::string& file : files) {
        const std::string to = folder + "/" + copy + "/" + fs::path(file).filename().string();
        write_file_atomically(to, read_file(file, kMostTokenizerFileBytes));
      }
    }
    kept.push_back({{"path", path}, {"sha256", digest}, {"copy", named}});
  }
  return kept;
}

void use_kept_tokenizers(Value& recipe, const json& kept, const std::string& folder, std::vector<std::string>& notes) {
  const std::vector<std::string> named = texts_under(recipe, kTokenizerKey);
  for (const json& one : kept) {
    const auto path = one.at("path").get<std::string>();
    const auto digest = one.at("sha256").get<std::string>();
    const bool is_named = std::ranges::find(named, path) != named.end();
    if (!is_named) continue;
    const std::string now = digest_now(path);
    if (now == digest) continue;
    const std::string copy = folder + "/" + one.at("copy").get<std::string>();
    const std::string fault = now.empty() ? "is no longer there" : "is no longer as it was in training";
    if (digest_now(copy) != digest) {
      throw DataError("the tokenizer " + path + " " + fault + ", and neither is the run's copy of it, " + copy);
    }
    replace_texts(recipe, kTokenizerKey, path, copy);
    notes.push_back("the tokenizer " + path + " " + fault + "; the run's copy of it is used, " + copy);
  }
}

}  // namespace trainrun
