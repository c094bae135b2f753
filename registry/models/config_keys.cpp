#include "registry/models/config_keys.h"

#include <array>

#include "registry/formats/files/settings_file.h"

namespace trainrun {
namespace {

constexpr std::string_view kOrigin = "says where the file comes from";
constexpr std::string_view kLoss = "concerns the loss and the names of classes, which the recipe says";
constexpr std::string_view kTokens = "names a token, for a tokenizer or for generation";
constexpr std::string_view kPython = "chooses how Python computes or returns the same numbers";
constexpr std::string_view kPrecision = "the precision is the recipe's: weights become float32";
constexpr std::string_view kOtherHead = "is of a head that is not available here";
constexpr std::string_view kAlways = "is always so here; models.md says which models there are";

constexpr std::array kKeys = {
    MeaninglessKey{"_name_or_path", kOrigin},
    MeaninglessKey{"name_or_path", kOrigin},
    MeaninglessKey{"_commit_hash", kOrigin},
    MeaninglessKey{"architectures", kOrigin},
    MeaninglessKey{"auto_map", kOrigin},
    MeaninglessKey{"finetuning_task", kOrigin},
    MeaninglessKey{"model_type", kOrigin},
    MeaninglessKey{"transformers_version", kOrigin},
    MeaninglessKey{"unsloth_version", kOrigin},
    MeaninglessKey{"unsloth_fixed", kOrigin},
    MeaninglessKey{"task_specific_params", kOrigin},
    MeaninglessKey{"id2label", kLoss},
    MeaninglessKey{"label2id", kLoss},
    MeaninglessKey{"num_labels", kLoss},
    MeaninglessKey{"problem_type", kLoss},
    MeaninglessKey{"bos_token_id", kTokens},
    MeaninglessKey{"eos_token_id", kTokens},
    MeaninglessKey{"pad_token_id", kTokens},
    MeaninglessKey{"sep_token_id", kTokens},
    MeaninglessKey{"cls_token_id", kTokens},
    MeaninglessKey{"mask_token_id", kTokens},
    MeaninglessKey{"unk_token_id", kTokens},
    MeaninglessKey{"decoder_start_token_id", kTokens},
    MeaninglessKey{"tokenizer_class", kTokens},
    MeaninglessKey{"prefix", kTokens},
    MeaninglessKey{"attn_implementation", kPython},
    MeaninglessKey{"_attn_implementation", kPython},
    MeaninglessKey{"_attn_implementation_autoset", kPython},
    MeaninglessKey{"experts_implementation", kPython},
    MeaninglessKey{"chunk_size_feed_forward", kPython},
    MeaninglessKey{"gradient_checkpointing", kPython},
    MeaninglessKey{"output_attentions", kPython},
    MeaninglessKey{"output_hidden_states", kPython},
    MeaninglessKey{"output_past", kPython},
    MeaninglessKey{"pretraining_tp", kPython},
    MeaninglessKey{"reorder_and_upcast_attn", kPython},
    MeaninglessKey{"return_dict", kPython},
    MeaninglessKey{"tf_legacy_loss", kPython},
    MeaninglessKey{"torchscript", kPython},
    MeaninglessKey{"use_bfloat16", kPrecision},
    MeaninglessKey{"use_cache", kPython},
    MeaninglessKey{"dtype", kPrecision},
    MeaninglessKey{"torch_dtype", kPrecision},
    MeaninglessKey{"qa_dropout", kOtherHead},
    MeaninglessKey{"seq_classif_dropout", kOtherHead},
    MeaninglessKey{"classifier_dropout", kOtherHead},
    MeaninglessKey{"summary_activation", kOtherHead},
    MeaninglessKey{"summary_first_dropout", kOtherHead},
    MeaninglessKey{"summary_proj_to_labels", kOtherHead},
    MeaninglessKey{"summary_type", kOtherHead},
    MeaninglessKey{"summary_use_proj", kOtherHead},
    MeaninglessKey{"tie_word_embeddings", kOtherHead},  // of a model without a head over the vocabulary
    MeaninglessKey{"n_ctx", kAlways},                   // is n_positions
    MeaninglessKey{"tie_weights_", kAlways},
    MeaninglessKey{"tie_encoder_decoder", kAlways},
    MeaninglessKey{"cross_attention_hidden_size", kAlways},
};

}  // namespace

bool means_nothing_to_models(std::string_view key) { return means_nothing(kKeys, key); }

}  // namespace trainrun
