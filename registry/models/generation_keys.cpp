#include "registry/models/generation_keys.h"

#include <algorithm>
#include <array>

namespace trainrun {
namespace {

using Use = GenerationKey::Use;
constexpr std::string_view kBeams = "concerns searches with several beams alone";
constexpr std::string_view kSpeed = "changes how fast tokens come, not which";
constexpr std::string_view kAssistant = "concerns a model that assists, and there is none";
constexpr std::string_view kOutput = "chooses what Python returns besides";
constexpr std::string_view kTokenNames = "names a token for padding, or for a text that begins with nothing";
constexpr std::string_view kFileOrigin = "says where the file comes from";
constexpr std::string_view kStrategy = "a text goes on token by token, greedily or drawn";

constexpr GenerationKey kGenerationKeys[] = {
    {"max_length"},
    {"max_new_tokens"},
    {"min_length"},
    {"min_new_tokens"},
    {"stop_strings"},
    {"do_sample"},
    {"num_return_sequences"},
    {"eos_token_id"},
    {"temperature"},
    {"top_k"},
    {"top_p"},
    {"min_p"},
    {"top_h"},
    {"typical_p"},
    {"epsilon_cutoff"},
    {"eta_cutoff"},
    {"repetition_penalty"},
    {"no_repeat_ngram_size"},
    {"bad_words_ids"},
    {"sequence_bias"},
    {"suppress_tokens"},
    {"begin_suppress_tokens"},
    {"forced_bos_token_id"},
    {"forced_eos_token_id"},
    {"exponential_decay_length_penalty"},
    {"early_stopping", Use::kMeansNone, kBeams},
    {"length_penalty", Use::kMeansNone, kBeams},
    {"use_cache", Use::kMeansNone, kSpeed},
    {"max_cache_len", Use::kMeansNone, kSpeed},
    {"cache_config", Use::kMeansNone, kSpeed},
    {"low_memory", Use::kMeansNone, kSpeed},
    {"prefill_chunk_size", Use::kMeansNone, kSpeed},
    {"compile_config", Use::kMeansNone, kSpeed},
    {"disable_compile", Use::kMeansNone, kSpeed},
    {"continuous_batching_config", Use::kMeansNone, kSpeed},
    {"is_assistant", Use::kMeansNone, kAssistant},
    {"num_assistant_tokens", Use::kMeansNone, kAssistant},
    {"num_assistant_tokens_schedule", Use::kMeansNone, kAssistant},
    {"assistant_confidence_threshold", Use::kMeansNone, kAssistant},
    {"assistant_early_exit", Use::kMeansNone, kAssistant},
    {"assistant_lookbehind", Use::kMeansNone, kAssistant},
    {"target_lookbehind", Use::kMeansNone, kAssistant},
    {"assistant_ensemble_weight", Use::kMeansNone, kAssistant},
    {"speculation_type", Use::kMeansNone, kAssistant},
    {"max_matching_ngram_size", Use::kMeansNone, kAssistant},
    {"output_attentions", Use::kMeansNone, kOutput},
    {"output_hidden_states", Use::kMeansNone, kOutput},
    {"output_logits", Use::kMeansNone, kOutput},
    {"output_scores", Use::kMeansNone, kOutput},
    {"return_dict_in_generate", Use::kMeansNone, kOutput},
    {"bos_token_id", Use::kMeansNone, kTokenNames},
    {"pad_token_id", Use::kMeansNone, kTokenNames},
    {"decoder_start_token_id", Use::kMeansNone, kTokenNames},
    {"_from_model_config", Use::kMeansNone, kFileOrigin},
    {"_commit_hash", Use::kMeansNone, kFileOrigin},
    {"transformers_version", Use::kMeansNone, kFileOrigin},
    {"renormalize_logits", Use::kMeansNone, "adds the same number to all logits"},
    {"remove_invalid_values", Use::kMeansNone, "logits that are NaN are an error here"},
    {"num_beams", Use::kRefused, kStrategy, "1"},
    {"num_beam_groups", Use::kRefused, kStrategy, "1"},
    {"diversity_penalty", Use::kRefused, kStrategy, "0.0"},
    {"penalty_alpha", Use::kRefused, kStrategy, "0.0"},
    {"constraints", Use::kRefused, kStrategy, "null"},
    {"force_words_ids", Use::kRefused, kStrategy, "null"},
    {"dola_layers", Use::kRefused, kStrategy, "null"},
    {"prompt_lookup_num_tokens", Use::kRefused, kStrategy, "null"},
    {"use_mtp", Use::kRefused, kStrategy, "false"},
    {"token_healing", Use::kRefused, kStrategy, "false"},
    {"guidance_scale", Use::kRefused, "texts are guided by nothing", "1.0"},
    {"watermarking_config", Use::kRefused, "texts have no watermark", "null"},
    {"max_time", Use::kRefused, "how long a text takes ends none", "null"},
    {"encoder_repetition_penalty", Use::kRefused, "a prompt weighs no more than the text that follows", "1.0"},
    {"encoder_no_repeat_ngram_size", Use::kRefused, "a prompt weighs no more than the text that follows", "0"},
    {"force_bos_token_to_be_generated", Use::kRefused, "write forced_bos_token_id", "false"},
    {"cache_implementation"},
};

}  // namespace

std::span<const GenerationKey> generation_keys() { return kGenerationKeys; }

const GenerationKey* find_generation_key(std::string_view name) {
  const auto* found = std::ranges::find(kGenerationKeys, name, &GenerationKey::name);
  return found == std::end(kGenerationKeys) ? nullptr : found;
}

}  // namespace trainrun
