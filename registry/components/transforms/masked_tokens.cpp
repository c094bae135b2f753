#include <ATen/ops/full_like.h>

#include <mutex>

#include "registry/components/transforms/fields.h"
#include "registry/formats/text/new_tokens.h"
#include "registry/formats/text/word_starts.h"
#include "registry/kinds/layer_shapes.h"

// What masked language models learn from: texts in which some tokens are hidden.

namespace trainrun {
namespace {

constexpr int64_t kNotMasked = -100;

/// Source: Devlin et al. 2019, "BERT", section 3.1; as transformers' DataCollatorForLanguageModeling.
struct MaskTokens : NewTokens {
  std::string tokenizer;
  double mlm_probability = 0.15;
  double mask_replace_prob = 0.8;
  double random_replace_prob = 0.1;
  bool whole_word = false;
  std::string field = "input_ids";
  std::string labels = "labels";

  static void describe(Fields<MaskTokens>& f) {
    f.required("tokenizer", &MaskTokens::tokenizer).doc("the tokenizer of the texts: a folder, or one of its files");
    NewTokens::describe_into(f);
    f.optional("mlm_probability", &MaskTokens::mlm_probability)
        .greater_than(0)
        .at_most(1)
        .doc("probability that a token is to be predicted; never special tokens or padding");
    f.optional("mask_replace_prob", &MaskTokens::mask_replace_prob)
        .at_least(0)
        .at_most(1)
        .doc("probability that such a token is replaced by the tokenizer's mask");
    f.optional("random_replace_prob", &MaskTokens::random_replace_prob)
        .at_least(0)
        .at_most(1)
        .doc("probability that it is replaced by any token of the vocabulary; else it stays");
    f.optional("whole_word", &MaskTokens::whole_word)
        .doc(
            "true: whole words are drawn, with all their tokens, as for BERT's later checkpoints; whether a token is "
            "replaced is then drawn for each one");
    f.optional("field", &MaskTokens::field).doc("the field of the batch that holds the tokens");
    f.optional("labels", &MaskTokens::labels)
        .doc("the field, new or not, that gets the tokens to be predicted, and -100 elsewhere; it becomes the target");
  }
  void check(Checker& checker) const {
    if (mask_replace_prob + random_replace_prob > 1) {
      checker.fail("random_replace_prob", "is more than 1 together with mask_replace_prob");
    }
    if (labels == field) checker.fail("labels", "is the field of the tokens");
  }
  std::unique_ptr<Transform> build(const TransformInputs&) const;
};

class TokenMasking final : public Transform {
 public:
  explicit TokenMasking(MaskTokens options) : options_(std::move(options)) {}

  void describe(DatasetInfo& info) const override {
    const FieldInfo tokens = find_field(info, options_.field, "MaskTokens");
    if (tokens.dtype != at::kLong || tokens.shape.size() != 1) {
      throw LayerError("MaskTokens: '" + options_.field + "' does not hold tokens (int64) [N, T], but " +
                       batch_text(tokens.shape));
    }
    FieldInfo labels = tokens;
    labels.name = options_.labels;
    std::erase_if(info.fields, [&](const FieldInfo& field) { return field.name == labels.name; });
    info.fields.push_back(labels);
    info.target = options_.labels;
  }

  void apply(Batch& batch, const SampleDraws& draws) const override {
    std::call_once(opened_, [&] { open(); });
    const at::Tensor tokens = batch.at(options_.field).clone(at::MemoryFormat::Contiguous);
    const at::Tensor labels = at::full_like(tokens, kNotMasked);
    const int64_t length = tokens.size(1);
    const at::Tensor mask = attention_of(batch, tokens);
    for (int64_t row = 0; row < tokens.size(0); ++row) {
      RandomStream random = draws.of(row);
      hide(std::span(tokens.mutable_data_ptr<int64_t>() + row * length, static_cast<size_t>(length)),
           labels.mutable_data_ptr<int64_t>() + row * length,
           mask.defined() ? mask.const_data_ptr<int64_t>() + row * length : nullptr, random);
    }
    batch.set(options_.field, tokens);
    batch.set(options_.labels, labels);
  }

 private:
  void open() const {
    const auto tokenizer = open_tokenizer(options_.in(options_.tokenizer));
    const auto mask = tokenizer->special_id("mask");
    if (!mask) {
      throw DataError(options_.tokenizer +
                      ": the tokenizer has no token for a mask (mask_token in tokenizer_config.json)");
    }
    mask_id_ = *mask;
    can_hide_.assign(static_cast<size_t>(tokenizer->vocab_size()), true);
    for (size_t id = 0; id < can_hide_.size(); ++id) can_hide_[id] = !tokenizer->is_special(static_cast<int64_t>(id));
    for (const char* role : {"pad", "bos", "eos", "unk", "sep", "cls", "mask"}) {
      if (const auto id = tokenizer->special_id(role)) can_hide_[static_cast<size_t>(*id)] = false;
    }
    if (!options_.whole_word) return;
    try {
      starts_ = word_starts(*tokenizer);
    } catch (const DataError& error) {
      throw DataError(options_.tokenizer + ": " + error.what() + "; leave whole_word out");
    }
  }

  /// Of the texts, where the batch has it under the tokens' own name ("chosen_attention_mask"); else undefined.
  at::Tensor attention_of(const Batch& batch, const at::Tensor& tokens) const {
    constexpr std::string_view kIds = "input_ids";
    if (!options_.field.ends_with(kIds)) return {};
    const std::string name = options_.field.substr(0, options_.field.size() - kIds.size()) + "attention_mask";
    for (const Batch::Field& field : batch.fields()) {
      if (field.name == name && field.tensor.sizes() == tokens.sizes()) return field.tensor.to(at::kLong).contiguous();
    }
    return {};
  }

  /// One text. Padding draws nothing, so that a text is changed alike however long its batch is.
  void hide(std::span<int64_t> tokens, int64_t* labels, const int64_t* attention, RandomStream& random) const {
    const auto vocab_size = static_cast<int64_t>(can_hide_.size());
    bool is_hidden = false;
    bool in_word = false;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t id = tokens[i];
      if (id < 0 || id >= vocab_size) {
        throw DataError("MaskTokens: '" + options_.field + "' holds " + std::to_string(id) + ", but " +
                        options_.tokenizer + " has " + std::to_string(vocab_size) + " tokens");
      }
      if ((attention != nullptr && attention[i] == 0) || !can_hide_[static_cast<size_t>(id)]) {
        in_word = false;
        continue;
      }
      const bool continues = options_.whole_word && in_word && !starts_[static_cast<size_t>(id)];
      if (!continues) is_hidden = random.uniform() < options_.mlm_probability;
      in_word = true;
      if (!is_hidden) continue;
      labels[i] = id;
      const double kind = random.uniform();
      if (kind < options_.mask_replace_prob) {
        tokens[i] = mask_id_;
      } else if (kind < options_.mask_replace_prob + options_.random_replace_prob) {
        tokens[i] = random.integer(vocab_size);
      }
    }
  }

  MaskTokens options_;
  mutable std::once_flag
      opened_;  // the tokenizer is read when the first batch is made, and not when a recipe is checked
  mutable int64_t mask_id_ = 0;
  mutable std::vector<bool> can_hide_;  // of each id
  mutable std::vector<bool> starts_;    // likewise: whether it begins a word; empty unless words are drawn
};

std::unique_ptr<Transform> MaskTokens::build(const TransformInputs&) const {
  return std::make_unique<TokenMasking>(*this);
}

}  // namespace

void add_masked_tokens(TransformRegistry& transforms) {
  transforms.add<MaskTokens>("MaskTokens",
                             "hides tokens or whole words for a masked language model to predict; an evaluation hides "
                             "the same ones each time");
}

}  // namespace trainrun
