#include <algorithm>
#include <iterator>
#include <limits>
#include <list>
#include <mutex>
#include <set>
#include <unordered_map>

#include "registry/data/tables/table.h"
#include "registry/data/tables/table_sources.h"
#include "registry/data/text_corpus.h"
#include "registry/data/text_file.h"
#include "registry/formats/files/json_depth.h"
#include "registry/kinds/dataset.h"

namespace trainrun {
namespace {

using Json = nlohmann::json;  // an object in the order of the file would take time with the square of its keys

struct Jsonl : TableOptions {
  TextEncoding encoding = TextEncoding::kUtf8;

  static void describe(Fields<Jsonl>& f) {
    TableOptions::describe_into(f);
    f.optional("encoding", &Jsonl::encoding).doc(kEncodingHelp);
  }
  void check(Checker& checker) const { check_options(checker); }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// What a row can be: an object in which no more than this lies in each other.
constexpr int kDeepest = 16;

/// Gathers the keys of all objects of a file that can be read, each behind the one that it first comes behind, so that a
/// key that the first object lacks is where it would be if that had it.
class KeysOfFile {
 public:
  KeysOfFile(std::string path, TextEncoding encoding) : path_(std::move(path)), lines_(path_, encoding) {}

  std::vector<std::string> gathered() {
    while (next_line()) {
      if (is_object()) add_keys();
    }
    return {names_.begin(), names_.end()};
  }

 private:
  /// Passes over what whoever reads the rows is told of.
  bool next_line() {
    for (;;) {
      try {
        return lines_.next(line_);
      } catch (const ReadError&) {
        throw;
      } catch (const DataError&) {
        if (lines_.number() == last_broken_) return false;
        last_broken_ = lines_.number();
      }
    }
  }

  bool is_object() {
    keys_.clear();
    const auto kept = [this](int depth, Json::parse_event_t event, Json& value) {
      if (event != Json::parse_event_t::key) return true;
      if (depth == 1) keys_.push_back(value.get<std::string>());
      return false;  // values are not wanted
    };
    try {
      check_json_depth(line_, kDeepest, path_);
      check_json_size(line_, kMostJsonValues, path_);
      return Json::parse(line_, kept).is_object();
    } catch (const Json::exception&) {
      return false;
    } catch (const DataError&) {
      return false;
    }
  }

  void add_keys() {
    constexpr size_t kMostMore = 10'000;  // each row takes time and memory for every one of them
    const auto is_known = [this](const std::string& key) { return known_.contains(key); };
    if (std::all_of(keys_.begin(), keys_.end(), is_known)) return;
    if (std::set<std::string>(keys_.begin(), keys_.end()).size() < keys_.size()) return;  // one occurs twice
    auto next = names_.begin();
    for (const std::string& key : keys_) {
      const auto found = known_.find(key);
      if (found != known_.end()) {
        next = std::next(found->second);
        continue;
      }
      known_.emplace(key, names_.insert(next, key));
      if (num_of_first_ > 0 && names_.size() - num_of_first_ > kMostMore) {
        throw DataError(path_ + ":" + std::to_string(lines_.number()) + ": with this object there are more than " +
                        std::to_string(kMostMore) +
                        " keys that the first does not have, and each is a column; leave out of the file what is not "
                        "needed, or, in a recipe, say in features which keys to read");
      }
    }
    if (num_of_first_ == 0) num_of_first_ = names_.size();
  }

  std::string path_;
  TextLines lines_;
  std::string line_;
  int64_t last_broken_ = -1;
  std::vector<std::string> keys_;  // of the line
  std::list<std::string> names_;
  std::unordered_map<std::string, std::list<std::string>::iterator> known_;  // of these
  size_t num_of_first_ = 0;
};

class JsonlTable : public TableReader {
 public:
  explicit JsonlTable(const Jsonl& options, bool takes_objects)
      : path_(options.path), lines_(options.path, options.encoding), takes_objects_(takes_objects) {
    if (!read_object()) throw DataError(path_ + ": is empty");
    first_is_read_ = true;
  }

  /// The columns, to be said before the first row; `are_all`: all keys of the file.
  void set_names(std::vector<std::string> names, bool are_all) {
    names_ = std::move(names);
    for (size_t i = 0; i < names_.size(); ++i) places_.emplace(names_[i], i);
    others_are_errors_ = are_all;
  }

  const std::vector<std::string>& names() const override { return names_; }

  bool next(std::vector<Cell>& row) override {
    if (!first_is_read_ && !read_object()) return false;
    first_is_read_ = false;
    row.assign(names_.size(), Cell());
    for (const auto& [key, value] : object_.items()) {
      const auto place = places_.find(key);
      if (place != places_.end()) {
        row[place->second] = cell(key, value, 0);
      } else if (others_are_errors_) {
        throw DataError(this->place() + ": the file was changed while it was read: the key '" + key + "' is new");
      }
    }
    return true;
  }

  int64_t row_number() const override { return lines_.number(); }

 private:
  std::string place() const { return path_ + ":" + std::to_string(lines_.number()); }
  [[noreturn]] void fail(const std::string& fault) const { throw RowError(place() + ": " + fault); }
  [[noreturn]] void fail_at(const std::string& column, const std::string& fault) const {
    throw RowError(place() + ":" + column + ": " + fault);
  }

  bool read_object() {
    do {
      if (!lines_.next(line_)) return false;
    } while (line_.find_first_not_of(" \t\r\n") == std::string::npos);
    std::set<std::string> keys;  // of the object itself
    const auto checked = [&](int depth, Json::parse_event_t event, Json& value) {
      if (depth != 1 || event != Json::parse_event_t::key) return true;
      const auto key = value.get<std::string>();
      if (!keys.insert(key).second) fail("the key '" + key + "' occurs twice");
      return true;
    };
    check_json_depth(line_, kDeepest, place());
    check_json_size(line_, kMostJsonValues, place());
    try {
      object_ = Json::parse(line_, checked);
    } catch (const Json::exception& error) {
      const bool is_table = lines_.number() == 1 && line_.find_first_of("{[\"") == std::string::npos;
      fail("is not JSON" +
           (is_table ? "; of a table with a delimiter between columns write type: CSV" : ": " + json_fault(error)));
    }
    if (!object_.is_object()) {
      fail(std::string("expected an object, {\"column\": value, …}, found ") + object_.type_name() +
           (object_.is_array() ? "; put each object on a line of its own, without brackets around them" : ""));
    }
    return true;
  }

  Cell cell(const std::string& key, const Json& value, int depth) const {
    Cell cell;
    if (value.is_string()) {
      cell.kind = Cell::Kind::kText;
      cell.text = value.get<std::string>();
    } else if (value.is_boolean()) {
      cell.kind = Cell::Kind::kInteger;
      cell.is_boolean = true;
      cell.integer = value.get<bool>() ? 1 : 0;
    } else if (value.is_number_integer() &&
               (!value.is_number_unsigned() || value.get<uint64_t>() <= std::numeric_limits<int64_t>::max())) {
      cell.kind = Cell::Kind::kInteger;
      cell.integer = value.get<int64_t>();
    } else if (value.is_number()) {
      cell.kind = Cell::Kind::kNumber;
      cell.number = value.get<double>();
    } else if (value.is_array()) {
      cell.kind = Cell::Kind::kList;
      for (const Json& item : value) cell.list.push_back(this->cell(key, item, depth + 1));
    } else if (value.is_object() && takes_objects_) {
      cell.kind = Cell::Kind::kObject;
      for (const auto& [own, item] : value.items()) {
        cell.keys.push_back(own);
        cell.list.push_back(this->cell(key, item, depth + 1));
      }
    } else if (!value.is_null()) {
      fail_at(key, "an object within an object cannot be read; name the keys that are to be read in features");
    }
    return cell;
  }

  std::string path_;
  TextLines lines_;
  std::string line_;
  Json object_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> places_;  // of these
  bool first_is_read_ = false;
  bool others_are_errors_ = true;
  bool takes_objects_;
};

class JsonlSource : public TableSource {
 public:
  explicit JsonlSource(Jsonl options, bool takes_objects = false)
      : options_(std::move(options)), takes_objects_(takes_objects) {}
  std::unique_ptr<TableReader> open() const override {
    auto table = std::make_unique<JsonlTable>(options_, takes_objects_);
    if (options_.features) {
      std::vector<std::string> names = *options_.features;
      for (const std::string& name : options_.labels()) names.push_back(name);
      for (const std::string& name : options_.ids()) names.push_back(name);
      table->set_names(std::move(names), /*are_all=*/false);
    } else {
      table->set_names(keys(), /*are_all=*/true);
    }
    return table;
  }
  std::string place(int64_t row_number) const override { return options_.path + ":" + std::to_string(row_number); }
  TableKind kind() const override { return TableKind::kJsonl; }
  /// Its columns are the keys of all its lines.
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    Jsonl options = options_;
    options.path = path;
    options.features.reset();
    return std::make_unique<JsonlSource>(std::move(options), true);
  }

 private:
  /// Looked for once.
  const std::vector<std::string>& keys() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!keys_) keys_ = KeysOfFile(options_.path, options_.encoding).gathered();
    return *keys_;
  }

  Jsonl options_;
  bool takes_objects_;  // which whoever reads them leaves out, or copies
  mutable std::mutex mutex_;
  mutable std::optional<std::vector<std::string>> keys_;  // of the file
};

std::unique_ptr<Dataset> Jsonl::build(const DatasetInputs& inputs) const {
  return make_table(*this, std::make_unique<JsonlSource>(*this), inputs);
}

}  // namespace

std::unique_ptr<TableSource> jsonl_source(const TableOptions& options) {
  Jsonl jsonl;
  static_cast<TableOptions&>(jsonl) = options;
  return std::make_unique<JsonlSource>(std::move(jsonl));
}

std::unique_ptr<TableSource> jsonl_source(const std::string& path) { return JsonlSource(Jsonl()).of_file(path); }

void add_jsonl(DatasetRegistry& datasets) {
  datasets.add<Jsonl>("JSONL", "one JSON object in each line, as text or .gz: its keys as features, one key as label");
}

}  // namespace trainrun
