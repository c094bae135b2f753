#include "runner/generate/generation.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/isnan.h>

#include <algorithm>

#include "registry/kinds/sample_draws.h"
#include "registry/language/error.h"
#include "registry/language/splitmix.h"
#include "runner/generate/token_sampler.h"

namespace trainrun {
namespace {

constexpr std::string_view kUnfinished = "\xEF\xBF\xBD";  // U+FFFD, where bytes of a character are still to come

/// How many bytes at the end of `text` may be the beginning of one of `stop`.
size_t begun_stop(const std::string& text, const std::vector<std::string>& stop) {
  size_t most = 0;
  for (const std::string& word : stop) {
    for (size_t size = std::min(word.size() - 1, text.size()); size > most; --size) {
      if (text.compare(text.size() - size, size, word, 0, size) == 0) most = size;
    }
  }
  return most;
}

int64_t vocab_size(const LanguageModel& model) { return model.graph->example_outputs().at(0).size(-1); }

}  // namespace

Prompt prompt_of(const std::string& text, const std::string& origin, const LanguageModel& model) {
  if (!model.codec) {
    throw Error(origin + ": the model has no tokenizer to read a text with; name one (--tokenizer), or give tokens");
  }
  Prompt prompt = {text, model.codec->encode(text, origin), origin, nullptr};
  if (text.empty() || prompt.tokens.empty()) {
    throw Error(origin + " is empty, but a text needs at least one token to begin with");
  }
  return prompt;
}

Prompt prompt_of(const std::vector<int64_t>& tokens, const std::string& origin, const LanguageModel& model) {
  if (tokens.empty()) throw Error(origin + " is empty, but a text needs at least one token to begin with");
  const int64_t size = vocab_size(model);
  for (const int64_t token : tokens) {
    if (token >= 0 && token < size) continue;
    throw Error(origin + ": " + std::to_string(token) + " is not a token: the model has those from 0 to " +
                std::to_string(size - 1));
  }
  return {model.codec ? model.codec->decode(tokens) : "", tokens, origin, nullptr};
}

/// One text that grows.
class Generator::Row {
 public:
  Row(const Generator& owner, const Prompt& prompt, size_t number, int64_t sample, Stream stream)
      : model_(owner.model_),
        options_(owner.options_),
        prompt_(prompt),
        draws_(splitmix64(splitmix64(owner.options_.seed) ^ static_cast<uint64_t>(sample))),
        stream_(std::move(stream)) {
    result_.prompt = number;
    result_.sample = sample;
    if (model_.codec) base_ = model_.codec->decode(prompt.tokens);
    if (most_new_tokens(options_, static_cast<int64_t>(prompt.tokens.size())) < 1) {
      throw Error(prompt.origin + " has " + std::to_string(prompt.tokens.size()) +
                  " tokens, but generation_config.json says max_length: " + std::to_string(*options_.max_length) +
                  " for the whole text; write --max-new-tokens");
    }
    stops_at_special_ = model_.codec && std::ranges::any_of(options_.stop, [&](const std::string& word) {
                          return model_.codec->has_special_token(word);
                        });
  }

  const Prompt& prompt() const { return prompt_; }
  bool is_finished() const { return !result_.finish.empty(); }
  GeneratedText take() { return std::move(result_); }

  /// The token to go on with; of a text that is finished any.
  int64_t choose(const at::Tensor& logits) {
    if (is_finished()) return 0;
    if (at::isnan(logits).any().item<bool>()) {
      throw NonFiniteLogits("the model's logits are NaN for token " + std::to_string(result_.tokens.size() + 1) +
                            " after " + prompt_.origin +
                            "; the weights are not finite, or numbers are too large for the precision");
    }
    std::vector<int64_t> text = prompt_.tokens;
    text.insert(text.end(), result_.tokens.begin(), result_.tokens.end());
    const at::Tensor scores = processed_scores(logits, text, static_cast<int64_t>(prompt_.tokens.size()), options_);
    return chosen_token(scores, options_.do_sample, options_.do_sample ? draws_.uniform() : 0);
  }

  void add(int64_t token) {
    if (is_finished()) return;
    const bool ends =
        std::find(options_.end_tokens.begin(), options_.end_tokens.end(), token) != options_.end_tokens.end();
    if (ends) return finish("end");
    result_.tokens.push_back(token);
    if (!options_.stop.empty() || stream_) look_at_text();
    if (is_finished()) return;
    const int64_t most = most_new_tokens(options_, static_cast<int64_t>(prompt_.tokens.size()));
    if (static_cast<int64_t>(result_.tokens.size()) >= most) finish("length");
  }

 private:
  void finish(const std::string& why) {
    result_.finish = why;
    if (why != "stop") result_.text = decoded();
    tell(result_.text.size());
  }

  /// What the new tokens say; a tokenizer may write them otherwise at a text's beginning, so after the prompt's.
  std::string decoded() const { return decoded(result_.tokens.size(), base_, /*with_special_tokens=*/false); }
  /// Of so many new tokens; `base`: the prompt's text.
  std::string decoded(size_t count, const std::string& base, bool with_special_tokens) const {
    if (!model_.codec) return "";
    const std::vector<int64_t> own(result_.tokens.begin(), result_.tokens.begin() + static_cast<std::ptrdiff_t>(count));
    // An answer is a text of its own, whatever stands before it.
    if (!prompt_.messages.is_null()) return model_.codec->decode(own, with_special_tokens);
    std::vector<int64_t> all = prompt_.tokens;
    all.insert(all.end(), own.begin(), own.end());
    const std::string whole = model_.codec->decode(all, with_special_tokens);
    return whole.starts_with(base) ? whole.substr(base.size()) : model_.codec->decode(own, with_special_tokens);
  }

  size_t first_stop(const std::string& text) const {
    size_t found = std::string::npos;
    for (const std::string& word : options_.stop) found = std::min(found, text.find(word));
    return found;
  }

  /// Ends the text before a stop that holds special tokens, which are not in the text itself, if one has come.
  bool ends_at_special() {
    const std::string base = model_.codec->decode(prompt_.tokens, true);
    const size_t end = first_stop(decoded(result_.tokens.size(), base, true));
    if (end == std::string::npos) return false;
    size_t count = result_.tokens.size();
    while (count > 0 && decoded(count, base, true).size() > end) --count;
    const std::string before = decoded(count, base, true);
    const std::string next = decoded(std::min(count + 1, result_.tokens.size()), base, true);
    result_.text =
        decoded(count, base_, false) + next.substr(std::min(before.size(), next.size()), end - before.size());
    finish("stop");
    return true;
  }

  void look_at_text() {
    result_.text = decoded();
    if (stops_at_special_ && ends_at_special()) return;
    if (const size_t found = first_stop(result_.text); found != std::string::npos) {
      result_.text.resize(found);
      return finish("stop");
    }
    size_t sure = result_.text.size() - begun_stop(result_.text, options_.stop);
    while (std::string_view(result_.text).substr(0, sure).ends_with(kUnfinished)) sure -= kUnfinished.size();
    tell(sure);
  }

  /// Streams the text up to there.
  void tell(size_t end) {
    if (!stream_ || end <= told_) return;
    stream_(std::string_view(result_.text).substr(told_, end - told_));
    told_ = end;
  }

  const LanguageModel& model_;
  const GenerationSettings& options_;
  const Prompt& prompt_;
  RandomStream draws_;
  Stream stream_;
  std::string base_;  // the prompt, as its tokens say it
  GeneratedText result_;
  size_t told_ = 0;
  bool stops_at_special_ = false;
};

Generator::Generator(const LanguageModel& model, GenerationSettings options, bool use_cache)
    : model_((check_language_model(model), model)), options_(std::move(options)), next_(model, use_cache) {
  check_options(options_, vocab_size(model));
}

GenerationSettings with_ends(GenerationSettings options, const LanguageModel& model) {
  for (const std::string& end : model.ends) {
    const auto token = model.codec ? model.codec->id_of(end) : std::nullopt;
    if (token) {
      options.end_tokens.push_back(*token);
    } else {
      options.stop.push_back(end);
    }
  }
  return options;
}

std::vector<GeneratedText> Generator::run(const std::vector<Prompt>& prompts, int64_t batch_size,
                                          const Stream& stream) {
  std::vector<Row> rows;
  const bool is_one = prompts.size() == 1 && options_.num_samples == 1;
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (int64_t sample = 0; sample < options_.num_samples; ++sample) {
      rows.emplace_back(*this, prompts[i], i, sample, is_one ? stream : nullptr);
    }
  }
  std::vector<GeneratedText> results;
  while (!rows.empty()) {
    const auto end = rows.begin() + std::min<int64_t>(batch_size, static_cast<int64_t>(rows.size()));
    std::vector<Row> batch(std::make_move_iterator(rows.begin()), std::make_move_iterator(end));
    std::vector<Row> rest(std::make_move_iterator(end), std::make_move_iterator(rows.end()));
    run_batch(batch);
    for (Row& row : batch) results.push_back(row.take());
    rows.swap(rest);
  }
  return results;
}

void Generator::run_batch(std::vector<Row>& rows) {
  std::vector<std::vector<int64_t>> texts;
  for (const Row& row : rows) texts.push_back(row.prompt().tokens);
  at::Tensor logits = next_.begin(std::move(texts));
  for (;;) {
    std::vector<int64_t> tokens;
    for (size_t i = 0; i < rows.size(); ++i) tokens.push_back(rows[i].choose(logits[static_cast<int64_t>(i)]));
    if (model_.agree) tokens = model_.agree(tokens);
    for (size_t i = 0; i < rows.size(); ++i) rows[i].add(tokens[i]);
    if (std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.is_finished(); })) return;
    logits = next_.go_on(tokens);
  }
}

}  // namespace trainrun
