#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "registry/data/path_patterns.h"
#include "registry/data/sample_lengths.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/texts/encoded_texts.h"
#include "registry/data/texts/text_corpus.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"

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
            "a file, plain or .gz, or several: of text, a text a line; or .jsonl, .csv, .parquet, .arrow or .feather "
            "with "
            "a text in each row; a list, books-*.txt, books-{0..9}.txt");
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

FileTexts texts_in(const std::string& path, const Texts& options) {
  FileTexts found;
  const auto take = [&](std::string text, int64_t line) {
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
    TextRows rows = read_text_table(table);
    for (size_t i = 0; i < rows.first.size(); ++i) take(std::move(rows.first[i]), rows.lines[i]);
  } else {
    for_each_text(path, options.text_column, options.encoding, take);
  }
  return found;
}

/// What is kept of the texts as tokens.
struct TextTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> type_ids;
  std::vector<int64_t> begins = {0};  // of each text, and the end
  std::vector<int64_t> lines;         // of each text
  std::vector<int64_t> files;         // likewise
  std::vector<int64_t> numbers;       // padding, whether it comes first, empty texts, texts that were cut
};
constexpr size_t kTextArrays = 6;

class TextsDataset final : public Dataset {
 public:
  explicit TextsDataset(Texts options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    DatasetInfo info;
    for (const char* name : {"input_ids", "attention_mask", "token_type_ids"}) {
      info.fields.push_back({name, {options_.max_length}, at::kLong, std::nullopt});  // at most
    }
    return info;
  }

  void open() override {
    files_ = matching_paths(options_.paths(), "Texts");
    const bool is_kept = options_.cache == TokenCaching::kDisk;
    use(is_kept ? arrays_on_disk(cache_key(), kTextArrays, [&] { return encoded(); }) : encoded());
    if (size() == 0) {
      throw DataError(
          files_.front() + ": has " + std::to_string(ids_.size()) +
          " tokens, fewer than one sample of max_length; write documents: separate, or a smaller max_length");
    }
  }
  int64_t size() const override {
    if (is_joined()) return static_cast<int64_t>(ids_.size()) / options_.max_length;
    return static_cast<int64_t>(begins_.size()) - 1;
  }

  Batch get(const at::Tensor& indices) const override {
    const int64_t n = indices.numel();
    const int64_t length = length_of(indices);
    const at::Tensor ids = at::full({n, length}, numbers_[0], at::kLong);
    const at::Tensor mask = at::zeros({n, length}, at::kLong);
    const at::Tensor types = at::zeros({n, length}, at::kLong);
    for (int64_t i = 0; i < n; ++i) {
      const auto [begin, count] = stretch(indices.const_data_ptr<int64_t>()[i]);
      const int64_t first = i * length + (numbers_[1] != 0 ? length - count : 0);
      std::copy_n(ids_.begin() + begin, count, ids.mutable_data_ptr<int64_t>() + first);
      std::fill_n(mask.mutable_data_ptr<int64_t>() + first, count, 1);
      std::copy_n(type_ids_.begin() + begin, count, types.mutable_data_ptr<int64_t>() + first);
    }
    Batch batch;
    batch.set("input_ids", ids);
    batch.set("attention_mask", mask);
    batch.set("token_type_ids", types);
    return batch;
  }

  DatasetFacts facts() const override {
    DatasetFacts facts;
    facts.field = [this](const std::string& name) {
      FieldFacts field;
      field.padding = name == "input_ids" && !numbers_.empty() ? numbers_[0] : 0;
      return field;
    };
    facts.place = [this](int64_t index, const std::string&) {
      const int64_t begin = stretch(index).first;
      const auto text =
          static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin() - 1);
      return files_.at(static_cast<size_t>(of_file_[text])) + ":" + std::to_string(lines_[text]);
    };
    facts.lengths = [this] {
      if (is_joined() || options_.padding == TextPadding::kMaxLength) {
        throw DataError("its samples are all of max_length; write documents: separate and padding: longest");
      }
      return lengths_between(begins_);
    };
    facts.notes = [this] { return notes(); };
    return facts;
  }

 private:
  bool is_joined() const { return options_.documents == TextSamples::kJoined; }
  /// Where a sample begins among all tokens, and how many it has.
  std::pair<int64_t, int64_t> stretch(int64_t index) const {
    if (is_joined()) return {index * options_.max_length, options_.max_length};
    const auto text = static_cast<size_t>(index);
    return {begins_[text], begins_[text + 1] - begins_[text]};
  }
  int64_t length_of(const at::Tensor& indices) const {
    if (is_joined() || options_.padding == TextPadding::kMaxLength) return options_.max_length;
    int64_t longest = 1;
    for (int64_t i = 0; i < indices.numel(); ++i) {
      longest = std::max(longest, stretch(indices.const_data_ptr<int64_t>()[i]).second);
    }
    const int64_t multiple = options_.pad_to_multiple_of;
    return std::min((longest + multiple - 1) / multiple * multiple, options_.max_length);
  }
  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    const auto many = [](int64_t count, const std::string& one, const std::string& more) {
      return std::to_string(count) + " " + (count == 1 ? one : more);
    };
    const std::string name =
        files_.size() == 1 ? files_[0] : files_[0] + " and " + std::to_string(files_.size() - 1) + " more";
    if (numbers_[2] > 0)
      notes.push_back(name + ": " + many(numbers_[2], "empty text is", "empty texts are") + " left out");
    if (numbers_[3] > 0) {
      notes.push_back(name + ": " + many(numbers_[3], "text is", "texts are") + " cut to max_length (" +
                      std::to_string(options_.max_length) + " tokens)");
    }
    const int64_t rest = is_joined() ? static_cast<int64_t>(ids_.size()) - size() * options_.max_length : 0;
    if (rest > 0)
      notes.push_back(name + ": the last " + many(rest, "token is", "tokens are") +
                      " left out, as fewer than max_length");
    return notes;
  }

  std::string cache_key() const {
    TokenCacheKey key("texts alone");
    key.add_tokenizer(options_.tokenizer).add(is_joined() ? 0 : options_.max_length).add(options_.text_column);
    key.add(word_of(options_.encoding)).add(static_cast<int64_t>(files_.size()));
    for (const std::string& path : files_) key.add(std::filesystem::path(path).extension().string()).add_file(path);
    return key.finish();
  }

  ByteArrays encoded() const {
    const auto tokenizer = open_tokenizer(options_.tokenizer);
    std::optional<Truncation> truncation;
    if (!is_joined()) truncation = Truncation{options_.max_length, {}, tokenizer->truncation_side()};
    const auto made = std::make_shared<TextTokens>();
    made->numbers = {tokenizer->pad_id().value_or(0), tokenizer->pads_left() ? 1 : 0, 0, 0};
    for (size_t file = 0; file < files_.size(); ++file) {
      const FileTexts found = texts_in(files_[file], options_);
      made->numbers[2] += found.num_empty;
      add_encoded(found, *tokenizer, truncation, *made);
      made->lines.insert(made->lines.end(), found.lines.begin(), found.lines.end());
      made->files.insert(made->files.end(), found.lines.size(), static_cast<int64_t>(file));
    }
    return {made,
            {bytes_of(made->ids), bytes_of(made->type_ids), bytes_of(made->begins), bytes_of(made->lines),
             bytes_of(made->files), bytes_of(made->numbers)}};
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
        made.numbers[3] += is_cut ? 1 : 0;
        const Encoding& kept = is_cut ? tokenizer.encode(texts[i], truncation, true) : whole[i];
        made.ids.insert(made.ids.end(), kept.ids.begin(), kept.ids.end());
        made.type_ids.insert(made.type_ids.end(), kept.type_ids.begin(), kept.type_ids.end());
        made.begins.push_back(static_cast<int64_t>(made.ids.size()));
      }
    }
  }

  void use(ByteArrays arrays) {
    arrays_ = std::move(arrays);
    ids_ = numbers_in<int32_t>(arrays_.arrays.at(0));
    type_ids_ = numbers_in<uint8_t>(arrays_.arrays.at(1));
    begins_ = numbers_in<int64_t>(arrays_.arrays.at(2));
    lines_ = numbers_in<int64_t>(arrays_.arrays.at(3));
    of_file_ = numbers_in<int64_t>(arrays_.arrays.at(4));
    numbers_ = numbers_in<int64_t>(arrays_.arrays.at(5));
    bool fits = are_begins(begins_, lines_.size(), ids_.size()) && type_ids_.size() == ids_.size() &&
                of_file_.size() == lines_.size() && numbers_.size() == 4;
    for (size_t i = 0; fits && !is_joined() && i + 1 < begins_.size(); ++i) {
      fits = begins_[i + 1] - begins_[i] <= options_.max_length;
    }
    for (size_t i = 0; fits && i < of_file_.size(); ++i) {
      fits = of_file_[i] >= 0 && of_file_[i] < static_cast<int64_t>(files_.size());
    }
    if (!fits) throw DataError(files_.front() + ": was changed while it was read");
  }

  Texts options_;
  std::vector<std::string> files_;
  ByteArrays arrays_;  // where the next six lie: see TextTokens
  std::span<const int32_t> ids_;
  std::span<const uint8_t> type_ids_;
  std::span<const int64_t> begins_;
  std::span<const int64_t> lines_;
  std::span<const int64_t> of_file_;
  std::span<const int64_t> numbers_;
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
