#include <nlohmann/json.hpp>

#include "registry/kinds/dataset.h"
#include "runner/interop/python/data.h"
#include "runner/interop/python/expression.h"

// Texts, or pairs of texts, with a class or a number each.

namespace trainrun::python {
namespace {

using nlohmann::json;
using Set = Component<DatasetKind>;

constexpr const char* kReadTable = R"(def read_table(path):
    """The rows of a table of texts, labels as texts, too."""
LINES
)";

constexpr const char* kLabelledTexts = R"(class LabelledTexts(Dataset):
    """The texts of each row, and its label."""

    def __init__(self, table, labels):
        self.rows = list(zip(*(table[column].tolist() for column in TEXT_COLUMNS), labels, strict=True))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]
)";

constexpr const char* kCollate = R"(def collate_with(tokenizer):
    """Makes a batch of rows: texts as tokens, filled up to the longest of them."""

    def collate(rows):
        *texts, labels = zip(*rows, strict=True)
        options = {"truncation": True, "max_length": MAX_LENGTH, "padding": PADDING}
        tokens = tokenizer(*map(list, texts), return_tensors="pt", return_token_type_ids=True, **options)
        return dict(tokens) | {"labels": LABELS}

    return collate
)";

constexpr const char* kSortedClasses = R"(def sorted_classes(labels):
    """The different labels: numbers by their size, others by their letters."""
    try:
        return sorted(set(labels), key=float)
    except ValueError:
        return sorted(set(labels))
)";

bool ends_with(const std::string& path, const std::string& ending) {
  return path.ends_with(ending) || path.ends_with(ending + ".gz");
}

/// The lines of `read_table` for files like this one; "": no program is written for these.
std::string reading(const std::string& path, SourceFile& file) {
  const std::string options = "dtype=str, na_filter=False, encoding=\"utf-8-sig\")";
  if (ends_with(path, ".csv")) return "    return pd.read_csv(path, " + options;
  if (ends_with(path, ".tsv") || ends_with(path, ".txt")) {
    file.import("import csv");
    return "    return pd.read_csv(path, sep=\"\\t\", quoting=csv.QUOTE_NONE, " + options;
  }
  const std::string as_texts =
      "    table[LABEL] = [label if isinstance(label, str) else json.dumps(label) for label in table[LABEL]]\n"
      "    return table";
  if (path.ends_with(".jsonl")) {
    return "    with open(path, encoding=\"utf-8-sig\") as file:\n"
           "        table = pd.DataFrame([json.loads(line) for line in file if line.strip()], dtype=object)\n" +
           as_texts;
  }
  if (path.ends_with(".parquet")) return "    table = pd.read_parquet(path).astype(object)\n" + as_texts;
  return "";
}

bool same_way(const std::string& path, const std::string& other, SourceFile& file) {
  return reading(path, file) == reading(other, file);
}

}  // namespace

Data text_classification_data(const DataSource& source) {
  for (const Set* set : {&source.train, source.eval}) {
    if (set) {
      source.allow(*set,
                   {"path", "text_columns", "label", "classes", "task", "tokenizer", "max_length", "padding", "cache"});
    }
  }
  SourceFile& file = source.file;
  const json& attributes = source.train.attributes;
  const auto path = attributes.at("path").get<std::string>();
  const auto eval_path = source.eval ? source.eval->attributes.at("path").get<std::string>() : path;
  const std::string lines = reading(path, file);
  if (lines.empty() || !same_way(path, eval_path, file)) {
    source.refuse(
        "TextClassification is written for .csv, .tsv, .txt, .jsonl and .parquet files, of one kind for "
        "training and evaluation");
    return {};
  }
  for (const char* line :
       {"import pandas as pd", "from torch.utils.data import Dataset", "from transformers import AutoTokenizer"}) {
    file.import(line);
  }
  const json& columns = attributes.at("text_columns");
  const json names = columns.is_string() ? json::array({columns}) : columns;
  file.constant("TEXT_COLUMNS", literal(names));
  file.constant("LABEL", literal(attributes.at("label")));
  file.constant("TOKENIZER", literal(attributes.at("tokenizer")));
  file.constant("MAX_LENGTH", attributes.at("max_length").dump());
  const DatasetInfo info = source.train.build({static_cast<uint64_t>(source.recipe.seed)})->info();
  const FieldInfo* labels = info.find("labels");
  const bool are_numbers = labels && at::isFloatingType(labels->dtype);
  file.define("read_table", replaced(kReadTable, "LINES\n", lines + "\n"));
  file.define("LabelledTexts", kLabelledTexts);
  std::string collate =
      replaced(kCollate, "PADDING", attributes.at("padding") == "max_length" ? "\"max_length\"" : "True");
  collate = replaced(collate, "LABELS", are_numbers ? "torch.tensor(labels).unsqueeze(1)" : "torch.tensor(labels)");
  file.define("collate_with", collate);
  Data data;
  data.is_tensors = false;
  data.loader_arguments = ", collate_fn=collate";
  data.statements = {"collate = collate_with(AutoTokenizer.from_pretrained(TOKENIZER))",
                     "train_table = read_table(" + quoted(path) + ")"};
  if (!are_numbers) {
    const json& classes = attributes.at("classes");
    if (classes.is_null()) file.define("sorted_classes", kSortedClasses);
    std::string listed = classes.is_null() ? "" : literal(classes);
    if (!listed.empty()) listed = "[" + listed.substr(1, listed.size() - 2) + "]";
    data.statements.push_back("classes = " + (listed.empty() ? "sorted_classes(train_table[LABEL])" : listed));
  }
  const auto texts_of = [&](const std::string& table) {
    return "LabelledTexts(" + table + ", " +
           (are_numbers ? table + "[LABEL].astype(float).tolist())" : "map(classes.index, " + table + "[LABEL]))");
  };
  data.statements.push_back("train_data = " + texts_of("train_table"));
  if (!source.eval) return data;
  data.statements.push_back("eval_table = read_table(" + quoted(eval_path) + ")");
  data.statements.push_back("eval_data = " + texts_of("eval_table"));
  return data;
}

}  // namespace trainrun::python
