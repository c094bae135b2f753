#include "runner/recipe/recipe_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "registry/formats/files/regular_file.h"
#include "registry/language/interpolation.h"
#include "runner/base/limits.h"
#include "runner/recipe/interpolate.h"
#include "runner/recipe/merge.h"
#include "runner/recipe/yaml.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBaseDepth = 16;
constexpr size_t kMaxFiles = 64;
constexpr size_t kMaxFallbacks = 8;  // defaults within defaults

/// The name of an existing file near `path`, with the folder as `path` has it, or "".
std::string nearest_file(const fs::path& path) {
  std::error_code ignored;  // a folder that cannot be listed has nothing to suggest
  for (const char* extension : {".yaml", ".yml"}) {
    const fs::path with_extension = path.string() + extension;
    if (fs::is_regular_file(with_extension, ignored)) return with_extension.string();
  }
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  constexpr size_t kMostNames = 1000;
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end && names.size() < kMostNames;
       it.increment(ignored)) {
    if (it->is_regular_file(ignored)) names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string near = nearest(path.filename().string(), names);
  return near.empty() ? "" : (path.parent_path() / near).string();
}

std::string did_you_mean(const std::string& near) { return near.empty() ? "" : "; did you mean " + near + "?"; }

/// A file that could not be had, and why.
struct Unread {
  std::string error;
  bool is_refused = false;  // it is there, and the system did not let us read it
};

/// The file's text, or nothing with `unread` set.
std::optional<std::string> read_recipe(const std::string& path, Unread& unread) {
  try {
    const Descriptor file = open_regular_file(path);
    std::string text(kMaxRecipeBytes + 1, '\0');  // one more than parse_yaml accepts
    size_t size = 0;
    while (size < text.size()) {
      const ssize_t got = ::read(file.number(), text.data() + size, text.size() - size);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw ReadError(path, "read", errno);
      if (got == 0) break;
      size += static_cast<size_t>(got);
    }
    text.resize(size);
    return text;
  } catch (const ReadError& error) {
    unread.is_refused = !error.is_missing();
    unread.error = unread.is_refused ? error.what() : "no such file" + did_you_mean(nearest_file(path));
  } catch (const DataError& error) {
    unread.error = error.what();
  }
  if (unread.error.starts_with(path + ": ")) unread.error.erase(0, path.size() + 2);
  std::error_code unknown;
  if (fs::is_directory(path, unknown)) unread.error = "this is a folder, not a recipe";
  return std::nullopt;
}

/// Loads a file and what it is based on.
class FileLoader {
 public:
  FileLoader(std::vector<Problem>& problems, MergeTags& tags) : problems_(problems), tags_(tags) {}

  /// The mapping in `path`, merged with its bases, or nothing where a file is missing or unusable. Problems that
  /// concern the file as a whole go to `mention`, where it was named.
  std::optional<Value> load(const std::string& path, const Problem& mention) {
    const auto fail = [&](const std::string& message) {
      problems_.push_back({mention.place, mention.path, message});
      return std::nullopt;
    };
    std::error_code ignored;  // a path that cannot be resolved is compared as written
    const fs::path resolved = fs::weakly_canonical(path, ignored);
    const std::string identity = ignored ? path : resolved.string();
    const auto is_same = [&](const OpenFile& file) { return file.identity == identity; };
    const auto start = std::find_if(open_.begin(), open_.end(), is_same);
    if (start != open_.end()) {
      std::string chain;
      for (auto it = start; it != open_.end(); ++it) chain += it->path + " -> ";
      return fail("recipes that are based on each other: " + chain + path);
    }
    if (open_.size() >= kMaxBaseDepth) return fail("more than " + std::to_string(kMaxBaseDepth) + " bases in a row");
    if (++num_files_ > kMaxFiles) return fail("more than " + std::to_string(kMaxFiles) + " files in one recipe");
    Unread unread;
    const auto text = read_recipe(path, unread);
    if (!text && unread.is_refused && unreadable_.empty()) unreadable_ = path + ": " + unread.error;
    if (!text) return fail((is_base(mention) ? path + ": " : "") + unread.error);
    const size_t problems_before = problems_.size();
    Value recipe = parse_yaml(*text, std::make_shared<const std::string>(path), problems_, &tags_);
    const bool is_yaml = path.ends_with(".yaml") || path.ends_with(".yml");
    const bool has_faults = recipe.is_null() && problems_.size() > problems_before;
    if (is_base(mention) && !recipe.is_map() && !(is_yaml && has_faults)) {  // a file of passwords, perhaps: not shown
      problems_.resize(problems_before);
      return fail(path + " is not a recipe: it does not hold a mapping (key: value)");
    }
    if (has_faults) return std::nullopt;
    if (!recipe.is_map()) {
      problems_.push_back({recipe.place(), "", "a recipe is a mapping (key: value), found " + recipe.describe()});
      return std::nullopt;
    }
    open_.push_back({identity, path});
    auto merged = merge_bases(std::move(recipe), path);
    open_.pop_back();
    return merged;
  }

  /// Of a file that is there and could not be read: why; "" for none.
  const std::string& unreadable() const { return unreadable_; }

 private:
  static bool is_base(const Problem& mention) { return !mention.path.empty(); }

  struct OpenFile {
    std::string identity;
    std::string path;
  };

  std::optional<Value> merge_bases(Value recipe, const std::string& path) {
    const Value* base = recipe.find("base");
    if (!base) return recipe;
    bool whole = true;
    Value merged = Value::map({}, recipe.place());
    const auto add = [&](const Value& name, const std::string& where) {
      auto loaded = load_base(name, where, path);
      whole = whole && loaded;
      if (loaded) merge_into(merged, std::move(*loaded), tags_);
    };
    if (base->is_list()) {
      for (size_t i = 0; i < base->items().size(); ++i) add(base->items()[i], "base[" + std::to_string(i) + "]");
    } else if (!base->is_null()) {
      add(*base, "base");
    }
    if (!whole) return std::nullopt;
    recipe.erase("base");
    merge_into(merged, std::move(recipe), tags_);
    return merged;
  }

  std::optional<Value> load_base(const Value& name, const std::string& where, const std::string& recipe_path) {
    const auto fail = [&](const std::string& message) {
      problems_.push_back({name.place(), where, message});
      return std::nullopt;
    };
    if (!name.is_scalar() || name.text().empty())
      return fail("expected the path of a recipe, found " + name.describe());
    std::string error;
    const auto text = with_environment(name.text(), error);
    if (!text) return fail(error);
    const std::string beside = (fs::path(recipe_path).parent_path() / *text).lexically_normal().string();
    const std::string from_here = fs::path(*text).lexically_normal().string();
    for (const std::string& candidate : {beside, from_here}) {
      std::error_code ignored;  // what cannot be looked at is reported as missing
      const fs::file_status status = fs::status(candidate, ignored);
      if (fs::exists(status) && !fs::is_directory(status)) return load(candidate, {name.place(), where, ""});
    }
    std::string near = nearest_file(beside);
    if (near.empty()) near = nearest_file(from_here);
    const std::string also = beside == from_here ? "" : ", nor " + from_here;
    return fail("there is no file " + beside + also + did_you_mean(near));
  }

  /// `text` with its `${env:…}` replaced: the rest of the recipe is not known yet.
  static std::optional<std::string> with_environment(const std::string& text, std::string& error, size_t depth = 0) {
    std::string result;
    for (const TextPiece& piece : parse_pieces(text)) {
      std::optional<std::string> part = piece.text;
      if (piece.kind == TextPiece::Kind::kEnvironment) {
        const char* found = std::getenv(piece.text.c_str());
        const bool falls_back = piece.fallback && !(found && *found);
        if (falls_back && depth < kMaxFallbacks) {
          part = with_environment(*piece.fallback, error, depth + 1);
        } else if (found) {
          part = found;
        } else {
          error = "the environment variable " + piece.text + " is not set";
          part.reset();
        }
      } else if (piece.kind == TextPiece::Kind::kReference || piece.kind == TextPiece::Kind::kExpression) {
        error = piece.source + ": the bases are read before the values; only ${env:…} can stand here";
        part.reset();
      } else if (piece.kind == TextPiece::Kind::kMalformed) {
        error = piece.text;
        part.reset();
      }
      if (!part) return std::nullopt;
      result += *part;
    }
    return result;
  }

  std::vector<Problem>& problems_;
  MergeTags& tags_;             // of all files
  std::vector<OpenFile> open_;  // from the recipe to the base being read
  size_t num_files_ = 0;
  std::string unreadable_;
};

/// Merged and overridden, a recipe may be larger than each of its parts.
bool is_within_bounds(const Value& recipe, std::vector<Problem>& problems) {
  const auto report = [&](size_t bound, const std::string& what) {
    problems.push_back({recipe.place(), "", "with its bases and overrides, more than " + std::to_string(bound) + what});
    return false;
  };
  if (depth_of(recipe) > kMaxRecipeDepth) return report(kMaxRecipeDepth, " levels deep");
  if (weight_of(recipe) > kMaxRecipeValues) return report(kMaxRecipeValues, " values");
  return true;
}

enum class Level { kRoot, kModel, kBlocks, kElsewhere };

void escape(Value& value, Level level) {
  if (level == Level::kBlocks) return;
  if (value.is_scalar()) value = Value::scalar(escape_references(value.text()), value.quoted(), value.place());
  for (Value& item : value.items()) escape(item, Level::kElsewhere);
  for (Value::Entry& entry : value.entries()) {
    Level next = Level::kElsewhere;
    if (level == Level::kRoot && entry.key == "model") next = Level::kModel;
    if (level == Level::kModel && entry.key == "blocks") next = Level::kBlocks;
    escape(entry.value, next);
  }
}

}  // namespace

ResolvedRecipe resolve_recipe(const std::string& path, const std::vector<std::string>& overrides) {
  ResolvedRecipe result;
  const fs::path folder = fs::path(path).parent_path();
  result.directory = folder.empty() ? "." : folder.string();
  MergeTags tags;
  const std::vector<Override> changes = parse_overrides(overrides, result.problems, tags);
  Problem mention;
  mention.place = {std::make_shared<const std::string>(path), 1, 1};
  FileLoader loader(result.problems, tags);
  auto recipe = loader.load(path, mention);
  result.unreadable = loader.unreadable();
  if (recipe) {
    report_unremoved(*recipe, tags, result.problems);
    for (const Override& change : changes) apply_override(*recipe, change, tags, result.problems);
    if (is_within_bounds(*recipe, result.problems)) {
      result.value = interpolate(*recipe, result.problems);
      result.kept = interpolate_but_secrets(*recipe);
    }
  }
  sort_problems(result.problems);
  return result;
}

Value escape_interpolation(const Value& resolved) {
  Value result = resolved;
  escape(result, Level::kRoot);
  return result;
}

bool same_recipe(const Value& a, const Value& b) { return same_meaning(a, b); }

}  // namespace trainrun
