#include "registry/data/tables/arrow_library.h"
#include "registry/text_data/tagged_texts.h"

namespace trainrun {
namespace {

struct TokenClassification : EncodingOptions {
  std::string path;
  std::optional<WordColumn> words;
  std::optional<WordColumn> labels;
  std::optional<std::vector<std::string>> classes;
  bool label_all_tokens = false;
  TextEncoding encoding = TextEncoding::kUtf8;

  static void describe(Fields<TokenClassification>& f) {
    using T = TokenClassification;
    f.required("path", &T::path)
        .doc(
            "a file, plain or .gz: .jsonl, or .parquet, .arrow, .feather, with a list of words and a list of labels in "
            "each row; or, with any other name (.conll, .txt, .tsv, .bio, .conllu), one word per line with its label, "
            "columns separated by tabs or spaces, and an empty line after each sentence");
    f.optional("words", &T::words)
        .doc(
            "the column of the words, by its number from 0 (-1: the last), or by its name in a file that has names; "
            "null: the first, tokens");
    f.optional("labels", &T::labels).doc("the column of the labels likewise; null: the last, ner_tags");
    f.optional("classes", &T::classes)
        .not_empty("expected at least one class")
        .doc(
            "the labels as the file writes them, in their order; labels that are integers are their places in it; "
            "null: "
            "those of the training samples, sorted");
    f.optional("label_all_tokens", &T::label_all_tokens)
        .doc(
            "learn all tokens of a word, not only its first: the others get the word's label, or, if it is B-X, I-X if "
            "that label exists");
    f.optional("encoding", &T::encoding).doc(kEncodingHelp);
    EncodingOptions::describe_into(f);
  }
  void check(Checker& checker) const {
    if (encoding != TextEncoding::kUtf8 && is_arrow_file(path)) {
      checker.fail("encoding", "is for files of text; Parquet and Arrow files hold UTF-8");
    }
    if (words && words == labels) checker.fail("labels", "is the column of the words");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const {
    return std::make_unique<TaggedTexts>(WordTableOptions{path, words, labels, true, encoding}, *this, classes,
                                         label_all_tokens);
  }
};

}  // namespace

void add_token_classification(DatasetRegistry& datasets) {
  datasets.add<TokenClassification>("TokenClassification",
                                    "sentences whose words have a class each, such as names of people and places, from "
                                    "CoNLL's files or lists of words "
                                    "and labels, encoded by a tokenizer");
}

}  // namespace trainrun
