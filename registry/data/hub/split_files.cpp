#include "registry/data/hub/split_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>

#include "registry/data/data_file.h"
#include "registry/data/hub/path_glob.h"
#include "registry/language/error.h"
#include "registry/language/text_view.h"

namespace trainrun {
namespace {

using Paths = std::vector<std::string>;

/// Files by the split that they are of, in the order in which splits are listed.
using Splits = std::vector<std::pair<std::string, Paths>>;

struct SplitWords {
  const char* split;
  std::vector<std::string> words;
};

const std::vector<SplitWords>& split_words() {
  static const std::vector<SplitWords> all = {{"train", {"train", "training"}},
                                              {"validation", {"validation", "valid", "dev", "val"}},
                                              {"test", {"test", "testing", "eval", "evaluation"}}};
  return all;
}

Paths parts_of(const std::string& path) {
  Paths parts;
  for (const auto& part : std::filesystem::path(path)) parts.push_back(part.string());
  return parts;
}

/// What no pattern takes unless it names it: hidden files and folders, and those that begin with two underscores.
bool is_hidden(const std::string& file) {
  const Paths parts = parts_of(file);
  return std::ranges::any_of(parts, [&](const std::string& part) {
    return part.starts_with('.') || (part.starts_with("__") && &part != &parts.back());
  });
}

bool is_separator(char c) { return is_digit(c) || c == '-' || c == '.' || c == '_' || c == ' '; }

/// Whether `name` has one of the words between separators. `ends`: also at its end.
bool has_word(std::string_view name, const Paths& words, bool ends) {
  size_t begin = 0;
  for (size_t i = 0; i <= name.size(); ++i) {
    const bool is_end = i == name.size();
    if (!is_end && !is_separator(name[i])) continue;
    const std::string word(name.substr(begin, i - begin));
    if ((!is_end || ends) && std::ranges::find(words, word) != words.end()) return true;
    begin = i + 1;
  }
  return false;
}

/// Whether a file is of a split by the names of its folders, or by its own.
bool is_of_split(const std::string& file, const Paths& words, bool by_folders) {
  const Paths parts = parts_of(file);
  if (!by_folders) return has_word(parts.back(), words, /*ends=*/false);
  return std::any_of(parts.begin(), parts.end() - 1,
                     [&](const std::string& folder) { return has_word(folder, words, /*ends=*/true); });
}

std::string shown_files(const Paths& files) {
  constexpr size_t kMostShown = 6;
  const Paths first(files.begin(), files.begin() + static_cast<std::ptrdiff_t>(std::min(files.size(), kMostShown)));
  return join(first) + (files.size() > kMostShown ? ", …" : "");
}

/// "data/SPLIT-00000-of-00001….EXTENSION": the split; "" for another file.
std::string split_of_shard(const std::string& file) {
  constexpr std::string_view kFolder = "data/";
  constexpr std::string_view kNumbers = "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*";
  if (!file.starts_with(kFolder)) return "";
  const std::string name = file.substr(kFolder.size());
  const size_t of = name.find("-of-");
  constexpr size_t kDigits = 6;  // with the dash
  if (of == std::string::npos || of <= kDigits) return "";
  const std::string split = name.substr(0, of - kDigits);
  return matches_glob(kNumbers, name.substr(split.size())) ? split : "";
}

/// The known splits first, then the others by name.
Splits in_order(std::map<std::string, Paths> found) {
  Splits splits;
  for (const SplitWords& known : split_words()) {
    if (const auto own = found.find(known.split); own != found.end()) {
      splits.emplace_back(own->first, std::move(own->second));
      found.erase(own);
    }
  }
  for (auto& [split, files] : found) splits.emplace_back(split, std::move(files));
  return splits;
}

/// What the names of files below `folder` tell, in the order in which `datasets` tries. `of_all`: the files from which a
/// name tells nothing are the split train.
Splits splits_by_name(const Paths& files, const std::string& folder, const std::string& name) {
  Paths below;
  for (const std::string& file : files) {
    if (folder.empty() || file.starts_with(folder + "/")) below.push_back(file);
  }
  const auto inner = [&](const std::string& file) { return folder.empty() ? file : file.substr(folder.size() + 1); };
  std::map<std::string, Paths> found;
  for (const std::string& file : below) {
    if (const std::string split = split_of_shard(inner(file)); !split.empty()) found[split].push_back(file);
  }
  for (const bool by_folders : {true, false}) {
    if (!found.empty()) break;
    for (const std::string& file : below) {
      Paths of;
      for (const SplitWords& known : split_words()) {
        if (is_of_split(inner(file), known.words, by_folders)) of.emplace_back(known.split);
      }
      if (of.size() > 1) {
        throw DataError(name + ": the name of " + file + " is that of the splits " + join(of) +
                        "; say by files which are meant");
      }
      if (!of.empty()) found[of[0]].push_back(file);
    }
  }
  if (found.empty() && !below.empty()) found["train"] = below;
  return in_order(std::move(found));
}

/// The folders at the top that may be configurations: what they are called is neither a split nor "data".
std::set<std::string> config_folders(const Paths& files) {
  std::set<std::string> folders;
  for (const std::string& file : files) {
    const Paths parts = parts_of(file);
    const bool is_split = std::ranges::any_of(
        split_words(), [&](const SplitWords& known) { return has_word(parts[0], known.words, /*ends=*/true); });
    if (parts.size() > 1 && parts[0] != "data" && !is_split) folders.insert(parts[0]);
  }
  return folders;
}

Paths matching(const Paths& files, const std::string& pattern) {
  Paths found;
  for (const std::string& file : files) {
    if (file == pattern || (matches_glob(pattern, file) && !is_hidden(file))) found.push_back(file);
  }
  return found;
}

/// Those that the card lists for the splits of a configuration. Files of other kinds are left to who reads them.
Splits splits_of_card(const Paths& files, const CardConfig& config, const std::string& name) {
  Splits splits;
  for (const NamedFiles& own : config.splits) {
    Paths found;
    for (const std::string& written : own.patterns) {
      std::string pattern = config.folder.empty() ? written : config.folder + "/" + written;
      if (pattern.starts_with("./")) pattern.erase(0, 2);
      const Paths matches = matching(files, pattern);
      if (matches.empty()) {
        throw DataError(name + ": its card lists " + pattern + " for the split " + own.split + " of " + config.name +
                        ", but there is no such file");
      }
      for (const std::string& file : matches) {
        if (std::ranges::find(found, file) == found.end()) found.push_back(file);
      }
    }
    splits.emplace_back(own.split, std::move(found));
  }
  return splits;
}

template <class Named>
Paths names_of_all(const std::vector<Named>& all) {
  Paths names;
  for (const Named& one : all) names.push_back(one.name);
  return names;
}

/// "; did you mean en? It has de, en"
std::string known_text(const std::string& wanted, const Paths& known) {
  const std::string near = nearest(wanted, known);
  return (near.empty() ? "" : "; did you mean " + near + "?") + (near.empty() ? "; it has " : " It has ") + join(known);
}

const CardConfig& config_of_card(const DatasetCard& card, const std::optional<std::string>& wanted,
                                 const std::string& name) {
  const std::vector<CardConfig>& all = card.configs;
  const Paths names = names_of_all(all);
  if (wanted) {
    const auto found = std::ranges::find(all, *wanted, &CardConfig::name);
    if (found == all.end()) throw DataError(name + ": has no config " + *wanted + known_text(*wanted, names));
    return *found;
  }
  if (all.size() == 1) return all[0];
  for (const bool says_so : {true, false}) {
    const auto found = std::ranges::find_if(
        all, [&](const CardConfig& one) { return says_so ? one.is_default : one.name == "default"; });
    if (found != all.end()) return *found;
  }
  throw DataError(name + ": has several configs; say which: config: " + names[0] + "; it has " + join(names));
}

/// The split itself, or the one that it is another word for.
std::pair<std::string, Paths> chosen(const Splits& splits, const std::string& wanted, const std::string& name) {
  Paths names;
  std::vector<const std::pair<std::string, Paths>*> same;
  for (const auto& split : splits) {
    if (split.first == wanted) return split;
    names.push_back(split.first);
    for (const SplitWords& known : split_words()) {
      const auto has = [&](const std::string& word) {
        return std::ranges::find(known.words, word) != known.words.end();
      };
      if (has(wanted) && has(split.first)) same.push_back(&split);
    }
  }
  if (same.size() == 1) return *same[0];
  throw DataError(name + ": has no split " + wanted + known_text(wanted, names));
}

/// Says what a repository without a file that is read holds instead.
[[noreturn]] void fail_without_files(const Paths& all, const std::string& name) {
  const bool has_script = std::ranges::any_of(all, [](const std::string& file) { return file.ends_with(".py"); });
  throw DataError(
      name + ": has no Parquet, CSV or JSON lines files" +
      (has_script
           ? "; a script makes its data, which is not run: try revision: refs/convert/parquet, where the hub keeps "
             "most such data as Parquet"
       : all.empty() ? "; it is empty"
                     : "; it has " + shown_files(all)));
}

void require_one_kind(const SplitFiles& found, const std::string& name) {
  for (const std::string& file : found.files) {
    const auto kind = hub_file_kind(file);
    if (!kind) {
      throw DataError(name + ": " + file +
                      " is not a file that is read: expected .parquet, .csv, .tsv, .jsonl or .json (an object a line)");
    }
    if (kind == hub_file_kind(found.files[0])) continue;
    throw DataError(name + ": the split " + found.split + " has files of several kinds, " + found.files[0] + " and " +
                    file + "; say by files which are meant: files: '**" +
                    std::filesystem::path(found.files[0]).extension().string() + "'");
  }
}

/// Where the card lists nothing.
Splits splits_without_card(const Paths& readable, const SplitQuery& query, const std::string& name) {
  const std::set<std::string> folders = config_folders(readable);
  const Paths names(folders.begin(), folders.end());
  if (query.config && *query.config != "default" && !folders.contains(*query.config)) {
    throw DataError(name + ": has no config " + *query.config +
                    (names.empty() ? "; it has none at all: leave config out" : known_text(*query.config, names)));
  }
  const bool is_folder = query.config && folders.contains(*query.config);
  Splits splits = splits_by_name(readable, is_folder ? *query.config : "", name);
  const std::set<std::string> several = config_folders(chosen(splits, query.wanted_split(), name).second);
  if (!is_folder && several.size() > 1) {
    throw DataError(name + ": the split " + query.wanted_split() +
                    " lies in several folders, and its card does not say what they "
                    "are; say by config, or by files, which is meant: config: " +
                    *several.begin() + "; it has " + join(Paths(several.begin(), several.end())));
  }
  return splits;
}

}  // namespace

std::optional<HubFileKind> hub_file_kind(const std::string& file) {
  const auto ends = [&](const char* extension) { return has_extension(file, extension); };
  if (file.ends_with(".parquet")) return HubFileKind::kParquet;
  if (ends(".csv")) return HubFileKind::kCsv;
  if (ends(".tsv")) return HubFileKind::kTsv;
  if (ends(".jsonl") || ends(".json") || ends(".ndjson")) return HubFileKind::kJsonl;
  return std::nullopt;
}

SplitFiles find_split(const std::vector<std::string>& files, const DatasetCard& card, const SplitQuery& query,
                      const std::string& name) {
  constexpr std::array kOfTheSetItself = {"config.json", "dataset_info.json", "dataset_infos.json",
                                          "dataset_dict.json"};
  Paths sorted = files;
  std::ranges::sort(sorted);
  Paths readable;
  for (const std::string& file : sorted) {
    const std::string last = parts_of(file).back();
    const bool is_of_set = std::ranges::find(kOfTheSetItself, last) != kOfTheSetItself.end();
    if (hub_file_kind(file) && !is_hidden(file) && !is_of_set) readable.push_back(file);
  }
  SplitFiles found;
  found.config = query.config.value_or("default");
  found.split = query.wanted_split();
  if (query.files) {
    found.files = matching(sorted, *query.files);
    if (found.files.empty()) {
      throw DataError(name + ": has no file " + *query.files + suggestion(*query.files, sorted) + "; it has " +
                      shown_files(readable));
    }
    if (query.split)
      std::tie(found.split, found.files) = chosen(splits_by_name(found.files, "", name), *query.split, name);
  } else if (!card.configs.empty()) {
    const CardConfig& config = config_of_card(card, query.config, name);
    const Splits splits =
        config.splits.empty() ? splits_by_name(readable, config.folder, name) : splits_of_card(sorted, config, name);
    if (splits.empty()) {
      throw DataError(name + ": its config " + config.name + " has no files that are read" +
                      (config.folder.empty() ? "" : " in the folder " + config.folder));
    }
    found.config = config.name;
    found.delimiter = config.delimiter;
    found.unread = config.unread;
    std::tie(found.split, found.files) = chosen(splits, query.wanted_split(), name);
  } else {
    if (readable.empty()) fail_without_files(sorted, name);
    const Splits splits = splits_without_card(readable, query, name);
    std::tie(found.split, found.files) = chosen(splits, query.wanted_split(), name);
  }
  require_one_kind(found, name);
  return found;
}

std::string missing_shard(const std::vector<std::string>& files) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  std::map<std::pair<std::string, std::string>, std::set<std::string>> numbers;  // by what stands before and after them
  for (const std::string& file : files) {
    const size_t of = file.rfind(kOf);
    if (of == std::string::npos || of < kDigits + 1 || file.size() < of + kOf.size() + kDigits) continue;
    const std::string number = file.substr(of - kDigits, kDigits);
    const std::string total = file.substr(of + kOf.size(), kDigits);
    if (std::ranges::all_of(number + total, is_digit)) numbers[{file.substr(0, of - kDigits), total}].insert(number);
  }
  for (const auto& [around, there] : numbers) {
    for (int64_t number = 0; number < std::stoll(around.second); ++number) {
      std::string digits = std::to_string(number);
      digits.insert(0, kDigits - std::min(digits.size(), kDigits), '0');
      if (!there.contains(digits)) return around.first + digits + std::string(kOf) + around.second;
    }
  }
  return "";
}

}  // namespace trainrun
