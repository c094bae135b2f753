#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "registry/data/tables/arrow_library.h"
#include "registry/data/tables/unlabelled_rows.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/language/error.h"
#include "registry/language/text_forms.h"
#include "registry/language/text_number.h"
#include "registry/language/text_view.h"
#include "registry/text_data/padded_texts.h"
#include "registry/text_data/text_sources.h"
#include "registry/text_data/text_table.h"

// Pairs and triplets of texts: what vectors of texts are learnt from.

namespace trainrun {
namespace {

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\r\n") == std::string::npos; }

constexpr std::array kTextNames = {"anchor", "positive", "negative"};

struct SentencePairs : EncodingOptions {
  std::string path;
  std::vector<std::string> columns = {"anchor", "positive"};
  std::optional<std::string> score;
  TextEncoding encoding = TextEncoding::kUtf8;

  static void describe(Fields<SentencePairs>& f) {
    f.required("path", &SentencePairs::path)
        .doc(
            "a file, plain or .gz: .csv with quoted fields, .jsonl, or (.tsv, .txt) lines with tabs between fields; "
            "the first line names the columns. Or a .parquet, .arrow or .feather file");
    f.optional("columns", &SentencePairs::columns)
        .doc(
            "the columns of the texts: anchor and positive, and perhaps negative; or the two texts of a pair with a "
            "score");
    f.optional("score", &SentencePairs::score)
        .doc("the column of a number that says how similar the two texts are; null: there are none");
    f.optional("encoding", &SentencePairs::encoding).doc(kEncodingHelp);
    EncodingOptions::describe_into(f);
  }
  void check(Checker& checker) const {
    if (encoding != TextEncoding::kUtf8 && is_arrow_file(path)) {
      checker.fail("encoding", "is for files of text; Parquet and Arrow files hold UTF-8");
    }
    if (columns.size() < 2 || columns.size() > 3) checker.fail("columns", "expected two columns, or three");
    if (score && columns.size() != 2) checker.fail("score", "needs exactly two columns of texts");
    for (const std::string& column : columns) {
      if (std::count(columns.begin(), columns.end(), column) > 1) checker.fail("columns", "names one column twice");
      if (score == column) checker.fail("score", "is one of columns");
    }
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;
};

std::unique_ptr<UnlabelledData> read_unlabelled_pairs(const UnlabelledSource& source, const SentencePairs& like);

/// The tokens of all texts, those of a row one after the other.
struct TokensOfRows : TextArrays {
  using TextArrays::TextArrays;
  std::vector<int64_t> num_cut = {0};  // texts that were cut
};
constexpr size_t kRowArrays = kTextArrays + 1;

/// Of each column all texts.
using TextColumns = std::vector<std::vector<std::string>>;

class SentencePairDataset final : public Dataset {
 public:
  explicit SentencePairDataset(SentencePairs options) : options_(std::move(options)) {}

  DatasetInfo info() const override {
    if (lines_.empty()) {
      look_at_text_table(first_columns());
      if (num_texts() == 3) look_at_text_table(third_column());
    }
    DatasetInfo info;
    for (size_t text = 0; text < num_texts(); ++text) {
      add_text_fields(info, options_.max_length, prefix(text));
    }
    if (!options_.score) return info;
    info.fields.push_back({"score", {1}, at::kFloat, std::nullopt});
    info.target = "score";
    return info;
  }

  void open() override {
    const TextColumns texts = read();
    const bool is_kept = options_.cache == TokenCaching::kDisk;
    use(is_kept ? arrays_on_disk(cache_key(), kRowArrays, [&] { return encoded(texts); }) : encoded(texts));
  }
  /// Instead of `open`: of rows that were read already and whose scores are 0; of their texts only the first may be there.
  /// `places`: where each was, for messages.
  void open_rows(const TextColumns& texts, std::vector<std::string> places) {
    num_given_ = texts.size();
    places_ = std::move(places);
    lines_.assign(places_.size(), 0);
    if (options_.score) scores_.assign(places_.size(), 0);
    use(encoded(texts));
  }
  int64_t size() const override { return static_cast<int64_t>(lines_.size()); }

  Batch get(const at::Tensor& indices) const override {
    std::vector<std::vector<TextStretch>> columns(num_texts());
    int64_t length = 0;  // all texts of a batch are made as long as the longest
    for (size_t text = 0; text < num_texts(); ++text) {
      for (int64_t i = 0; i < indices.numel(); ++i) {
        const int64_t row = indices.const_data_ptr<int64_t>()[i];
        const int64_t place = row * static_cast<int64_t>(num_given_) + static_cast<int64_t>(text);
        columns[text].push_back(text < num_given_ ? tokens_.stretch(place) : TextStretch());
      }
      length = std::max(length, padded_length(columns[text], options_));
    }
    Batch batch;
    for (size_t text = 0; text < num_texts(); ++text) {
      const Batch tokens = tokens_.batch(columns[text], length, prefix(text));
      for (const auto& [name, tensor] : tokens.fields()) batch.set(name, tensor);
    }
    if (options_.score) batch.set("score", column("score").index_select(0, indices));
    return batch;
  }
  at::Tensor column(const std::string& field) const override {
    if (field == "score" && options_.score) return at::tensor(scores_, at::kFloat).unsqueeze(1);
    return Dataset::column(field);
  }

  DatasetFacts facts() const override {
    DatasetFacts facts;
    facts.field = [this](const std::string& name) {
      FieldFacts field;
      if (name != "score") field.padding = name.ends_with("_input_ids") ? tokens_.pad_id() : 0;
      return field;
    };
    facts.place = [this](int64_t index, const std::string& field) { return place(index, field); };
    facts.lengths = [this] {
      return std::get<0>(tokens_.lengths(options_).view({-1, static_cast<int64_t>(num_given_)}).max(1));
    };
    facts.notes = [this]() -> std::vector<std::string> {
      if (num_cut_ == 0) return {};
      return {options_.path + ": " + counted(num_cut_, "text is", "texts are") + " cut to max_length (" +
              std::to_string(options_.max_length) + " tokens)"};
    };
    facts.unlabelled = [this](const UnlabelledSource& source) { return read_unlabelled_pairs(source, options_); };
    return facts;
  }

 private:
  size_t num_texts() const { return options_.columns.size(); }
  static std::string prefix(size_t text) { return kTextNames.at(text) + std::string("_"); }
  std::string place(int64_t index, const std::string& field) const {
    if (!places_.empty()) return places_[static_cast<size_t>(index)] + ":" + field;
    return options_.path + ":" + std::to_string(lines_[static_cast<size_t>(index)]) + ":" + field;
  }

  /// How two columns of texts are read, and the scores; and how the third is.
  TextTableOptions first_columns() const {
    TextTableOptions source{options_.path,    {options_.columns[0], options_.columns[1]}, options_.score, {}, false,
                            options_.encoding};
    source.is_chosen = false;
    return source;
  }
  TextTableOptions third_column() const {
    TextTableOptions source = first_columns();
    source.text_columns = {options_.columns[2]};
    return source;
  }
  /// Of each column all texts. Two columns of texts are read at a time.
  TextColumns read() {
    TextRows rows = read_text_table(first_columns());
    lines_ = std::move(rows.lines);
    if (options_.score) read_scores(rows.labels);
    TextColumns texts = {std::move(rows.first), std::move(rows.second)};
    if (num_texts() == 3) {
      texts.push_back(read_text_table(third_column()).first);
      if (texts[2].size() != texts[0].size()) throw DataError(options_.path + ": was changed while it was read");
    }
    for (size_t column = 0; column < texts.size(); ++column) {
      for (size_t row = 0; row < texts[column].size(); ++row) {
        if (!is_blank(texts[column][row])) continue;
        throw DataError(place(static_cast<int64_t>(row), options_.columns[column]) +
                        ": the text is empty; leave such rows out of the file");
      }
    }
    return texts;
  }
  void read_scores(const std::vector<std::string>& written) {
    scores_.clear();
    for (const std::string& text : written) {
      const auto number = data_number_of(without_space(text));
      if (!number || !std::isfinite(*number)) {
        throw DataError(place(static_cast<int64_t>(scores_.size()), *options_.score) + ": '" + text +
                        "' is not a number");
      }
      scores_.push_back(static_cast<float>(*number));
    }
  }

  std::string cache_key() const {
    TokenCacheKey key("pairs of sentences");
    key.add_tokenizer(options_.in(options_.tokenizer)).add_file(options_.path).add(options_.max_length);
    key.add(std::filesystem::path(options_.path).extension().string()).add(word_of(options_.encoding));
    key.add(static_cast<int64_t>(num_texts()));
    for (const std::string& name : options_.columns) key.add(name);
    return key.finish();
  }

  ByteArrays encoded(const TextColumns& texts) const {
    const auto tokenizer = open_tokenizer(options_.in(options_.tokenizer));
    const Truncation truncation{options_.max_length, {}, tokenizer->truncation_side()};
    const auto made = std::make_shared<TokensOfRows>(*tokenizer);
    constexpr size_t kAtOnce = 4096;
    for (size_t begin = 0; begin < lines_.size(); begin += kAtOnce) {
      std::vector<TextPair> some;
      for (size_t row = begin; row < std::min(begin + kAtOnce, lines_.size()); ++row) {
        for (const auto& column : texts) some.push_back({column[row], std::nullopt});
      }
      const std::vector<Encoding> whole = encode_batch(*tokenizer, some);
      for (size_t i = 0; i < whole.size(); ++i) {
        const bool is_cut = static_cast<int64_t>(whole[i].ids.size()) > options_.max_length;
        made->num_cut[0] += is_cut ? 1 : 0;
        made->add(is_cut ? tokenizer->encode(some[i], truncation, true) : whole[i]);
      }
    }
    ByteArrays arrays{made, made->bytes()};
    arrays.arrays.push_back(bytes_of(made->num_cut));
    return arrays;
  }

  void use(ByteArrays arrays) {
    const auto num_cut = numbers_in<int64_t>(arrays.arrays.at(kTextArrays));
    const bool fits = num_cut.size() == 1 && tokens_.read(std::move(arrays), lines_.size() * num_given_) &&
                      tokens_.longest() <= options_.max_length;
    if (!fits) throw DataError(options_.path + ": was changed while it was read");
    num_cut_ = num_cut[0];
  }

  SentencePairs options_;
  size_t num_given_ = options_.columns.size();  // texts that the data have; others are empty, without any token
  std::vector<int64_t> lines_;
  std::vector<std::string> places_;  // of the rows that open_rows was given
  std::vector<float> scores_;
  PaddedTexts tokens_;
  int64_t num_cut_ = 0;
};

/// Texts of files that have all the columns, or the first alone.
class UnlabelledPairs : public UnlabelledRows {
 public:
  UnlabelledPairs(const UnlabelledSource& from, const SentencePairs& like, std::vector<std::string> columns)
      : UnlabelledRows(from, {columns, like.score ? std::vector{*like.score} : std::vector<std::string>(), {}},
                       text_sources(from.paths, columns, like.encoding)),
        like_(like),
        columns_(std::move(columns)),
        texts_(columns_.size()) {
    like_.cache = TokenCaching::kNone;  // they are read once
  }

 protected:
  void take(const std::vector<Cell*>& cells, const TableSource&, int64_t, const std::string& place) override {
    for (size_t i = 0; i < columns_.size(); ++i) {
      std::string text = text_in(*cells[i], place + ":" + columns_[i]);
      if (is_blank(text)) throw DataError(place + ":" + columns_[i] + ": the text is empty");
      texts_[i].push_back(std::move(text));
    }
  }
  void cut(int64_t count) override {
    for (auto& column : texts_) column.resize(std::min(column.size(), static_cast<size_t>(count)));
  }
  std::unique_ptr<Dataset> make(std::vector<std::string> places, std::vector<int64_t>) override {
    auto samples = std::make_unique<SentencePairDataset>(like_);
    samples->open_rows(std::exchange(texts_, TextColumns(columns_.size())), std::move(places));
    return samples;
  }

 private:
  SentencePairs like_;
  std::vector<std::string> columns_;
  TextColumns texts_;  // of the piece that is read
};

std::unique_ptr<UnlabelledData> read_unlabelled_pairs(const UnlabelledSource& source, const SentencePairs& like) {
  if (source.with_target) throw DataError("a series of texts cannot be forecast");
  const std::vector<std::string> first = {like.columns[0]};
  bool has_all = true;
  for (const auto& file : text_sources(source.paths, first, like.encoding)) {
    const std::vector<std::string> names = file->open()->names();
    has_all = has_all && std::ranges::all_of(like.columns, [&](const std::string& column) {
                return std::ranges::find(names, column) != names.end();
              });
  }
  return std::make_unique<UnlabelledPairs>(source, like, has_all ? like.columns : first);
}

std::unique_ptr<Dataset> SentencePairs::build(const DatasetInputs&) const {
  return std::make_unique<SentencePairDataset>(*this);
}

}  // namespace

void add_sentence_pairs(DatasetRegistry& datasets) {
  datasets.add<SentencePairs>("SentencePairs",
                              "pairs of texts that belong together, triplets with one that does not, or pairs with a "
                              "score: training data for text embeddings (SentenceTransformer)");
}

}  // namespace trainrun
