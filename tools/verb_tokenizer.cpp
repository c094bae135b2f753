#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "registry/data/text_corpus.h"
#include "registry/formats/files/file_io.h"
#include "registry/formats/text/bpe_trainer.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"
#include "registry/text_data/text_table.h"
#include "runner/base/text.h"
#include "tools/number_checks.h"
#include "tools/verbs.h"

namespace trainrun {
namespace {

struct TokenizerArguments {
  std::vector<std::string> files;
  std::optional<std::string> text_column;
  std::string output = "tokenizer.json";
  BpeTrainerOptions options;
};

/// Whether the name of a file says that it is lines of columns, which as a text are more than what is written in them.
bool has_columns(const std::string& path) { return has_extension(path, ".csv") || has_extension(path, ".tsv"); }

/// The texts of a file, with their ends of line where it is no table.
void for_each_text(const TokenizerArguments& arguments, const std::string& path,
                   const std::function<void(std::string text)>& take) {
  if (!has_columns(path) || !arguments.text_column) {
    return trainrun::for_each_text(path, arguments.text_column.value_or("text"), std::nullopt,
                                   [&](std::string text, int64_t) { take(std::move(text)); });
  }
  TextTableOptions table;
  table.path = path;
  table.text_columns = {*arguments.text_column};
  table.is_chosen = false;  // advice is not for a recipe
  for (std::string& text : read_text_table(table).first) take(std::move(text));
}

WordCounter::Counts count_words(const TokenizerArguments& arguments) {
  constexpr size_t kAtOnce = size_t{1} << 24;  // bytes that the threads share
  WordCounter counter;
  std::vector<std::string> texts;
  size_t size = 0;
  const auto count = [&] {
    counter.add(texts);
    texts.clear();
    size = 0;
  };
  for (const std::string& path : arguments.files) {
    for_each_text(arguments, path, [&](std::string text) {
      size += text.size();
      texts.push_back(std::move(text));
      if (size >= kAtOnce) count();
    });
  }
  count();
  return counter.finish();
}

void train_tokenizer(const TokenizerArguments& arguments, const Program& program) {
  if (std::filesystem::exists(arguments.output)) {
    throw Error(arguments.output + " is already there; name another file by --output");
  }
  for (const std::string& path : arguments.files) {
    if (!has_columns(path) || arguments.text_column || program.quiet) continue;
    std::fprintf(stderr,
                 "note: %s is a table, and is read as bare text, with the names of its columns and what lies between "
                 "them; --text-column NAME learns from one of its columns\n",
                 path.c_str());
  }
  const WordCounter::Counts words = count_words(arguments);
  if (words.empty()) throw DataError(arguments.files[0] + ": there is no text to learn from");
  const TrainedBpe bpe = train_bpe(words, arguments.options);
  write_file_atomically(arguments.output, tokenizer_json(bpe));
  if (program.quiet) return;
  std::printf("%s: %s tokens, of %s different words\n", arguments.output.c_str(),
              grouped(static_cast<int64_t>(bpe.tokens.size())).c_str(),
              grouped(static_cast<int64_t>(words.size())).c_str());
  if (static_cast<int64_t>(bpe.tokens.size()) < arguments.options.vocab_size) {
    std::printf("no other two tokens follow each other %s times or more\n",
                grouped(arguments.options.min_frequency).c_str());
  }
}

}  // namespace

void add_tokenizer(CLI::App& app, Program& program) {
  CLI::App* verb = app.add_subcommand("tokenizer", "train a tokenizer");
  verb->require_subcommand(1);
  CLI::App* train = verb->add_subcommand("train",
                                         "train a byte-level BPE tokenizer such as GPT-2's and write tokenizer.json: "
                                         "the vocabulary that Hugging Face's BpeTrainer "
                                         "finds for the same files");
  const auto arguments = std::make_shared<TokenizerArguments>();
  train
      ->add_option("files", arguments->files,
                   "text files, plain or .gz; of .jsonl and .parquet files --text-column, and of .csv and .tsv files "
                   "where it is given")
      ->required();
  train->add_option("--output,-o", arguments->output, "the file to write (default: tokenizer.json)");
  train
      ->add_option("--vocab-size", arguments->options.vocab_size,
                   "size of the vocabulary, special tokens and the 256 bytes included (default: 30000)")
      ->check(whole_between(1, 100000000));
  train
      ->add_option("--min-frequency", arguments->options.min_frequency,
                   "minimum frequency of a pair of tokens that is merged (default: 2)")
      ->check(whole_between(1, 1000000000));
  train
      ->add_option("--special-token", arguments->options.special_tokens,
                   "a special token, such as <|endoftext|>; it gets the next id from 0 (may be repeated)")
      ->allow_extra_args(false);
  train->add_option(
      "--text-column", arguments->text_column,
      "the key of .jsonl files, or column of .parquet, .csv and .tsv files, that holds the text (default: text; "
      "of .csv and .tsv files none: they are read as they stand)");
  train->callback([&program, arguments] { train_tokenizer(*arguments, program); });
}

}  // namespace trainrun
