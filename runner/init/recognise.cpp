#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "registry/data/data_file.h"
#include "registry/data/text_corpus.h"
#include "registry/image_data/image_files.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "runner/base/shell_word.h"
#include "runner/init/array_draft.h"
#include "runner/init/file_encoding.h"
#include "runner/init/image_draft.h"
#include "runner/init/init.h"
#include "runner/init/table_draft.h"
#include "runner/init/text_draft.h"

namespace trainrun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKinds =
    "a table (.csv, .tsv, .jsonl, .parquet, .arrow, .sqlite), a folder with a folder of images for each class, a table "
    "with "
    "a column of image files, a text (.txt) or a folder of texts, a table with a column of texts (--text COLUMN), "
    "conversations (.jsonl with `messages`), or arrays (.npz, .safetensors)";

bool is_text_name(const std::string& path) {
  return has_extension(path, ".txt") || has_extension(path, ".text") || has_extension(path, ".md");
}
bool is_array_name(const std::string& path) {
  return has_extension(path, ".npz") || has_extension(path, ".npy") || has_extension(path, ".safetensors");
}

/// What a part of data is called by people: "train", "eval", "test"; "" for anything else.
std::string part_of(const std::string& name) {
  const std::string lower = lower_ascii(name.substr(0, name.find('.')));
  if (lower == "train" || lower == "training") return "train";
  if (lower == "val" || lower == "valid" || lower == "validation" || lower == "dev" || lower == "eval") return "eval";
  return lower == "test" || lower == "testing" ? "test" : "";
}

const ColumnSight* column_of_images(const TableSight& table) {
  const auto found =
      std::ranges::find_if(table.columns, [](const ColumnSight& one) { return one.is_image && one.texts > 0; });
  return found == table.columns.end() ? nullptr : &*found;
}

/// Tables that are looked through, each once.
class SeenTables {
 public:
  explicit SeenTables(const InitOptions& options) : encoding_(options.encoding) {}
  const TableSight& at(const std::string& path) {
    const auto found = sights_.find(path);
    return found != sights_.end() ? found->second : sights_.emplace(path, look_at_table(path, encoding_)).first->second;
  }

 private:
  std::optional<TextEncoding> encoding_;
  std::map<std::string, TableSight> sights_;
};

/// Where --encoding was written for data that have none.
void note_unused_encoding(const InitOptions& options, Draft& draft) {
  if (options.encoding) draft.doubts.emplace_back("--encoding is not used: it is for files of text");
}

/// What was seen and is doubtful of how a table is read.
void add_reading(const TableSight& table, const InitOptions& options, Draft& draft) {
  if (table.encoding) draft.seen.push_back("encoding: " + word_of(*table.encoding));
  draft.doubts.insert(draft.doubts.end(), table.doubts.begin(), table.doubts.end());
  if (table.type == "Parquet" || table.type == "SQLite") note_unused_encoding(options, draft);
}

/// Throws DataError where two tables cannot be read by one data set of a recipe.
void require_same_encoding(const TableSight& one, const TableSight& other) {
  if (one.encoding == other.encoding) return;
  const TableSight& odd = one.encoding ? one : other;
  throw DataError(odd.path + ": is " + word_of(*odd.encoding) + ", and " + (one.encoding ? other : one).path +
                  " is not, but a recipe names one encoding for both; convert it: " +
                  conversion_command(odd.path, iconv_name(*odd.encoding)));
}

/// What a table called test, which the recipe does not name, is good for.
std::string use_of_test(const std::string& path, const TableSight& test, const TableTarget& target) {
  if (test.find(target.name)) return path + " is not used; `trainrun eval` can evaluate on it";
  return path + " has no " + target.name + "; once the model is trained, `trainrun predict RUN " + shell_word(path) +
         "` predicts it";
}

Draft draft_of_table(const TableFiles& files, const InitOptions& options, SeenTables& tables) {
  const TableSight& table = tables.at(files.train);
  const TableSight* other = nullptr;
  TableFiles used = files;
  if (used.eval.empty() && !used.test.empty()) {
    other = &tables.at(used.test);
    const TableTarget target = choose_target(table, other, options);
    if (other->find(target.name)) {
      require_same_encoding(table, *other);
      used.eval = std::exchange(used.test, "");
    }
  }
  const TableSight* unlabelled = used.test.empty() ? nullptr : other;
  const ColumnSight* image = column_of_images(table);
  const TableTarget target = choose_target(table, unlabelled, options);
  const bool is_of_texts = !options.texts.empty() || reads_as_texts(table, target);
  if (!is_of_texts && !table.quotation_fault.empty()) {
    throw DataError(table.quotation_fault +
                    "; write --text and a column for a model of texts, which takes quotation marks as text");
  }
  const TableSight* evaluated = image && !used.eval.empty() ? &tables.at(used.eval) : nullptr;
  Draft draft = image         ? draft_image_table(table, evaluated, image->name, target, used, options)
                : is_of_texts ? draft_texts(table, target, used, options)
                              : draft_table(table, target, used, options);
  if (!image && !used.test.empty()) draft.doubts.push_back(use_of_test(used.test, tables.at(used.test), target));
  add_reading(table, options, draft);
  return draft;
}

/// Objects of one key, or of keys that conversations have.
std::optional<Draft> draft_of_objects(const std::string& path, const InitOptions& options) {
  if (!is_jsonl(path)) return std::nullopt;
  const auto look = [&](const std::optional<TextEncoding>& encoding) {
    if (encoding && *encoding != TextEncoding::kUtf8) {
      throw DataError(path +
                      ": is JSON, which is UTF-8; convert it: " + conversion_command(path, iconv_name(*encoding)));
    }
    std::vector<std::string> keys;
    for_each_line(path, std::nullopt, [&](std::string_view line, int64_t number) {
      if (keys.empty()) keys = keys_of(json_object(line, path + ":" + std::to_string(number)));
    });
    return keys;
  };
  const std::vector<std::string> keys = look_in_encoding({path}, options.encoding, look);
  const auto has = [&](const char* key) { return std::ranges::find(keys, key) != keys.end(); };
  if (has("messages") || has("conversations") || (has("instruction") && has("output")) ||
      (has("prompt") && has("completion"))) {
    return draft_chats(path, options);
  }
  if (has("chosen") && has("rejected")) {
    throw Error(path +
                ": holds pairs of answers, chosen and rejected; `init` writes no recipe for them: begin with "
                "recipes/dpo_tiny.yaml, whose data are alike");
  }
  if (keys.size() == 1 && keys[0] == "text") return draft_language_model({path}, options);
  return std::nullopt;
}

Draft draft_of_arrays(const std::string& path, const InitOptions& options) {
  Draft draft = draft_arrays(path, options);
  note_unused_encoding(options, draft);
  return draft;
}

Draft draft_of_file(const std::string& path, const InitOptions& options) {
  if (std::optional<Draft> draft = draft_of_objects(path, options)) return std::move(*draft);
  SeenTables tables(options);
  if (is_table_name(path)) return draft_of_table({path, "", ""}, options, tables);
  if (is_array_name(path)) return draft_of_arrays(path, options);
  if (is_text_name(path)) return draft_language_model({path}, options);
  throw Error(path + ": is none of the data that `init` knows: " + kKinds);
}

std::vector<std::string> files_in(const fs::path& folder, const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && !is_hidden_name(name) && is_wanted(name)) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Of several tables in a folder, those whose names tell what they are for.
TableFiles files_of_tables(const std::vector<std::string>& tables, const std::string& folder) {
  TableFiles files;
  for (const std::string& path : tables) {
    const std::string part = part_of(fs::path(path).filename().string());
    std::string* file = part == "train"  ? &files.train
                        : part == "eval" ? &files.eval
                        : part == "test" ? &files.test
                                         : nullptr;
    if (file && !file->empty()) throw Error(*file + " and " + path + " are called alike; name the one to train on");
    if (file) *file = path;
  }
  if (tables.size() == 1) files.train = tables[0];
  if (!files.train.empty()) return files;
  std::vector<std::string> names;
  for (const std::string& path : tables) names.push_back(fs::path(path).filename().string());
  throw Error(folder + ": holds several tables, none of which is called train: " +
              join_first(names, 10, LeftOut::kCount) + "; name one of them");
}

/// Whether a table, the one called train or, if it is not `named`, the only one, names pictures, which lie beside it or in
/// a folder.
bool are_of_pictures(const std::vector<std::string>& paths, bool named, SeenTables& tables) {
  for (const std::string& path : paths) {
    const bool is_wanted = part_of(fs::path(path).filename().string()) == "train" || (!named && paths.size() == 1);
    if (!is_wanted || !has_extension(path, ".csv")) continue;
    const ColumnSight* image = column_of_images(tables.at(path));
    if (image && !find_named_images(path, *image).paths.empty()) return true;
  }
  return false;
}

/// Nothing where pictures are not sorted into folders, or their folders are not what is to be learnt.
std::optional<ImageFolders> class_folders(const std::string& path, const std::vector<std::string>& paths,
                                          SeenTables& tables) {
  if (are_of_pictures(paths, /*named=*/true, tables)) return std::nullopt;
  try {
    return find_image_folders(path);
  } catch (const Error&) {  // one folder alone
    if (!are_of_pictures(paths, /*named=*/false, tables)) throw;
    return std::nullopt;
  }
}

Draft draft_of_folder(const std::string& path, const InitOptions& options) {
  const auto paths = files_in(path, is_table_name);
  SeenTables tables(options);
  if (std::optional<ImageFolders> folders = class_folders(path, paths, tables)) {
    Draft draft = draft_image_folders(*folders, options);
    note_unused_encoding(options, draft);
    if (!paths.empty()) {
      draft.doubts.push_back(join_first(paths, 3, LeftOut::kCount) +
                             ": not read; the folders' names are the classes. To learn from a table, name it");
    }
    return draft;
  }
  if (!paths.empty()) return draft_of_table(files_of_tables(paths, path), options, tables);
  if (const auto texts = files_in(path, is_text_name); !texts.empty()) return draft_language_model(texts, options);
  const auto arrays = files_in(path, is_array_name);
  if (arrays.size() == 1) return draft_of_arrays(arrays[0], options);
  throw Error(path + ": holds none of the data that `init` knows: " + kKinds);
}

}  // namespace

Draft draft_recipe(const InitOptions& options) {
  if (!fs::exists(options.data)) throw Error("there is no " + options.data);
  return fs::is_directory(options.data) ? draft_of_folder(options.data, options) : draft_of_file(options.data, options);
}

}  // namespace trainrun
