#include <algorithm>
#include <filesystem>
#include <utility>

#include "registry/data/characters.h"
#include "registry/data/path_patterns.h"
#include "registry/data/published_file.h"
#include "registry/data/tables/arrow_library.h"
#include "registry/data/text_corpus.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/tokenizer.h"
#include "registry/kinds/dataset.h"
#include "registry/kinds/dataset_facts.h"
#include "registry/text_data/first_rows.h"
#include "registry/text_data/token_cache.h"
#include "registry/text_data/token_windows.h"

namespace trainrun {

enum class CorpusPart { kTrain, kVal };
template <>
struct Words<CorpusPart> {
  static constexpr std::array kWords = {"train", "val"};
};

enum class Documents { kJoined, kSeparate };
template <>
struct Words<Documents> {
  static constexpr std::array kWords = {"joined", "separate"};
};

namespace {

constexpr const char* kTokenizerHelp =
    "characters: those of the training text, sorted, which checkpoints keep; or a folder with tokenizer.json, "
    "vocab.json and merges.txt, or tokenizer.model, as Hugging Face has it, or one of these files, or the name of a "
    "model "
    "on its hub";

Rule cache_rule() {
  return {.when = {the("tokenizer").is(kCharacters)},
          .all = {the("cache").is("none")},
          .at = "cache",
          .message = "characters are not kept: their numbers follow from the training text"};
}

struct TextLM : BlockOptions, NewTokens {
  std::variant<std::string, std::vector<std::string>> path;
  std::string text_column = "text";
  std::string tokenizer = kCharacters;
  std::optional<CorpusPart> split;
  double val_fraction = 0.1;
  Documents documents = Documents::kJoined;
  std::optional<std::string> end_of_document;
  TokenCaching cache = TokenCaching::kNone;
  TextEncoding encoding = TextEncoding::kUtf8;

  static void describe(Fields<TextLM>& f) {
    f.required("path", &TextLM::path)
        .doc(
            "a file of text or a .jsonl file, plain or .gz, or a Parquet or Arrow file; or several, which follow each "
            "other: a list, books-*.jsonl.gz, books-{0000..0009}.jsonl.gz");
    f.optional("text_column", &TextLM::text_column)
        .doc(
            "the key of a .jsonl file's objects, or the column of a .parquet, .arrow or .feather file, that holds the "
            "text");
    f.optional("tokenizer", &TextLM::tokenizer).words({kCharacters}).doc(kTokenizerHelp);
    NewTokens::describe_into(f);
    f.optional("split", &TextLM::split)
        .doc("the part of the corpus: val, the last val_fraction of it, or train, the rest; null: all");
    f.optional("val_fraction", &TextLM::val_fraction)
        .greater_than(0)
        .less_than(1)
        .doc(
            "the share of the corpus, at its end, that is val: by characters, in files of many documents by documents");
    f.optional("documents", &TextLM::documents)
        .doc(
            "joined: blocks run from one document into the next; separate: each block is of one document, and the rest "
            "of a document's last block is padded, with labels of -100, which losses ignore");
    f.optional("end_of_document", &TextLM::end_of_document)
        .not_empty("is an empty text")
        .doc("the token that is put after each document, such as <|endoftext|>; null: none");
    f.optional("cache", &TextLM::cache).doc(kTokenCachingHelp);
    f.optional("encoding", &TextLM::encoding).doc(kEncodingHelp);
    BlockOptions::describe_into(f);
    f.rule(cache_rule());
    f.rule({.when = {the("documents").is("separate")},
            .all = {the("sampling").is("blocks")},
            .at = "sampling",
            .message = "must be blocks with documents: separate, whose blocks begin where documents do"});
  }
  void check(Checker& checker) const {
    const auto* list = std::get_if<std::vector<std::string>>(&path);
    if (list && list->empty()) checker.fail("path", "expected at least one file");
    const std::vector<std::string> paths = written_files().paths;
    if (encoding != TextEncoding::kUtf8 && std::any_of(paths.begin(), paths.end(), is_arrow_file)) {
      checker.fail("encoding", "is for files of text; Parquet and Arrow files hold UTF-8");
    }
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;

  /// As the recipe has them: patterns, too.
  TextFiles written_files() const {
    if (const auto* one = std::get_if<std::string>(&path)) return {{*one}, text_column, encoding};
    return {std::get<std::vector<std::string>>(path), text_column, encoding};
  }
  TextFiles files() const { return {matching_paths(written_files().paths, "TextLM"), text_column, encoding}; }
  std::optional<TextPart> part() const {
    if (!split) return std::nullopt;
    return TextPart{*split == CorpusPart::kVal, val_fraction};
  }
};

class TextLMDataset : public TokenWindows {
 public:
  explicit TextLMDataset(TextLM options)
      : TokenWindows(options), options_(std::move(options)), origin_(corpus_name(options_.written_files())) {}

  DatasetInfo info() const override {
    const TextFiles files = files_.paths.empty() ? options_.written_files() : TextFiles();
    for (const std::string& path : files.paths) {
      if (!has_documents(path)) continue;
      look_at_first_rows(path, [&](const std::function<void()>& count) {
        for_each_text(path, files.text_column, files.encoding, [&](const std::string&, int64_t) { count(); });
      });
    }
    return TokenWindows::info();
  }

  void open() override {
    tokens_.clear();
    documents_.clear();
    files_ = options_.files();
    if (options_.cache == TokenCaching::kDisk) return open_kept();
    const std::vector<std::string> texts = read_documents(files_, options_.part());
    if (has_characters()) {
      for (const std::string& text : texts) {
        add_document(code_points(text + options_.end_of_document.value_or(""), origin_));
      }
    } else {
      encode(texts);
    }
    use(tokens_);  // of characters: how many samples there are does not depend on the alphabet
  }

  DatasetFacts facts() const override {
    DatasetFacts facts = TokenWindows::facts();
    facts.notes = [this] {
      std::vector<std::string> notes = notes_of_tables();
      if (const std::string empty = note_on_empty_files(); !empty.empty()) notes.push_back("TextLM: " + empty);
      return notes;
    };
    return facts;
  }

  /// All of this part counts, whichever its samples are: the text is what is learnt from.
  void learn(const at::Tensor&) override {
    if (has_characters()) read_by(Alphabet(tokens_));
  }
  nlohmann::json learnt() const override {
    return has_characters() ? nlohmann::json{{"characters", alphabet_.text()}} : nlohmann::json();
  }
  void set_learnt(const nlohmann::json& state) override {
    const bool fits =
        has_characters() && state.is_object() && state.contains("characters") && state["characters"].is_string();
    if (!fits) throw DataError(origin_ + ": what was learnt belongs to other data: it holds no characters");
    read_by(Alphabet(code_points(state["characters"].get<std::string>(), "the checkpoint's characters")));
  }

 private:
  std::string note_on_empty_files() const {
    return trainrun::note_on_empty_files(
        files_.paths, "text", [&](const std::string& path, const std::function<void()>& count) {
          if (has_documents(path)) {
            for_each_text(path, files_.text_column, files_.encoding, [&](const std::string&, int64_t) { count(); });
          } else if (char first = 0; TextFile(path, files_.encoding).read(&first, 1) > 0) {
            count();
          }
        });
  }
  std::vector<std::string> notes_of_tables() const {
    std::vector<std::string> notes;
    for (const std::string& path : files_.paths) {
      if (!has_extension(path, ".csv") && !has_extension(path, ".tsv")) continue;
      notes.push_back(
          "TextLM: " + path +
          " is a table, and is read as bare text, with the names of its columns and what lies between them; "
          "to learn from one column write that to a .jsonl or .parquet file, and name it by text_column");
    }
    return notes;
  }
  bool has_characters() const { return options_.tokenizer == kCharacters; }
  void add_document(const std::vector<uint32_t>& tokens) {
    documents_.push_back({static_cast<int64_t>(tokens_.size()), static_cast<int64_t>(tokens.size())});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  /// By the tokenizer of a file, without the special tokens that it puts around a text.
  void encode(const std::vector<std::string>& texts) {
    const auto tokenizer = open_tokenizer(options_.in(options_.tokenizer));
    std::optional<int64_t> end;
    if (options_.end_of_document) {
      end = tokenizer->id_of(*options_.end_of_document);
      if (!end) throw DataError(options_.tokenizer + ": has no token '" + *options_.end_of_document + "'");
    }
    std::vector<TextPair> pairs;
    for (const std::string& text : texts) pairs.push_back({text, std::nullopt});
    for (const Encoding& encoded : encode_batch(*tokenizer, pairs, std::nullopt, /*add_special_tokens=*/false)) {
      std::vector<uint32_t> tokens(encoded.ids.begin(), encoded.ids.end());
      if (end) tokens.push_back(static_cast<uint32_t>(*end));
      add_document(tokens);
    }
  }
  /// Tokens of two or four bytes, as TokenRow has them, and where each document ends.
  struct KeptTokens {
    TokenRow tokens;
    std::vector<int64_t> ends;
  };
  std::string cache_key() const {
    TokenCacheKey key("corpus");
    key.add_tokenizer(options_.in(options_.tokenizer)).add(options_.text_column).add(options_.end_of_document ? 1 : 0);
    key.add(options_.end_of_document.value_or("")).add(options_.split ? word_of(*options_.split) : "all");
    key.add(options_.split ? detail::number_text(options_.val_fraction) : "")
        .add(static_cast<int64_t>(files_.paths.size()));
    if (options_.encoding != TextEncoding::kUtf8) key.add(word_of(options_.encoding));
    for (const std::string& path : files_.paths) {
      key.add(has_documents(path) ? 1 : 0).add_file(path);
    }
    return key.finish();
  }
  ByteArrays encoded_arrays() {
    encode(read_documents(files_, options_.part()));
    const auto kept = std::make_shared<KeptTokens>();
    for (const Stretch& document : documents_) kept->ends.push_back(document.begin + document.size);
    kept->tokens = TokenRow::of(std::move(tokens_));
    tokens_.clear();
    const TokenRow& row = kept->tokens;
    const auto size = static_cast<size_t>(row.size);
    const std::string_view bytes =
        row.narrow ? std::string_view(reinterpret_cast<const char*>(row.narrow), size * sizeof(uint16_t))
                   : std::string_view(reinterpret_cast<const char*>(row.wide), size * sizeof(uint32_t));
    return {kept, {bytes, bytes_of(kept->ends)}};
  }
  void open_kept() {
    const ByteArrays arrays = arrays_on_disk(cache_key(), 2, [&] { return encoded_arrays(); });
    const std::span<const int64_t> ends = numbers_in<int64_t>(arrays.arrays.at(1));
    const bool in_order = std::is_sorted(ends.begin(), ends.end()) && (ends.empty() || ends.front() >= 0);
    const size_t size = ends.empty() ? 0 : static_cast<size_t>(ends.back());
    TokenRow row;
    row.owner = arrays.owner;
    row.size = static_cast<int64_t>(size);
    const size_t num_bytes = arrays.arrays[0].size();
    if (in_order && num_bytes % sizeof(uint16_t) == 0 && num_bytes / sizeof(uint16_t) == size) {
      row.narrow = numbers_in<uint16_t>(arrays.arrays[0]).data();
    } else if (in_order && num_bytes % sizeof(uint32_t) == 0 && num_bytes / sizeof(uint32_t) == size) {
      row.wide = numbers_in<uint32_t>(arrays.arrays[0]).data();
    } else {
      throw DataError(origin_ + ": its tokens in the cache folder are not as many as its documents have");
    }
    documents_.clear();
    for (int64_t begin = 0; const int64_t end : ends) {
      if (options_.documents == Documents::kSeparate) documents_.push_back({begin, end - begin});
      begin = end;
    }
    use(std::move(row));
  }
  void read_by(Alphabet alphabet) {
    alphabet_ = std::move(alphabet);
    use(alphabet_.encode(tokens_, origin_));
  }
  void use(std::vector<uint32_t> tokens) { use(TokenRow::of(std::move(tokens))); }
  void use(TokenRow row) {
    if (options_.documents == Documents::kSeparate) {
      set_tokens(std::move(row), origin_, documents_);
    } else {
      set_tokens(std::move(row), origin_);
    }
  }

  TextLM options_;
  std::string origin_;
  TextFiles files_;               // that are there when it is opened
  std::vector<uint32_t> tokens_;  // of characters: their code points
  std::vector<Stretch> documents_;
  Alphabet alphabet_;
};

std::unique_ptr<Dataset> TextLM::build(const DatasetInputs&) const { return std::make_unique<TextLMDataset>(*this); }

/// Source: Karpathy 2015, char-rnn; the text that nanoGPT's examples are trained on.
struct TinyShakespeare : BlockOptions, NewTokens {
  std::string root;
  CorpusPart split = CorpusPart::kTrain;
  std::string tokenizer = kCharacters;
  TokenCaching cache = TokenCaching::kNone;
  bool download = false;
  std::vector<std::string> mirrors;

  static void describe(Fields<TinyShakespeare>& f) {
    f.required("root", &TinyShakespeare::root).doc("the folder of input.txt");
    f.required("split", &TinyShakespeare::split)
        .doc("train: the first 1,003,854 characters; val: the 111,540 that follow, as nanoGPT has them");
    f.optional("tokenizer", &TinyShakespeare::tokenizer).words({kCharacters}).doc(kTokenizerHelp);
    NewTokens::describe_into(f);
    f.optional("cache", &TinyShakespeare::cache).doc(kTokenCachingHelp);
    f.rule(cache_rule());
    BlockOptions::describe_into(f);
    f.optional("download", &TinyShakespeare::download)
        .doc("fetch the text if `root` lacks it, through the cache that all recipes share (TRAINRUN_CACHE)");
    f.optional("mirrors", &TinyShakespeare::mirrors)
        .doc("URLs of folders to fetch from, in this order; the public one by default");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;

  std::string path() const { return (std::filesystem::path(root) / "input.txt").string(); }
  TextLM corpus() const {
    TextLM corpus;
    static_cast<BlockOptions&>(corpus) = *this;
    corpus.path = path();
    corpus.tokenizer = tokenizer;
    static_cast<NewTokens&>(corpus) = *this;
    corpus.cache = cache;
    corpus.split = split;
    return corpus;
  }
};

class TinyShakespeareDataset final : public TextLMDataset {
 public:
  explicit TinyShakespeareDataset(TinyShakespeare options)
      : TextLMDataset(options.corpus()), options_(std::move(options)) {}

  void open() override {
    fetch();
    TextLMDataset::open();
  }

 private:
  void fetch() const {
    static constexpr PublishedFile kText = {"input.txt", "6fb458f1232090904fb40fe944165e91", ""};
    std::error_code unreadable;
    if (std::filesystem::exists(options_.path(), unreadable)) return;
    if (!options_.download) {
      throw DataError("Tiny Shakespeare: " + options_.path() +
                      " is not there. Set `root` to the folder that holds it, or `download: true` to fetch it.");
    }
    const std::vector<std::string> mirrors = {
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"};
    fetch_published(kText, options_.mirrors.empty() ? mirrors : options_.mirrors, options_.root, "tinyshakespeare");
  }

  TinyShakespeare options_;
};

std::unique_ptr<Dataset> TinyShakespeare::build(const DatasetInputs&) const {
  return std::make_unique<TinyShakespeareDataset>(*this);
}

}  // namespace

void add_text_lm(DatasetRegistry& datasets) {
  datasets.add<TextLM>(
      "TextLM",
      "text, packed into blocks for causal language modelling; labels are already shifted: each is the next token");
  datasets.add<TinyShakespeare>("TinyShakespeare",
                                "the million characters of Shakespeare that character-level models are often tested "
                                "on, packed into blocks as in TextLM");
}

}  // namespace trainrun
