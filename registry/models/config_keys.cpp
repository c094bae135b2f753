#include "registry/models/config_keys.h"

#include <algorithm>
#include <array>

namespace trainrun {
namespace {

struct ConfigKey {
  std::string_view name;
  std::string_view why;  // it changes nothing here
};

constexpr std::string_view kOrigin = "says where the file comes from";
constexpr std::string_view kLoss = "concerns the loss and the names of classes, which the recipe says";
constexpr std::string_view kTokens = "names a token, for a tokenizer or for generation";
constexpr std::string_view kPython = "chooses how Python computes or returns the same numbers";
constexpr std::string_view kPrecision = "the precision is the recipe's: weights become float32";
constexpr std::string_view kOtherHead = "is of a head that is not available here";
constexpr std::string_view kAlways = "is always so here; models.md says which models there are";

constexpr std::array kKeys = {
    ConfigKey{"_name_or_path", kOrigin},
    ConfigKey{"name_or_path", kOrigin},
    ConfigKey{"_commit_hash", kOrigin},
    ConfigKey{"architectures", kOrigin},
    ConfigKey{"auto_map", kOrigin},
    ConfigKey{"finetuning_task", kOrigin},
    ConfigKey{"model_type", kOrigin},
    ConfigKey{"transformers_version", kOrigin},
    ConfigKey{"unsloth_version", kOrigin},
    ConfigKey{"unsloth_fixed", kOrigin},
    ConfigKey{"task_specific_params", kOrigin},
    ConfigKey{"id2label", kLoss},
    ConfigKey{"label2id", kLoss},
    ConfigKey{"num_labels", kLoss},
    ConfigKey{"problem_type", kLoss},
    ConfigKey{"bos_token_id", kTokens},
    ConfigKey{"eos_token_id", kTokens},
    ConfigKey{"pad_token_id", kTokens},
    ConfigKey{"sep_token_id", kTokens},
    ConfigKey{"cls_token_id", kTokens},
    ConfigKey{"mask_token_id", kTokens},
    ConfigKey{"unk_token_id", kTokens},
    ConfigKey{"decoder_start_token_id", kTokens},
    ConfigKey{"tokenizer_class", kTokens},
    ConfigKey{"prefix", kTokens},
    ConfigKey{"attn_implementation", kPython},
    ConfigKey{"_attn_implementation", kPython},
    ConfigKey{"_attn_implementation_autoset", kPython},
    ConfigKey{"experts_implementation", kPython},
    ConfigKey{"chunk_size_feed_forward", kPython},
    ConfigKey{"gradient_checkpointing", kPython},
    ConfigKey{"output_attentions", kPython},
    ConfigKey{"output_hidden_states", kPython},
    ConfigKey{"output_past", kPython},
    ConfigKey{"pretraining_tp", kPython},
    ConfigKey{"reorder_and_upcast_attn", kPython},
    ConfigKey{"return_dict", kPython},
    ConfigKey{"tf_legacy_loss", kPython},
    ConfigKey{"torchscript", kPython},
    ConfigKey{"use_bfloat16", kPrecision},
    ConfigKey{"use_cache", kPython},
    ConfigKey{"dtype", kPrecision},
    ConfigKey{"torch_dtype", kPrecision},
    ConfigKey{"qa_dropout", kOtherHead},
    ConfigKey{"seq_classif_dropout", kOtherHead},
    ConfigKey{"classifier_dropout", kOtherHead},
    ConfigKey{"summary_activation", kOtherHead},
    ConfigKey{"summary_first_dropout", kOtherHead},
    ConfigKey{"summary_proj_to_labels", kOtherHead},
    ConfigKey{"summary_type", kOtherHead},
    ConfigKey{"summary_use_proj", kOtherHead},
    ConfigKey{"tie_word_embeddings", kOtherHead},  // of a model without a head over the vocabulary
    ConfigKey{"n_ctx", kAlways},                   // is n_positions
    ConfigKey{"tie_weights_", kAlways},
    ConfigKey{"tie_encoder_decoder", kAlways},
    ConfigKey{"cross_attention_hidden_size", kAlways},
};

}  // namespace

bool means_nothing_to_models(std::string_view key) {
  return std::ranges::any_of(kKeys, [&](const ConfigKey& known) { return known.name == key; });
}

}  // namespace trainrun
