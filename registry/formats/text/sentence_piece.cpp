#include <nlohmann/json.hpp>

#include <algorithm>
#include <unordered_map>

#include "registry/formats/text/sentence_piece_model.h"
#include "registry/formats/text/tokenizer_files.h"
#include "registry/formats/text/unicode.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

constexpr std::string_view kSpaceMark = "\u2581";

/// Replaced characters; blanks at the ends and repeated ones go; a mark in front and for every blank.
class SentencePieceNormalizer final : public Normalizer {
 public:
  explicit SentencePieceNormalizer(const SentencePieceModel& model)
      : prefix_(model.dummy_prefix), remove_(model.remove_extra_whitespaces) {
    if (!model.charsmap.empty()) charsmap_ = charsmap_normalizer(model.charsmap);
  }

  void apply(NormalizedText& text) const override {
    if (charsmap_) charsmap_->apply(text);
    std::string result = prefix_ ? " " : "";
    const size_t prefix = result.size();
    bool after_blank = true;
    for (const char c : text.text) {
      if (!remove_ || c != ' ' || !after_blank) result += c;
      after_blank = c == ' ';
    }
    while (remove_ && result.size() > prefix && result.ends_with(' ')) result.pop_back();
    text.text.clear();
    if (result.size() == prefix) return;
    for (const char c : result) {
      if (c == ' ') {
        text.text += kSpaceMark;
      } else {
        text.text += c;
      }
    }
  }

 private:
  std::unique_ptr<const Normalizer> charsmap_;
  bool prefix_, remove_;
};

/// Splits before each run of marks. Where no token reaches across such a place, the words can be looked at one by one.
class MarkedWords final : public PreTokenizer {
 public:
  void apply(WordList& words) const override {
    split_words(words, SplitBehavior::kIsolated, [](std::string_view text, std::vector<SplitSpan>& spans) {
      size_t begin = 0;
      while (begin < text.size()) {
        size_t end = begin;
        while (text.substr(end).starts_with(kSpaceMark)) end += kSpaceMark.size();
        end = std::min(text.find(kSpaceMark, end), text.size());
        spans.push_back({begin, end, true});
        begin = end;
      }
    });
  }

  static bool suits(const SentencePieceModel& model) {
    return std::none_of(model.pieces.begin(), model.pieces.end(), [](const SentencePieceModel::Piece& piece) {
      size_t begin = 0;
      while (std::string_view(piece.text).substr(begin).starts_with(kSpaceMark)) begin += kSpaceMark.size();
      return piece.text.find(kSpaceMark, begin) != std::string::npos;
    });
  }
};

Vocabulary vocabulary_of(const SentencePieceModel& model) {
  Vocabulary vocabulary;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (!vocabulary.add(piece.text, static_cast<int64_t>(vocabulary.size()))) {
      throw DataError("the piece \"" + piece.text + "\" is listed twice");
    }
  }
  return vocabulary;
}

/// SentencePiece joins the neighbours that make the piece with the best score; as a list of merges, as Hugging Face's
/// converter orders them.
Merges merges_of(const SentencePieceModel& model, const Vocabulary& vocabulary) {
  struct Split {
    std::string left, right;
    float score;
    int64_t left_id, right_id;
  };
  std::vector<Split> splits;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const size_t first = splits.size();
    for (size_t at = unicode::length(piece.text[0]); at < piece.text.size(); at += unicode::length(piece.text[at])) {
      const std::string left = piece.text.substr(0, at), right = piece.text.substr(at);
      const auto left_id = vocabulary.find(left), right_id = vocabulary.find(right);
      if (left_id && right_id) splits.push_back({left, right, piece.score, *left_id, *right_id});
    }
    std::stable_sort(splits.begin() + static_cast<std::ptrdiff_t>(first), splits.end(),
                     [](const auto& a, const auto& b) {
                       return std::pair(a.left_id, a.right_id) < std::pair(b.left_id, b.right_id);
                     });
  }
  std::stable_sort(splits.begin(), splits.end(), [](const Split& a, const Split& b) {
    const auto key = [](const Split& s) {
      return std::tuple(s.score, unicode::count(s.left), unicode::count(s.right));
    };
    return key(a) > key(b);
  });
  Merges merges;
  for (Split& split : splits) merges.emplace_back(std::move(split.left), std::move(split.right));
  return merges;
}

std::unique_ptr<const TextModel> model_of(const SentencePieceModel& model) {
  if (model.kind == SentencePieceModel::Kind::kUnigram) {
    std::vector<double> scores;
    for (const SentencePieceModel::Piece& piece : model.pieces) scores.push_back(piece.score);
    return unigram_model(vocabulary_of(model), std::move(scores), model.unknown, model.byte_fallback);
  }
  if (model.kind != SentencePieceModel::Kind::kBytePair) {
    throw DataError("it is a model of words or characters; expected Unigram or BPE");
  }
  Vocabulary vocabulary = vocabulary_of(model);
  const Merges merges = merges_of(model, vocabulary);
  BytePairOptions options;
  options.unknown = model.pieces[static_cast<size_t>(model.unknown)].text;
  options.fuse_unknown = true;
  options.byte_fallback = model.byte_fallback;
  return byte_pair_model(std::move(vocabulary), merges, options);
}

/// Marks become blanks, bytes are put together, and the blank that the normalizer put in front goes.
std::unique_ptr<const Decoder> decoder_of(const SentencePieceModel& model, const std::string& file) {
  nlohmann::json parts = {{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}},
                          {{"type", "ByteFallback"}},
                          {{"type", "Fuse"}}};
  if (model.dummy_prefix) parts.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  const nlohmann::json json = {{"type", "Sequence"}, {"decoders", parts}};
  return read_decoder(JsonNode(file, json));
}

std::vector<AddedToken> added_of(const SentencePieceModel& model) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    const bool control =
        piece.type == SentencePieceModel::Type::kControl || piece.type == SentencePieceModel::Type::kUnknown;
    if (!control && piece.type != SentencePieceModel::Type::kUserDefined) continue;
    AddedToken token;
    token.id = static_cast<int64_t>(id);
    token.content = piece.text;
    token.special = control;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// Llama's begin with <s>, T5's end with </s>; `add_bos_token` and `add_eos_token` say otherwise.
PostProcessor post_processor_of(const TokenizerConfig& config, const Pipeline& parts, const std::string& file) {
  const bool bos = config.flag("add_bos_token", config.tokenizer_class.starts_with("Llama"));
  const bool eos = config.flag("add_eos_token", config.tokenizer_class.starts_with("T5"));
  nlohmann::json single = nlohmann::json::array(), pair = single, special = nlohmann::json::object();
  const auto add_special = [&](nlohmann::json& pieces, const std::string& role, int type) {
    const std::string& token = parts.special_tokens.at(role);
    const auto id = parts.model->vocabulary().find(token);
    if (!id) throw DataError("the token \"" + token + "\" is missing");
    special[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    pieces.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
  };
  for (const char* text : {"A", "B"}) {
    const int type = text[0] - 'A';
    for (nlohmann::json* pieces : {&single, &pair}) {
      if (pieces == &single && type == 1) continue;
      if (bos) add_special(*pieces, "bos", type);
      pieces->push_back({{"Sequence", {{"id", text}, {"type_id", type}}}});
      if (eos) add_special(*pieces, "eos", type);
    }
  }
  const nlohmann::json json = {
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
  return {JsonNode(file, json), vocab_size_of(*parts.model, parts.added)};
}

Pipeline pipeline_of(const SentencePieceModel& model, const TokenizerConfig& config, const std::string& file) {
  if (model.suffix_whitespace || !model.escape_whitespaces) {
    throw DataError("blanks are marked at the end of words, or not at all; expected them to be marked in front");
  }
  Pipeline parts;
  parts.special_tokens = config.special_tokens;
  parts.special_tokens.emplace("bos", "<s>");
  parts.special_tokens.emplace("eos", "</s>");
  parts.special_tokens.emplace("unk", model.pieces[static_cast<size_t>(model.unknown)].text);
  parts.normalizer = std::make_unique<SentencePieceNormalizer>(model);
  if (MarkedWords::suits(model)) parts.pre_tokenizer = std::make_unique<MarkedWords>();
  parts.model = model_of(model);
  parts.added = AddedTokens(added_of(model), nullptr);
  parts.decoder = decoder_of(model, file);
  parts.post_processor = post_processor_of(config, parts, file);
  return parts;
}

}  // namespace

Pipeline read_sentence_piece(const std::string& file, const std::string& content, const TokenizerConfig& config) {
  try {
    return pipeline_of(read_sentence_piece_model(content), config, file);
  } catch (const DataError& error) {
    if (std::string(error.what()).starts_with(file)) throw;
    throw DataError(file + ": " + error.what());
  }
}

}  // namespace trainrun
