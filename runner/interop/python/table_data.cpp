#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

#include "runner/interop/python/data.h"
#include "runner/interop/python/expression.h"
#include "runner/interop/python/parts.h"
#include "runner/interop/python/table_columns.h"

// Rows of a table, arrays of a file, and windows over rows, as tensors.

namespace trainrun::python {
namespace {

using nlohmann::json;
using Set = Component<DatasetKind>;

constexpr const char* kWindowsOfRows = R"(def windows_of(rows, starts, length, horizon):
    """What precedes the moment of a forecast, the target's own past included, and what follows."""
    series = torch.cat([rows["features"], rows["label"]], 1)
    past = starts.unsqueeze(1) + torch.arange(length)
    future = starts.unsqueeze(1) + length + torch.arange(horizon)
    return {"features": series[past], "label": rows["label"][future].flatten(1)}
)";

constexpr const char* kAsNumbers = R"(def as_numbers(tensor):
    """Pixels, which are bytes, from 0 to 1; other numbers as they are."""
    return tensor / 255 if tensor.dtype == torch.uint8 else tensor.float()
)";

std::string strings(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + quoted(item);
  return "[" + text + "]";
}

const Value* written(const Set& set, const std::string& key) {
  const Value* value = set.written.find(key);
  return value && value->is_null() ? nullptr : value;
}

/// `fold: …`: the part of the training data that a model is evaluated on.
struct Fold {
  int64_t index = 0;
  int64_t count = 0;
};

std::optional<Fold> fold_of(const Recipe& recipe, SourceFile& file) {
  if (!recipe.dataset.fold) return std::nullopt;
  const auto* section = std::get_if<FoldSection>(&*recipe.dataset.fold);
  if (section && (section->stratify || section->group)) {
    file.refuse(recipe.dataset.train.place, "dataset.fold", "folds by class or group are not written");
  }
  if (section && section->folds) {
    if (!section->index)
      file.note("the recipe trains all " + std::to_string(*section->folds) +
                " folds; the program trains the first, index 0");
    return Fold{section->index.value_or(0), *section->folds};
  }
  const std::string text = section ? section->part.value_or("") : std::get<std::string>(*recipe.dataset.fold);
  return Fold{std::stoll(text.substr(0, text.find('/'))) - 1, std::stoll(text.substr(text.find('/') + 1))};
}

/// Reads a table into the fields of the program.
class TableWriter {
 public:
  TableWriter(const DataSource& source, const Set& train, const Set* eval)
      : source_(source), train_(train), eval_(eval) {}

  /// Adds `load_table` to the file, which returns the rows of training and of evaluation as tensors.
  void write() {
    if (!train_.attributes.at("label").is_string()) {
      source_.refuse("several labels are not written; save the data as a TensorFile");
      return;
    }
    for (const Set* set : {&train_, eval_}) {
      if (set)
        source_.allow(*set, {"path", "label", "id", "features", "columns", "task", "num_classes", "split", "subset",
                             "delimiter", "na_values"});
    }
    source_.file.import("import numpy as np");
    source_.file.import("import pandas as pd");
    text_columns_ = TextColumns::of(source_, train_, label_is_number_);
    if (text_columns_) text_columns_->define(source_.file, options());
    if (!text_columns_) read_columns();
    std::string text = "def load_table():\n    \"\"\"The rows for training and for evaluation as tensors.\"\"\"\n";
    text += rows();
    text += (text_columns_ ? text_columns_->learnt() : "") + "\n    def tensors(rows):\n" +
            (text_columns_ ? text_columns_->tensors() : fields());
    text += "\n    return tensors(train)" + std::string(has_eval() ? ", tensors(evaluation)" : "") + "\n";
    source_.file.define("load_table", text);
  }
  bool has_eval() const { return eval_ || source_.recipe.dataset.fold; }

 private:
  std::string label() const { return train_.attributes.at("label").get<std::string>(); }

  void read_columns() {
    const Value* columns = written(train_, "columns");
    for (const auto& entry : columns ? columns->entries() : std::vector<Value::Entry>()) {
      const Value* type = entry.value.is_map() ? entry.value.find("type") : &entry.value;
      const Value* missing = entry.value.is_map() ? entry.value.find("missing") : nullptr;
      const std::string kind = type ? type->text() : "number";
      for (const auto& option : entry.value.is_map() ? entry.value.entries() : std::vector<Value::Entry>()) {
        if (option.key != "type" && option.key != "missing") {
          source_.file.refuse(option.key_place, train_.path + ".columns." + entry.key,
                              "'" + option.key + "' of a column is not written");
        }
      }
      if (kind != "number") own_fields_.push_back(entry.key);
      if (missing && missing->text() != "error") fill(entry.key, *missing);
    }
  }

  void fill(const std::string& column, const Value& missing) {
    const std::string& way = missing.text();
    const bool is_learnt = way == "mean" || way == "median";
    filled_ += (filled_.empty() ? "" : ", ") + quoted(column) + ": " +
               (is_learnt ? "train[" + quoted(column) + "]." + way + "()" : literal(missing));
  }

  std::string options() const {
    const std::string delimiter = train_.attributes.value("delimiter", std::string(","));
    return delimiter == "," ? "" : ", sep=" + quoted(delimiter);
  }

  std::string read(const std::string& path) const {
    return text_columns_ ? "read_rows(" + path + ")" : "pd.read_csv(" + path + options() + ")";
  }

  std::string rows() {
    const std::string path = literal(train_.attributes.at("path"));
    std::string text;
    const auto train_part = part_of(source_, train_, "len(table)", "table[" + quoted(label()) + "]");
    const auto eval_part =
        eval_ ? part_of(source_, *eval_, "len(table)", "table[" + quoted(label()) + "]") : std::nullopt;
    const auto fold = fold_of(source_.recipe, source_.file);
    if (fold) {
      text += "    table = " + read(path) + "\n";
      text += "    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(SEED))\n";
      text += "    folds = torch.tensor_split(order, " + std::to_string(fold->count) + ")\n";
      text += "    held_out = folds[" + std::to_string(fold->index) + "].sort().values.numpy()\n";
      text += "    train, evaluation = table.drop(table.index[held_out]), table.iloc[held_out]\n";
    } else if (train_part) {
      text += "    table = " + read(path) + "\n";
      text += "    parts = " + train_part->numbers + "\n";
      text += "    train = table.iloc[" + train_part->rows() + "]\n";
      if (eval_part && eval_part->numbers == train_part->numbers) {
        text += "    evaluation = table.iloc[" + eval_part->rows() + "]\n";
      } else if (eval_) {
        source_.file.refuse(eval_->place, eval_->path,
                            "training and evaluation data that are not parts of one split are not written");
      }
    } else {
      text += "    train = " + read(path) + "\n";
      if (eval_) text += "    evaluation = " + read(literal(eval_->attributes.at("path"))) + "\n";
    }
    if (const auto& subset = train_.common.subset) {
      const auto* count = std::get_if<int64_t>(&*subset);
      if (!count) source_.refuse("a subset of numbered rows is not written");
      if (count) text += "    train = train[:" + std::to_string(*count) + "]\n";
    }
    return text;
  }

  std::string fields() {
    std::string text;
    const bool fills = !filled_.empty();
    if (fills) text += "        rows = rows.fillna({" + filled_ + "})\n";
    text += "        return {\n";
    const auto numbers = number_columns();
    if (!numbers.empty()) {
      source_.file.constant("FEATURES", strings(numbers));
      text += "            \"features\": torch.tensor(rows[FEATURES].to_numpy(np.float32)),\n";
    } else if (all_features_) {
      text += "            \"features\": torch.tensor(rows.drop(columns=" + strings(dropped()) +
              ").to_numpy(np.float32)),\n";
    }
    for (const std::string& name : own_fields_) {
      if (name == label()) continue;
      text += "            " + quoted(name) + ": torch.tensor(rows[" + quoted(name) + "].to_numpy(np.int64)),\n";
    }
    text += "            \"label\": " + label_tensor() + ",\n";
    return text + "        }\n";
  }

  std::string label_tensor() {
    const std::string column = "rows[" + quoted(label()) + "]";
    const Value* task = written(train_, "task");
    const bool is_regression = task ? task->text() == "regression" : label_is_number_;
    if (is_regression) return "torch.tensor(" + column + ".to_numpy(np.float32)).unsqueeze(1)";
    return "torch.tensor(" + column + ".to_numpy(np.int64))";
  }

  std::vector<std::string> dropped() const {
    std::vector<std::string> names = {label()};
    const json& id = train_.attributes.at("id");
    if (id.is_string()) names.push_back(id.get<std::string>());
    if (id.is_array()) {
      for (const json& name : id) names.push_back(name.get<std::string>());
    }
    for (const std::string& name : own_fields_) {
      if (name != label()) names.push_back(name);
    }
    return names;
  }

  /// Those that the recipe lists; none: all others of the table.
  std::vector<std::string> number_columns() {
    const json& features = train_.attributes.at("features");
    all_features_ = features.is_null();
    std::vector<std::string> names;
    if (all_features_) return names;
    for (const json& item : features) {
      const auto name = item.get<std::string>();
      if (std::ranges::find(own_fields_, name) == own_fields_.end()) names.push_back(name);
    }
    return names;
  }

 public:
  void set_label_is_number(bool is_number) { label_is_number_ = is_number; }
  std::set<std::string> wide() const { return text_columns_ ? text_columns_->wide() : std::set<std::string>(); }

 private:
  const DataSource& source_;
  const Set& train_;
  const Set* eval_;
  std::optional<TextColumns> text_columns_;  // null: numbers alone
  std::vector<std::string> own_fields_;      // integers
  std::string filled_;
  bool all_features_ = false;
  bool label_is_number_ = false;
};

/// Whether the label of a table is a number, as the data set itself says.
bool is_number_label(const Set& set, const Recipe& recipe) {
  const DatasetInfo info = set.build({static_cast<uint64_t>(recipe.seed)})->info();
  const FieldInfo* target = info.find(info.target);
  return target && at::isFloatingType(target->dtype);
}

}  // namespace

Data table_data(const DataSource& source) {
  TableWriter writer(source, source.train, source.recipe.dataset.fold ? nullptr : source.eval);
  writer.set_label_is_number(is_number_label(source.train, source.recipe));
  writer.write();
  Data data;
  data.statements = {std::string(writer.has_eval() ? "train_data, eval_data" : "train_data") + " = load_table()"};
  data.wide = writer.wide();
  return data;
}

namespace {

/// The first rows of windows, as the options of a Windows say.
std::string starts_of(const Set& set, const std::string& rows) {
  const auto number = [&](const char* key) { return set.attributes.at(key).get<int64_t>(); };
  const int64_t length = number("length") + number("horizon");
  const std::string end =
      "len(" + rows + "[\"label\"])" + (number("holdout") > 0 ? " - " + std::to_string(number("holdout")) : "");
  if (const json& origins = set.attributes.at("origins"); !origins.is_null()) {
    const std::string back = "torch.arange(" + std::to_string(origins.get<int64_t>() - 1) + ", -1, -1)" +
                             (number("stride") > 1 ? " * " + std::to_string(number("stride")) : "");
    return end + " - " + std::to_string(length) + " - " + back;
  }
  return "torch.arange(0, " + end + " - " + std::to_string(length - 1) +
         (number("stride") > 1 ? ", " + std::to_string(number("stride")) : "") + ")";
}

Component<DatasetKind> inner_of(const Set& set) {
  const Value* inner = set.written.find("dataset");
  Component<DatasetKind> component = set;
  component.written = *inner;
  component.path = set.path + ".dataset";
  component.place = inner->place();
  component.type = inner->find("type") ? inner->find("type")->text() : "";
  component.attributes = json::object();
  for (const auto& entry : inner->entries()) {
    if (entry.value.is_scalar()) {
      component.attributes[entry.key] = entry.value.text();
    } else if (entry.value.is_list()) {
      json items = json::array();
      for (const Value& item : entry.value.items()) items.push_back(item.text());
      component.attributes[entry.key] = items;
    }
  }
  for (const char* key : {"id", "features"}) {
    if (!component.attributes.contains(key)) component.attributes[key] = nullptr;
  }
  return component;
}

}  // namespace

Data windows_data(const DataSource& source) {
  for (const Set* set : {&source.train, source.eval}) {
    if (set) source.allow(*set, {"dataset", "length", "horizon", "stride", "holdout", "origins", "time", "gaps"});
  }
  const Set train = inner_of(source.train);
  const std::optional<Set> eval = source.eval ? std::optional(inner_of(*source.eval)) : std::nullopt;
  if (train.type != "CSV") {
    source.refuse("windows are written over the rows of a CSV alone");
    return {};
  }
  const bool is_one_table = eval && same_meaning(train.written, eval->written);
  TableWriter writer(source, train, is_one_table || !eval ? nullptr : &*eval);
  writer.set_label_is_number(true);
  writer.write();
  source.file.define("windows_of", kWindowsOfRows);
  const auto call = [&](const Set& set, const std::string& rows) {
    const auto size = [&](const char* key) { return set.attributes.at(key).dump(); };
    return "windows_of(" + rows + ", " + starts_of(set, rows) + ", length=" + size("length") +
           ", horizon=" + size("horizon") + ")";
  };
  Data data;
  data.wide = writer.wide();
  const std::string eval_rows = is_one_table || !eval ? "train_rows" : "eval_rows";
  data.statements = {std::string(eval_rows == "eval_rows" ? "train_rows, eval_rows" : "train_rows") + " = load_table()",
                     "train_data = " + call(source.train, "train_rows")};
  if (source.eval) data.statements.push_back("eval_data = " + call(*source.eval, eval_rows));
  return data;
}

Data tensor_file_data(const DataSource& source) {
  for (const Set* set : {&source.train, source.eval}) {
    if (set) source.allow(*set, {"path", "fields", "target", "num_classes", "split", "subset"});
  }
  const Value* path = written(source.train, "path");
  if (!path) {
    source.refuse("arrays in files of their own are not written; save them as one .npz");
    return {};
  }
  const DatasetInfo info = source.train.build({static_cast<uint64_t>(source.recipe.seed)})->info();
  const bool is_safe = path->text().ends_with(".safetensors");
  source.file.import(is_safe ? "from safetensors.torch import load_file" : "import numpy as np");
  const Value* fields = written(source.train, "fields");
  std::string text = "def load_arrays(path):\n    \"\"\"One row of each tensor is a sample.\"\"\"\n    arrays = " +
                     std::string(is_safe ? "load_file(path)" : "np.load(path)") + "\n    return {\n";
  for (const FieldInfo& field : info.fields) {
    const Value* other = fields && fields->is_map() ? fields->find(field.name) : nullptr;
    const std::string name = quoted(other ? other->text() : field.name);
    const std::string tensor = is_safe ? "arrays[" + name + "]" : "torch.from_numpy(arrays[" + name + "])";
    const bool is_integer = at::isIntegralType(field.dtype, true);
    if (!is_integer) source.file.define("as_numbers", kAsNumbers);
    const std::string cast = field.dtype == at::kByte ? tensor
                             : is_integer             ? tensor + ".long()"
                                                      : "as_numbers(" + tensor + ")";
    text += "        " + quoted(field.name) + ": " + cast + ",\n";
  }
  source.file.define("load_arrays", text + "    }\n");
  Data data;
  for (const FieldInfo& field : info.fields) {
    if (field.dtype == at::kByte) data.bytes.insert(field.name);
  }
  const std::string classes = "arrays[" + quoted(info.target) + "].tolist()";
  const auto train_part = part_of(source, source.train, "count", classes);
  if (!train_part) {
    data.statements = calls("load_arrays(" + literal(*path) + ")",
                            source.eval ? "load_arrays(" + literal(*written(*source.eval, "path")) + ")" : "");
    return data;
  }
  data.statements = {"arrays = load_arrays(" + literal(*path) + ")",
                     "count = len(arrays[" + quoted(info.fields[0].name) + "])", "parts = " + train_part->numbers};
  const auto rows = [](const Part& part) {
    return "{name: tensor[" + part.rows() + "] for name, tensor in arrays.items()}";
  };
  data.statements.push_back("train_data = " + rows(*train_part));
  if (!source.eval) return data;
  const auto eval_part = part_of(source, *source.eval, "count", classes);
  if (eval_part && eval_part->numbers == train_part->numbers) {
    data.statements.push_back("eval_data = " + rows(*eval_part));
  } else {
    source.refuse("training and evaluation data that are not parts of one split are not written");
  }
  return data;
}

}  // namespace trainrun::python
