#include <algorithm>
#include <filesystem>
#include <span>

#include "registry/data/path_patterns.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/text_corpus.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/text_data/first_rows.h"
#include "registry/text_data/padded_texts.h"
#include "registry/text_data/text_table.h"

// Texts without labels: what masked language models learn from, and what embeddings are made of.

namespace trainrun {

enum class TextSamples { kJoined, kSeparate };
template <>
struct Words<TextSamples> {
  static constexpr std::array kWords = {"joined", "separate"};
};

namespace {

struct Texts : EncodingOptions {
  std::variant<std::string, std::vector<std::string>> path;
  std::string text_column = "text";
  TextSamples documents = TextSamples::kJoined;
  TextEncoding encoding = TextEncoding::kUtf8;

  static void describe(Fields<Texts>& f) {
    f.required("path", &Texts::path)
        .doc(
            "a file, plain or .gz, or several: a text file with one text per line; or .jsonl, .csv, .parquet, .arrow "
            "or .feather with a text in each row; a list, books-*.txt, books-{0..9}.txt");
    f.optional("text_column", &Texts::text_column).doc("the key or column of the texts");
    f.optional("documents", &Texts::documents)
        .doc(
            "joined: all texts follow each other, each with the special tokens around it, and are cut into samples of "
            "max_length; what is left at the end is dropped. separate: each text is a sample, cut to max_length. As "
            "run_mlm without and with line_by_line");
    f.optional("encoding", &Texts::encoding).doc(kEncodingHelp);
    EncodingOptions::describe_into(f);
  }
  void check(Checker& checker) const {
    const std::vector<std::string> all = paths();
    if (all.empty()) checker.fail("path", "expected at least one file");
    if (encoding != TextEncoding::kUtf8 && std::any_of(all.begin(), all.end(), is_arrow_file)) {
      checker.fail("encoding", "is for files of text; Parquet and Arrow files hold UTF-8");
    }
  }
  std::vector<std::string> paths() const {
    if (const auto* one = std::get_if<std::string>(&path)) return {*one};
    return std::get<std::vector<std::string>>(path);
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

/// The texts of one file, and their lines.
struct FileTexts {
  std::vector<std::string> texts;
  std::vector<int64_t> lines;
  int64_t num_empty = 0;
};

/// `count`: called with each text; empty: nothing is.
FileTexts texts_in(const std::string& path, const Texts& options, const std::function<void()>& count = {}) {
  FileTexts found;
  const auto take = [&](std::string text, int64_t line) {
    if (count) count();
    while (text.ends_with('\n') || text.ends_with('\r')) text.pop_back();
    if (text.find_first_not_of(" \t") == std::string::npos) {
      ++found.num_empty;
      return;
    }
    found.texts.push_back(std::move(text));
    found.lines.push_back(line);
  };
  if (has_extension(path, ".csv") || has_extension(path, ".tsv")) {
    TextTableOptions table{path, {options.text_column}, std::nullopt, {}, false, options.encoding};
    table.count = count;
    TextRows rows = read_text_table(table);
    for (size_t i = 0; i < rows.first.size(); ++i) take(std::move(rows.first[i]), rows.lines[i]);
  } else {
    for_each_text(path, options.text_column, options.encoding, take);
  }
  return found;
}

/// What is kept of the texts as tokens.
struct TextTokens : TextArrays {
  using TextArrays::TextArrays;
  std::vector<int64_t> lines;                             // of each text
  std::vector<int64_t> files;                             // likewise
  std::vector<int64_t> counts = std::vector<int64_t>(2);  // of empty texts, of texts that were cut
};
constexpr size_t kKeptArrays = kTextArrays + 3;

class TextsDataset final : public Dataset {
 public:
  explicit TextsDataset(Texts options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    for (const std::string& path : files_.empty() ? options_.paths() : std::vector<std::string>()) {
      look_at_first_rows(path, [&](const std::function<void()>& count) { texts_in(path, options_, count); });
    }
    DatasetInfo info;
    add_text_fields(info, options_.max_length);
    return info;
  }

  void open() override {
    files_ = matching_paths(options_.paths(), "Texts");
    const bool is_kept = options_.cache == TokenCaching::kDisk;
    use(is_kept ? arrays_on_disk(cache_key(), kKeptArrays, [&] { return encoded(); }) : encoded());
    if (size() == 0) {
      throw DataError(
          files_.front() + ": has " + std::to_string(tokens_.num_tokens()) +
          " tokens, fewer than one sample of max_length; write documents: separate, or a smaller max_length");
    }
  }
  int64_t size() const override {
    return is_joined() ? tokens_.num_tokens() / options_.max_length : tokens_.num_texts();
  }

  Batch get(const at::Tensor& indices) const override {
    std::vector<TextStretch> texts;
    for (int64_t i = 0; i < indices.numel(); ++i) texts.push_back(stretch(indices.const_data_ptr<int64_t>()[i]));
    return tokens_.batch(texts, padded_length(texts, options_));
  }

  DatasetFacts facts() const override {
    DatasetFacts facts;
    facts.field = [this](const std::string& name) {
      FieldFacts field;
      field.padding = name == "input_ids" ? tokens_.pad_id() : 0;
      return field;
    };
    facts.place = [this](int64_t index, const std::string&) {
      const auto begins = tokens_.begins();
      const int64_t begin = stretch(index).begin;
      const auto text = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), begin) - begins.begin() - 1);
      return files_.at(static_cast<size_t>(of_file_[text])) + ":" + std::to_string(lines_[text]);
    };
    facts.lengths = [this] {
      if (is_joined() || options_.padding == TextPadding::kMaxLength) {
        throw DataError("its samples are all of max_length; write documents: separate and padding: longest");
      }
      return tokens_.lengths(options_);
    };
    facts.notes = [this] { return notes(); };
    return facts;
  }

 private:
  bool is_joined() const { return options_.documents == TextSamples::kJoined; }
  /// Where a sample begins among all tokens, and how many it has.
  TextStretch stretch(int64_t index) const {
    if (is_joined()) return {index * options_.max_length, options_.max_length};
    return tokens_.stretch(index);
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    const std::string name =
        files_.size() == 1 ? files_[0] : files_[0] + " and " + std::to_string(files_.size() - 1) + " more";
    const std::string empty = note_on_empty_files(
        files_, "texts",
        [&](const std::string& path, const std::function<void()>& count) { texts_in(path, options_, count); });
    if (!empty.empty()) notes.push_back("Texts: " + empty);
    if (counts_[0] > 0)
      notes.push_back(name + ": " + counted(counts_[0], "empty text is", "empty texts are") + " left out");
    if (counts_[1] > 0) {
      notes.push_back(name + ": " + counted(counts_[1], "text is", "texts are") + " cut to max_length (" +
                      std::to_string(options_.max_length) + " tokens)");
    }
    const int64_t rest = is_joined() ? tokens_.num_tokens() - size() * options_.max_length : 0;
    if (rest > 0)
      notes.push_back(name + ": the last " + counted(rest, "token is", "tokens are") +
                      " left out, as fewer than max_length");
    return notes;
  }

  std::string cache_key() const {
    TokenCacheKey key("texts, then their lines");
    key.add_tokenizer(options_.in(options_.tokenizer))
        .add(is_joined() ? 0 : options_.max_length)
        .add(options_.text_column);
    key.add(word_of(options_.encoding)).add(static_cast<int64_t>(files_.size()));
    for (const std::string& path : files_) key.add(std::filesystem::path(path).extension().string()).add_file(path);
    return key.finish();
  }

  ByteArrays encoded() const {
    const auto tokenizer = open_tokenizer(options_.in(options_.tokenizer));
    std::optional<Truncation> truncation;
    if (!is_joined()) truncation = Truncation{options_.max_length, {}, tokenizer->truncation_side()};
    const auto made = std::make_shared<TextTokens>(*tokenizer);
    for (size_t file = 0; file < files_.size(); ++file) {
      const FileTexts found = texts_in(files_[file], options_);
      made->counts[0] += found.num_empty;
      add_encoded(found, *tokenizer, truncation, *made);
      made->lines.insert(made->lines.end(), found.lines.begin(), found.lines.end());
      made->files.insert(made->files.end(), found.lines.size(), static_cast<int64_t>(file));
    }
    ByteArrays arrays{made, made->bytes()};
    arrays.arrays.insert(arrays.arrays.end(), {bytes_of(made->lines), bytes_of(made->files), bytes_of(made->counts)});
    return arrays;
  }
  static void add_encoded(const FileTexts& found, const Tokenizer& tokenizer,
                          const std::optional<Truncation>& truncation, TextTokens& made) {
    constexpr size_t kAtOnce = 4096;
    for (size_t begin = 0; begin < found.texts.size(); begin += kAtOnce) {
      std::vector<TextPair> texts;
      for (size_t i = begin; i < std::min(begin + kAtOnce, found.texts.size()); ++i) {
        texts.push_back({found.texts[i], std::nullopt});
      }
      const std::vector<Encoding> whole = encode_batch(tokenizer, texts);
      for (size_t i = 0; i < whole.size(); ++i) {
        const bool is_cut = truncation && static_cast<int64_t>(whole[i].ids.size()) > truncation->max_length;
        made.counts[1] += is_cut ? 1 : 0;
        made.add(is_cut ? tokenizer.encode(texts[i], truncation, true) : whole[i]);
      }
    }
  }

  void use(ByteArrays arrays) {
    lines_ = numbers_in<int64_t>(arrays.arrays.at(kTextArrays));
    of_file_ = numbers_in<int64_t>(arrays.arrays.at(kTextArrays + 1));
    counts_ = numbers_in<int64_t>(arrays.arrays.at(kTextArrays + 2));
    bool fits = tokens_.read(std::move(arrays), lines_.size()) && of_file_.size() == lines_.size() &&
                counts_.size() == 2 && (is_joined() || tokens_.longest() <= options_.max_length);
    for (size_t i = 0; fits && i < of_file_.size(); ++i) {
      fits = of_file_[i] >= 0 && of_file_[i] < static_cast<int64_t>(files_.size());
    }
    if (!fits) throw DataError(files_.front() + ": was changed while it was read");
  }

  Texts options_;
  std::vector<std::string> files_;
  PaddedTexts tokens_;
  std::span<const int64_t> lines_;  // these lie in `tokens_`: see TextTokens
  std::span<const int64_t> of_file_;
  std::span<const int64_t> counts_;
};

std::unique_ptr<Dataset> Texts::build(const DatasetInputs&) const { return std::make_unique<TextsDataset>(*this); }

}  // namespace

void add_texts(DatasetRegistry& datasets) {
  datasets.add<Texts>(
      "Texts",
      "texts without labels, encoded by a tokenizer with its special tokens: for masked language models "
      "(MaskTokens) and embeddings");
}

}  // namespace trainrun
