#include <algorithm>
#include <limits>
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

class JsonlTable : public TableReader {
 public:
  explicit JsonlTable(const Jsonl& options, bool takes_other_keys = false)
      : path_(options.path), lines_(options.path, options.encoding) {
    if (!read_object(&names_)) throw DataError(path_ + ": is empty");
    first_is_read_ = true;
    if (options.features) {
      names_ = *options.features;
      for (const std::string& name : options.labels()) names_.push_back(name);
      for (const std::string& name : options.ids()) names_.push_back(name);
    }
    for (size_t i = 0; i < names_.size(); ++i) places_.emplace(names_[i], i);
    others_are_errors_ = !options.features && !takes_other_keys;
    takes_objects_ = takes_other_keys;
  }

  const std::vector<std::string>& names() const override { return names_; }

  bool next(std::vector<Cell>& row) override {
    if (!first_is_read_ && !read_object(nullptr)) return false;
    first_is_read_ = false;
    row.assign(names_.size(), Cell());
    for (const auto& [key, value] : object_.items()) {
      const auto place = places_.find(key);
      if (place != places_.end()) {
        row[place->second] = cell(key, value, 0);
      } else if (others_are_errors_) {  // of all rows like this one, so that none is left out for it
        throw DataError(this->place() + ": the first line has no key '" + key +
                        "'; say in features which keys to read");
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

  /// Also gives its keys in their order, if `names` is not null.
  bool read_object(std::vector<std::string>* names) {
    constexpr int kDeepest = 16;
    do {
      if (!lines_.next(line_)) return false;
    } while (line_.find_first_not_of(" \t\r\n") == std::string::npos);
    std::set<std::string> keys;  // of the object itself
    const auto checked = [&](int depth, Json::parse_event_t event, Json& value) {
      if (depth != 1 || event != Json::parse_event_t::key) return true;
      auto key = value.get<std::string>();
      if (!keys.insert(key).second) fail("the key '" + key + "' occurs twice");
      if (names) names->push_back(std::move(key));
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
  bool takes_objects_ = false;  // which whoever reads them leaves out, or copies
};

class JsonlSource : public TableSource {
 public:
  explicit JsonlSource(Jsonl options, bool takes_other_keys = false)
      : options_(std::move(options)), takes_other_keys_(takes_other_keys) {}
  std::unique_ptr<TableReader> open() const override {
    return std::make_unique<JsonlTable>(options_, takes_other_keys_);
  }
  std::string place(int64_t row_number) const override { return options_.path + ":" + std::to_string(row_number); }
  TableKind kind() const override { return TableKind::kJsonl; }
  /// Its columns are the keys of its first line; other keys are not read.
  std::unique_ptr<TableSource> of_file(const std::string& path) const override {
    Jsonl options = options_;
    options.path = path;
    options.features.reset();
    return std::make_unique<JsonlSource>(std::move(options), true);
  }

 private:
  Jsonl options_;
  bool takes_other_keys_;  // and leaves them out
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
