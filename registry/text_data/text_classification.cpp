#include "registry/data/tables/arrow_library.h"
#include "registry/kinds/dataset.h"
#include "registry/text_data/encoded_texts.h"

namespace trainrun {
namespace {

struct TextClassification : EncodingOptions {
  std::string path;
  std::variant<std::string, std::vector<std::string>> text_columns = std::string("text");
  std::string label = "label";
  std::optional<std::vector<std::string>> classes;
  TextEncoding encoding = TextEncoding::kUtf8;
  std::optional<std::string> task;
  std::string broken = "error";

  static void describe(Fields<TextClassification>& f) {
    f.required("path", &TextClassification::path)
        .doc(
            "a file, plain or .gz: .csv with quoted fields, .jsonl, or (.tsv, .txt) lines with tabs between fields, in "
            "which quotation marks are text; the first line names the columns. Or a .parquet, .arrow or .feather file");
    f.optional("text_columns", &TextClassification::text_columns)
        .doc(
            "the column of the texts, or a list of two whose texts are "
            "encoded as pairs");
    f.optional("label", &TextClassification::label).doc("the column of the classes, or of the numbers");
    f.optional("classes", &TextClassification::classes)
        .not_empty("expected at least one class")
        .doc(
            "the classes as the file writes them, in their order; null: those "
            "of the training samples, sorted");
    f.optional("encoding", &TextClassification::encoding).doc(kEncodingHelp);
    f.optional("task", &TextClassification::task)
        .one_of({"classification", "regression"})
        .doc(
            "classification: the label is a class, given as [N] int64; regression: a number, given as [N, 1] float32; "
            "null: regression if every loss that reads the labels learns numbers (MSELoss, L1Loss, …) and no classes "
            "are listed, else classification, which refuses labels that are fractions");
    f.optional("broken", &TextClassification::broken)
        .one_of({"error", "skip"})
        .doc("what to do with a row without a label: error: stop and name it; skip: leave it out and count it");
    EncodingOptions::describe_into(f);
  }
  std::vector<std::string> columns() const {
    if (const auto* one = std::get_if<std::string>(&text_columns)) return {*one};
    return std::get<std::vector<std::string>>(text_columns);
  }
  void check(Checker& checker) const {
    if (encoding != TextEncoding::kUtf8 && is_arrow_file(path)) {
      checker.fail("encoding", "is for files of text; Parquet and Arrow files hold UTF-8");
    }
    if (classes && task == "regression") checker.fail("classes", "are for the task classification");
    const std::vector<std::string> names = columns();
    if (names.empty() || names.size() > 2) checker.fail("text_columns", "expected one column or two");
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == label) checker.fail("label", "is one of text_columns");
      if (i > 0 && names[i] == names[0]) checker.fail("text_columns", "names one column twice");
    }
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const {
    using Target = EncodedTexts::Target;
    const Target target = !task ? Target::kLikelyClass : *task == "regression" ? Target::kNumber : Target::kClass;
    TextTableOptions source{path, columns(), label, {}, false, encoding};
    source.can_leave_out_unlabelled = true;
    source.leaves_out_unlabelled = broken == "skip";
    return std::make_unique<EncodedTexts>(std::move(source), *this, classes, std::nullopt, target);
  }
};

enum class MrpcPart { kTrain, kTest };

}  // namespace

template <>
struct Words<MrpcPart> {
  static constexpr std::array kWords = {"train", "test"};
};

namespace {

/// Source: Dolan and Brockett 2005, "Automatically Constructing a Corpus of
/// Sentential Paraphrases".
struct Mrpc : EncodingOptions {
  std::string root;
  MrpcPart split = MrpcPart::kTrain;

  static void describe(Fields<Mrpc>& f) {
    f.required("root", &Mrpc::root)
        .doc(
            "the folder of msr_paraphrase_train.txt and "
            "msr_paraphrase_test.txt");
    f.required("split", &Mrpc::split).doc("train: 4,076 pairs; test: 1,725");
    EncodingOptions::describe_into(f);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const {
    const bool is_train = split == MrpcPart::kTrain;
    const std::string file = root + "/msr_paraphrase_" + (is_train ? "train" : "test") + ".txt";
    TextTableOptions source{file, {"#1 String", "#2 String"}, "Quality", {}};
    source.is_chosen = false;
    return std::make_unique<EncodedTexts>(std::move(source), *this, std::vector<std::string>{"0", "1"},
                                          is_train ? 4076 : 1725);
  }
};

}  // namespace

void add_text_classification(DatasetRegistry& datasets) {
  datasets.add<TextClassification>(
      "TextClassification",
      "one text or two and a class, or a number, in each row of a TSV, CSV, JSONL or Parquet file, "
      "encoded by a "
      "tokenizer; batches are padded to their longest text");
  datasets.add<Mrpc>("MRPC",
                     "Microsoft Research Paraphrase Corpus: pairs of "
                     "sentences, 1 where one paraphrases the other, as "
                     "published");
}

}  // namespace trainrun
