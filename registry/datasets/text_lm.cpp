#include <utility>

#include "registry/catalog.h"
#include "registry/datasets/characters.h"
#include "registry/datasets/text_corpus.h"
#include "registry/datasets/token_windows.h"

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

struct TextLM : BlockOptions {
  std::variant<std::string, std::vector<std::string>> path;
  std::string text_column = "text";
  std::string tokenizer = "characters";
  std::optional<CorpusPart> split;
  double val_fraction = 0.1;
  Documents documents = Documents::kJoined;
  std::optional<std::string> end_of_document;

  static void describe(Fields<TextLM>& f) {
    f.required("path", &TextLM::path).doc("a file of text or a .jsonl file, plain or .gz; or a list of such files");
    f.optional("text_column", &TextLM::text_column).doc("the key of a .jsonl file's objects that holds the text");
    f.optional("tokenizer", &TextLM::tokenizer)
        .one_of({"characters"})
        .doc("characters: the characters of the training text, sorted, which checkpoints keep");
    f.optional("split", &TextLM::split)
        .doc("the part of the corpus: train, what comes before the last val_fraction of it, or val; null: all");
    f.optional("val_fraction", &TextLM::val_fraction)
        .greater_than(0)
        .less_than(1)
        .doc("the share of the corpus, at its end, that is val: by characters, in .jsonl files by documents");
    f.optional("documents", &TextLM::documents)
        .doc(
            "joined: blocks run from one document into the next; separate: none does, and what is left of a "
            "document's last block is padded, with labels of -100, which losses pass over");
    f.optional("end_of_document", &TextLM::end_of_document)
        .not_empty("is an empty text")
        .doc("the token that is put after each document, such as <|endoftext|>; null: none");
    BlockOptions::describe_into(f);
    f.rule({.when = {the("documents").is("separate")},
            .all = {the("sampling").is("blocks")},
            .at = "sampling",
            .message = "must be blocks with documents: separate, whose blocks begin where documents do"});
  }
  void check(Checker& checker) const {
    const auto* list = std::get_if<std::vector<std::string>>(&path);
    if (list && list->empty()) checker.fail("path", "expected at least one file");
  }
  std::unique_ptr<Dataset> build(const DatasetInputs&) const;

  TextFiles files() const {
    if (const auto* one = std::get_if<std::string>(&path)) return {{*one}, text_column};
    return {std::get<std::vector<std::string>>(path), text_column};
  }
  std::optional<TextPart> part() const {
    if (!split) return std::nullopt;
    return TextPart{*split == CorpusPart::kVal, val_fraction};
  }
};

class TextLMDataset : public TokenWindows {
 public:
  explicit TextLMDataset(TextLM options)
      : TokenWindows(options), options_(std::move(options)), origin_(corpus_name(options_.files())) {}

  void open() override {
    const std::string end = options_.end_of_document.value_or("");
    characters_.clear();
    documents_.clear();
    for (const std::string& document : read_documents(options_.files(), options_.part())) {
      const auto begin = static_cast<int64_t>(characters_.size());
      const std::vector<uint32_t> points = code_points(document + end, origin_);
      characters_.insert(characters_.end(), points.begin(), points.end());
      documents_.push_back({begin, static_cast<int64_t>(characters_.size()) - begin});
    }
    use(characters_);  // how many samples there are does not depend on the alphabet
  }

  /// All of this part counts, whichever its samples are: the text is what is learnt from.
  void learn(const at::Tensor&) override { read_by(Alphabet(characters_)); }
  nlohmann::json learnt() const override { return {{"characters", alphabet_.text()}}; }
  void set_learnt(const nlohmann::json& state) override {
    const bool fits = state.is_object() && state.contains("characters") && state["characters"].is_string();
    if (!fits) throw DataError(origin_ + ": what was learnt is of other data: it holds no characters");
    read_by(Alphabet(code_points(state["characters"].get<std::string>(), "the checkpoint's characters")));
  }

 private:
  void read_by(Alphabet alphabet) {
    alphabet_ = std::move(alphabet);
    use(alphabet_.encode(characters_, origin_));
  }
  void use(std::vector<uint32_t> tokens) {
    TokenRow row = TokenRow::of(std::move(tokens));
    if (options_.documents == Documents::kSeparate) {
      set_tokens(std::move(row), origin_, documents_);
    } else {
      set_tokens(std::move(row), origin_);
    }
  }

  TextLM options_;
  std::string origin_;
  std::vector<uint32_t> characters_;
  std::vector<Stretch> documents_;
  Alphabet alphabet_;
};

std::unique_ptr<Dataset> TextLM::build(const DatasetInputs&) const { return std::make_unique<TextLMDataset>(*this); }

}  // namespace

void add_text_lm(DatasetRegistry& datasets) {
  datasets.add<TextLM>("TextLM",
                       "text, packed to blocks for causal language modelling; labels are shifted already, each the "
                       "token that comes next");
}

}  // namespace trainrun
